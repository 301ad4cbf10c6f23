//! Finds the image in a source, and opens its driver.

use std::sync::Arc;

use forerun_disk::payload::{self, Payload};
use forerun_disk::{Container, Expanded};
use forerun_engine::{MetadataSource, Reader};
use forerun_io::{BlobId, Counted, Observer, ReadAt, Window, u64_from, usize_from};
use forerun_vfs::{Blobs, Error, FileSystem, Format, OpenArchive, OpenBlobs, OpenWith, Result};

use crate::contents;
use crate::devices::{self, Devices};
use crate::digest;
use crate::expanded;
use crate::identify::{
    find_by_tail, find_format, named, probe_len, tail_len, unknown, unknown_contents, with_objects,
};
use crate::image::Image;
use crate::options::OpenOptions;
use crate::spool;

/// The format of archives with a table of contents.
const INDEXED: &str = "tar";

/// An image whose format and location are known.
pub struct FoundImage {
    format: &'static Format,
    container: Option<Container>,
    pub opened: Opened,
}

/// A part of the source that may be an image.
pub struct Opened {
    offset: u64,
    /// The part, without counting its reads.
    pub part: Arc<dyn ReadAt>,
    source: Counted,
    pub metadata: Arc<MetadataSource>,
}

impl FoundImage {
    /// Finds the image in a source. The image is the source itself, the part that the options
    /// select, or the contents of a container.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`] and [`Error::Io`].
    pub fn of(
        source: &Arc<dyn ReadAt>,
        options: &OpenOptions,
        observer: &Arc<Observer>,
    ) -> Result<Self> {
        Self::of_blob(source, BlobId::IMAGE, options, observer)
    }

    /// Like [`of`](Self::of), for a source that the engine knows as `blob`.
    ///
    /// # Errors
    /// The errors of [`of`](Self::of).
    pub fn of_blob(
        source: &Arc<dyn ReadAt>,
        blob: BlobId,
        options: &OpenOptions,
        observer: &Arc<Observer>,
    ) -> Result<Self> {
        match look(source, blob, options, observer, NESTED)? {
            Looked::Found(found) => Ok(found),
            Looked::Inside(inside) => inside.open(blob, options, observer),
        }
    }

    /// Opens the driver. `cache` is its budget for decoded metadata.
    ///
    /// # Errors
    /// The errors of the driver, of the devices and of the digest that the options name.
    pub fn driver(
        &self,
        options: &OpenOptions,
        observer: Arc<Observer>,
        cache: u64,
        is_layer: bool,
    ) -> Result<Arc<dyn FileSystem>> {
        let metadata = &self.opened.metadata;
        if let Some(expected) = &options.digest {
            digest::check(self.format, &**metadata, expected)?;
        }
        let blobs = Devices::open(options)?;
        let metadata: Arc<dyn ReadAt> = Arc::<MetadataSource>::clone(metadata);
        let fs = (self.format.open)(OpenWith {
            metadata,
            limits: options.limits.clone(),
            observer,
            cache,
            blobs: OpenBlobs {
                resolve: Arc::new(blobs),
                verity: options.verity,
            },
            ownership: options.ownership.clone(),
            rescue: options.rescue,
            archive: OpenArchive {
                spool: options.spool.clone().or_else(spool::default),
                index: options.index.clone(),
                is_layer,
                table: options.table.clone(),
            },
        })?;
        let blobs = fs.capabilities().blobs;
        devices::check(&options.devices, blobs.map_or(0, Blobs::devices))?;
        Ok(fs)
    }

    /// Opens the image.
    ///
    /// # Errors
    /// The errors of [`driver`](Self::driver).
    pub fn image(self, options: &OpenOptions, observer: Arc<Observer>) -> Result<Image> {
        let fs = self.driver(options, observer, options.engine.cache / 16, false)?;
        options.engine.log_memory_use();
        let opened = self.opened;
        let limits = options.limits_of(opened.source.len());
        Ok(Image {
            name: None,
            format: Some(self.format),
            container: self.container,
            offset: opened.offset,
            source_len: opened.source.len(),
            metadata: Arc::clone(&opened.metadata),
            reader: Reader::new(
                fs,
                opened.source,
                opened.metadata,
                options.engine.clone(),
                limits,
            ),
        })
    }
}

