//! An open image: source, cache, driver and engine put together.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_engine::{MetadataSource, Reader};
use forerun_io::{BlobId, Counted, FileSource, Observer, ReadAt, Window, saturating_usize};
use forerun_vfs::{Error, Format, OpenWith, Result};

use crate::devices::{self, Devices};
use crate::digest;
use crate::identify::{find_format, named, probe_len, unknown, with_objects};
use crate::locks;
use crate::options::OpenOptions;
use crate::payload::{self, Container, Payload};
use crate::spool;

/// An open image. Clones share what is open.
#[derive(Clone, Debug)]
pub struct Image {
    name: Option<Arc<Path>>,
    format: &'static Format,
    container: Option<Container>,
    offset: u64,
    source_len: u64,
    metadata: Arc<MetadataSource>,
    reader: Reader,
}

impl Image {
    /// Opens an image in an open file or block device. An image of a format that changes is locked
    /// against writers for as long as its reader is in use.
    ///
    /// # Errors
    /// The errors of [`from_source`](Self::from_source); [`Error::Io`] with an
    /// [`InUse`](crate::InUse) if a process or the kernel writes to the volume.
    pub fn from_file(file: FileSource, options: &OpenOptions) -> Result<Self> {
        let source = locks::source(file, options)?;
        Self::from_source(Arc::new(source), options)
    }

    /// Opens an image in any source.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`] if no driver knows the bytes, [`Error::Io`] if they cannot be read
    /// or offset and size do not fit, and the errors of the driver.
    pub fn from_source(source: Arc<dyn ReadAt>, options: &OpenOptions) -> Result<Self> {
        let observer = Arc::new(Observer::new(options.events.clone()));
        let wanted = options.format.as_deref();
        let whole = Opened::new(&source, options.offset, options.size, options, &observer)?;
        let head = whole.head()?;
        let (format, container, opened) = match find_format(&head, wanted) {
            // A composefs image may lack its header. Where the caller names a store, the image is one.
            Some(format) if options.objects.is_some() && wanted.is_none() => {
                (with_objects(format), None, whole)
            }
            Some(format) => (format, None, whole),
            None => match find_payload(&source, &whole, options, &observer)? {
                Some((format, container, part)) => (format, Some(container), part),
                // A format that the user names is opened whatever its magic; the driver reports
                // what is wrong.
                None => (
                    named(wanted).ok_or_else(|| unknown(wanted, &head, None, options.offset))?,
                    None,
                    whole,
                ),
            },
        };
        opened.image(format, container, options, observer)
    }

    /// Gives the image the name that it has in errors.
    pub(crate) fn with_name(self, name: PathBuf) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }

    /// Returns the name by which the image was opened: its path, or its address without credentials.
    /// Returns nothing if it was opened from a source without a name.
    #[must_use]
    pub fn name(&self) -> Option<&Path> {
        self.name.as_deref()
    }

    /// Adds the image and `path` to an error.
    pub(crate) fn failed(&self, path: &Path, error: Error) -> crate::Error {
        crate::Error::from(error).at(path).of_image(self.name())
    }

    /// Returns the name of the format.
    #[must_use]
    pub const fn format(&self) -> &'static str {
        self.format.name
    }

    /// Returns the kind of container, if the image was found inside one.
    #[must_use]
    pub const fn container(&self) -> Option<Container> {
        self.container
    }

    /// Returns the offset of the image in the source, in bytes: as given, or as found in a
    /// container. Offsets in errors and events count from there.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length of the source from the image's offset on, in bytes. The image may be
    /// shorter.
    #[must_use]
    pub const fn source_len(&self) -> u64 {
        self.source_len
    }

    /// Computes the digest of a composefs image from all of its bytes: what `fsverity digest` prints for its
    /// file. Returns nothing for other formats.
    ///
    /// # Errors
    /// [`Error::Io`] if the image cannot be read.
    pub fn digest(&self) -> Result<Option<String>> {
        digest::measure(self.format, &*self.metadata)
    }

    /// Returns the reader of its files.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }
}

