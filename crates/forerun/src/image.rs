//! An open image: source, cache, driver and engine put together.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource, Reader};
use forerun_io::{
    BlobId, Counted, EventSink, FileSource, Limits, Observer, ReadAt, Window, saturating_usize,
};
use forerun_vfs::{Error, Format, OpenWith, Ownership, Result, Verity};

use crate::devices::{self, Devices};
use crate::identify::{find_format, named, probe_len, unknown, with_objects};
use crate::locks::{self, Locking};
use crate::payload::{self, Container, Payload};

/// How to open an image.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Offset of the image in the source, in bytes. At 0, a source that is no image may be a
    /// container that holds one: an AppImage, another executable, a SIF file.
    pub offset: u64,
    /// Length of the image in the source, in bytes; to the end if not given.
    pub size: Option<u64>,
    /// Name of the format; found by content if not given.
    pub format: Option<String>,
    /// Blocks, readahead, cache, threads.
    pub engine: EngineOptions,
    /// Bounds on what the image may ask for.
    pub limits: Limits,
    /// Files and devices with the data that the image keeps outside itself, in the order of its
    /// device table.
    pub devices: Vec<PathBuf>,
    /// The object store of a composefs image. An EROFS image opened with one is opened as composefs.
    pub objects: Option<PathBuf>,
    /// How the digests of objects in the image are used.
    pub verity: Verity,
    /// Owners, permissions and time zone for formats that keep none.
    pub ownership: Ownership,
    /// Reads as much of a damaged image as possible instead of refusing it: exFAT volumes with a
    /// damaged bitmap, up-case table, root directory or boot region, and files up to where their
    /// chain breaks.
    pub rescue: bool,
    /// How locks of other processes are treated, for formats that change.
    pub locking: Locking,
    /// Receives an event for each crossing of a boundary.
    pub events: Option<Arc<dyn EventSink>>,
}

impl OpenOptions {
    /// Lets a writer continue although other processes read, if `breaks`.
    pub const fn break_lock(&mut self, breaks: bool) {
        if breaks {
            self.locking = Locking::Break;
        }
    }

    /// Returns the part of a source of `len` bytes that the options name, clamped to the source.
    pub(crate) fn range(&self, len: u64) -> Range<u64> {
        let end = self.size.and_then(|size| self.offset.checked_add(size));
        self.offset.min(len)..end.map_or(len, |end| end.min(len))
    }
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("offset", &self.offset)
            .field("size", &self.size)
            .field("format", &self.format)
            .field("devices", &self.devices)
            .field("objects", &self.objects)
            .field("verity", &self.verity)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// An open image.
#[derive(Clone, Debug)]
pub struct Image {
    format: &'static Format,
    container: Option<Container>,
    offset: u64,
    source_len: u64,
    reader: Reader,
}

impl Image {
    /// Opens an image in a file or block device.
    ///
    /// ```
    /// use forerun::vfs::FileType;
    /// use forerun::{Image, OpenOptions};
    /// # use std::sync::Arc;
    /// # use forerun::build::{Content, NewNode, NodeKind, Tree};
    /// # use forerun::{Observer, SquashfsOptions, Writer};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let path = dir.path().join("image.sqfs");
    /// # let mut tree = Tree::default();
    /// # let content = Content::Bytes(b"root:x:0:0\n"[..].into());
    /// # tree.add(Tree::ROOT, b"passwd", NewNode::new(NodeKind::File { len: 11, content }, 0o644))?;
    /// # let mut out = std::fs::File::create(&path)?;
    /// # let observer = Arc::new(Observer::default());
    /// # Writer::Squashfs(SquashfsOptions::default()).write(&tree, &mut out, &observer)?;
    ///
    /// let image = Image::open(&path, &OpenOptions::default())?;
    /// assert_eq!(image.format(), "squashfs");
    ///
    /// // All files, with their sizes.
    /// let reader = image.reader();
    /// for entry in reader.walk(reader.fs().root()) {
    ///     let entry = entry?;
    ///     let metadata = entry.metadata?;
    ///     if metadata.kind == FileType::Regular {
    ///         println!("{:>12} {}", metadata.size, String::from_utf8_lossy(&entry.path));
    /// #       assert_eq!((&entry.path[..], metadata.size), (&b"passwd"[..], 11));
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`from_file`](Self::from_file); [`Error::Io`] if the file cannot be opened.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let file = FileSource::open(path).map_err(|error| Error::io(0, 0, error))?;
        Self::from_file(file, options)
    }

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
            // The header may be missing; a user who names a store knows the format.
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
        })?;
        devices::check(&options.devices, fs.volume().devices)?;
        options.engine.log_memory_use();
        Ok(Image {
            format,
            container,
            offset: self.offset,
            source_len: self.source.len(),
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