/// Most nested files that are decoded, such as a compressed disk that holds a compressed image.
const NESTED: u32 = 3;

enum Looked {
    Found(FoundImage),
    Inside(Inside),
}

/// An encoded file that may hold an image. The number is how many more may be nested in it.
enum Inside {
    Disk(Expanded, u32),
    #[cfg(feature = "tar")]
    Stream(Arc<dyn ReadAt>, forerun_spans::Compression, u32),
}

impl Inside {
    fn open(
        self,
        blob: BlobId,
        options: &OpenOptions,
        observer: &Arc<Observer>,
    ) -> Result<FoundImage> {
        let (expanded, left) = match self {
            Self::Disk(expanded, left) => (expanded, left),
            #[cfg(feature = "tar")]
            Self::Stream(source, compression, left) => {
                (expanded::decode(&*source, compression, options)?, left)
            }
        };
        let mut inner = options.clone();
        (inner.index, inner.table) = (None, None);
        let mut failed = None;
        for (offset, len) in expanded.places() {
            (inner.offset, inner.size) = (offset, len);
            let looked = look(&expanded.source, blob, &inner, observer, left);
            let found = looked.and_then(|looked| match looked {
                Looked::Found(found) => Ok(found),
                Looked::Inside(inside) => inside.open(blob, &inner, observer),
            });
            match found {
                Ok(found) => {
                    return Ok(FoundImage {
                        container: Some(expanded.container),
                        ..found
                    });
                }
                Err(error @ Error::UnknownFormat { .. }) => {
                    failed.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(failed.unwrap_or_else(|| {
            unknown(options.format.as_deref(), &[], Some(expanded.container), 0)
        }))
    }
}

/// Looks for the image in a source: the source itself, the part that the options select, or the
/// contents of a container. `left` encoded files may still be nested.
fn look(
    source: &Arc<dyn ReadAt>,
    blob: BlobId,
    options: &OpenOptions,
    observer: &Arc<Observer>,
    left: u32,
) -> Result<Looked> {
    let place = (options.offset, options.size);
    // Offsets in a disk image refer to the decoded disk.
    let disk = match place {
        (0, None) => None,
        _ => expanded::whole_disk(source, &options.limits)?,
    };
    let source = disk.as_ref().map_or(source, |disk| &disk.source);
    let whole = Opened::new(source, blob, place, options, observer)?;
    let mut looked = look_at(whole, source, blob, options, observer, left)?;
    if let (Looked::Found(found), Some(disk)) = (&mut looked, disk) {
        found.container = Some(disk.container);
    }
    Ok(looked)
}

fn look_at(
    whole: Opened,
    source: &Arc<dyn ReadAt>,
    blob: BlobId,
    options: &OpenOptions,
    observer: &Arc<Observer>,
    left: u32,
) -> Result<Looked> {
    let wanted = options.format.as_deref();
    let is_kept = options.index.as_ref().is_some_and(|index| index.is_kept());
    let is_indexed = options.table.is_some() || (is_kept && !options.rescue);
    if let Some(format) = named(Some(wanted.unwrap_or(INDEXED))).filter(|_| is_indexed) {
        // The caller knows the contents, so only the table or index is read.
        return Ok(Looked::Found(FoundImage {
            format,
            container: None,
            opened: whole,
        }));
    }
    let head = whole.head()?;
    if let Some(inside) = inside(&whole, &head, options, left)? {
        return Ok(Looked::Inside(inside));
    }
    let (format, container, opened) = match find_format(&head, wanted) {
        // A composefs image may lack its header. It is one if the caller names an object store.
        Some(format) if options.has_store() && wanted.is_none() => {
            (with_objects(format), None, whole)
        }
        Some(format) => (format, None, whole),
        None => match find_payload(source, blob, &whole, options, observer) {
            Ok(Some((format, container, part))) => (format, Some(container), part),
            found => match (whole.format_of_tail(wanted)?, named(wanted), found) {
                (Some(format), ..) => (format, None, whole),
                // If the user names a format, open it whatever the magic number; the driver reports
                // what is wrong.
                (None, Some(format), Ok(_)) => (format, None, whole),
                (None, _, Err(error)) => return Err(error),
                (None, None, Ok(_)) => {
                    let foreign = contents::foreign(&*whole.metadata);
                    return Err(match foreign.ok().flatten() {
                        Some(name) => unknown_contents(wanted, name, options.offset),
                        None => unknown(wanted, &head, None, options.offset),
                    });
                }
            },
        },
    };
    Ok(Looked::Found(FoundImage {
        format,
        container,
        opened,
    }))
}

/// Returns the encoded file that a source starting with `head` is, if it is one and `left` is not
/// 0.
fn inside(whole: &Opened, head: &[u8], options: &OpenOptions, left: u32) -> Result<Option<Inside>> {
    let Some(left) = left.checked_sub(1) else {
        return Ok(None);
    };
    let disk = Expanded::first(&*whole.metadata, &whole.part, &options.limits)?;
    if let Some(disk) = disk {
        return Ok(Some(Inside::Disk(disk, left)));
    }
    #[cfg(not(feature = "tar"))]
    let _ = head;
    #[cfg(feature = "tar")]
    if let Some(compression) =
        expanded::image_inside(&*whole.metadata, head, options.format.as_deref())
    {
        let source: Arc<dyn ReadAt> = Arc::<MetadataSource>::clone(&whole.metadata);
        return Ok(Some(Inside::Stream(source, compression, left)));
    }
    Ok(None)
}

impl Opened {
    fn new(
        source: &Arc<dyn ReadAt>,
        blob: BlobId,
        (offset, size): (u64, Option<u64>),
        options: &OpenOptions,
        observer: &Arc<Observer>,
    ) -> Result<Self> {
        let mut part = Arc::clone(source);
        if offset > 0 || size.is_some() {
            let window = Window::new(part, offset, size);
            part = Arc::new(window.map_err(|error| Error::io(offset, 0, error))?);
        }
        let source = Counted::new(Arc::clone(&part), blob, Arc::clone(observer));
        let geometry = options.engine.geometry(source.len());
        // A sixteenth of the budget is for stored metadata, another for the driver's decoded
        // metadata; the engine uses the rest for data.
        let metadata = MetadataSource::new(source.clone(), geometry, options.engine.cache / 16)
            .guessing(options.engine.guess_metadata);
        Ok(Self {
            offset,
            part,
            source,
            metadata: Arc::new(metadata),
        })
    }

    /// Reads as many bytes from the start as the probes of all formats need.
    fn head(&self) -> Result<Vec<u8>> {
        let mut head = vec![0; probe_len().min(usize_from(self.source.len()))];
        let read = self.metadata.read_exact_at(0, &mut head);
        read.map_err(|error| Error::io(0, head.len(), error))?;
        Ok(head)
    }

    /// Returns the format that recognises the end. With `wanted`, considers only that format. Reads
    /// nothing if no format looks there.
    fn format_of_tail(&self, wanted: Option<&str>) -> Result<Option<&'static Format>> {
        let len = tail_len(wanted).min(usize_from(self.source.len()));
        if len == 0 {
            return Ok(None);
        }
        let mut tail = vec![0; len];
        let offset = self.source.len() - u64_from(len);
        let read = self.metadata.read_exact_at(offset, &mut tail);
        read.map_err(|error| Error::io(offset, len, error))?;
        Ok(find_by_tail(&tail, wanted))
    }
}

/// Finds an image inside `whole`, which is no image itself. Does not search if the caller gave an
/// offset.
fn find_payload(
    source: &Arc<dyn ReadAt>,
    blob: BlobId,
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
        // Up to the end of the part that the options select.
        let rest = options.size.map(|size| size.saturating_sub(offset));
        let place = (offset, payload.size.or(rest));
        let part = Opened::new(source, blob, place, options, observer)?;
        let head = part.head()?;
        // Skip formats that are recognised by their end: their offsets may count from either start,
        // which only their driver can tell.
        let format = find_format(&head, wanted).filter(|format| format.tail.is_none());
        if let Some(format) = format {
            return Ok(Some((format, container, part)));
        }
        error.get_or_insert_with(|| unknown(wanted, &head, Some(container), offset));
    }
    match error {
        Some(error) if named(wanted).is_none() => Err(error),
        _ => Ok(None),
    }
}