/// A part of the source that may be an image.
struct Opened {
    offset: u64,
    source: Counted,
    metadata: Arc<MetadataSource>,
}

impl Opened {
    fn new(
        source: &Arc<dyn ReadAt>,
        offset: u64,
        size: Option<u64>,
        options: &OpenOptions,
        observer: &Arc<Observer>,
    ) -> Result<Self> {
        let mut part = Arc::clone(source);
        if offset > 0 || size.is_some() {
            let window = Window::new(part, offset, size);
            part = Arc::new(window.map_err(|error| Error::io(offset, 0, error))?);
        }
        let source = Counted::new(part, BlobId::IMAGE, Arc::clone(observer));
        let geometry = options.engine.geometry(source.len());
        // A sixteenth of the budget is for metadata as it is stored, another for decoded metadata
        // of the driver; the engine takes the rest for data.
        let metadata = MetadataSource::new(source.clone(), geometry, options.engine.cache / 16);
        Ok(Self {
            offset,
            source,
            metadata: Arc::new(metadata),
        })
    }

    /// Reads as many bytes of the start as any format needs for its probe.
    fn head(&self) -> Result<Vec<u8>> {
        let mut head = vec![0; probe_len().min(saturating_usize(self.source.len()))];
        let read = self.metadata.read_exact_at(0, &mut head);
        read.map_err(|error| Error::io(0, head.len(), error))?;
        Ok(head)
    }

    fn image(
        self,
        format: &'static Format,
        container: Option<Container>,
        options: &OpenOptions,
        observer: Arc<Observer>,
    ) -> Result<Image> {
        if let Some(expected) = &options.digest {
            digest::check(format, &*self.metadata, expected)?;
        }
        let blobs = Devices::open(&options.devices, options.objects.as_deref())?;
        let driver_source: Arc<dyn ReadAt> = Arc::<MetadataSource>::clone(&self.metadata);
        let fs = (format.open)(OpenWith {
            metadata: driver_source,
            limits: options.limits.clone(),
            observer,
            cache: options.engine.cache / 16,
            blobs: Arc::new(blobs),
            verity: options.verity,
            ownership: options.ownership,
            rescue: options.rescue,
            spool: options.spool.clone().or_else(spool::default),
            index: options.index.clone(),
        })?;
        devices::check(&options.devices, fs.volume().devices)?;
        options.engine.log_memory_use();
        Ok(Image {
            name: None,
            format,
            container,
            offset: self.offset,
            source_len: self.source.len(),
            metadata: Arc::clone(&self.metadata),
            reader: Reader::new(
                fs,
                self.source,
                self.metadata,
                options.engine.clone(),
                options.limits.clone(),
            ),
        })
    }
}

/// Opens the image inside `whole`, which is no image itself. Does not search if the caller gave an
/// offset.
fn find_payload(
    source: &Arc<dyn ReadAt>,
    whole: &Opened,
    options: &OpenOptions,
    observer: &Arc<Observer>,
) -> Result<Option<(&'static Format, Container, Opened)>> {
    let wanted = options.format.as_deref();
    let mut error = None;
    if options.offset > 0 {
        return Ok(None);
    }
    for payload in payload::find(&*whole.metadata)? {
        let Payload {
            container, offset, ..
        } = payload;
        // To the end of the part of the source that the options name.
        let rest = options.size.map(|size| size.saturating_sub(offset));
        let part = Opened::new(source, offset, payload.size.or(rest), options, observer)?;
        let head = part.head()?;
        if let Some(format) = find_format(&head, wanted) {
            return Ok(Some((format, container, part)));
        }
        error.get_or_insert_with(|| unknown(wanted, &head, Some(container), offset));
    }
    match error {
        Some(error) if named(wanted).is_none() => Err(error),
        _ => Ok(None),
    }
}
