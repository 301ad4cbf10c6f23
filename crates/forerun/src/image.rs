//! Source + cache + driver + engine = an open image.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource, Reader};
use forerun_io::{
    BlobId, Counted, EventSink, FileSource, Limits, Observer, ReadAt, Window, saturating_usize,
};
use forerun_vfs::{Error, Format, Result};

use crate::formats;

/// How to open an image.
#[derive(Clone, Default)]
pub struct OpenOptions {
    /// Offset of the image in the source, in bytes.
    pub offset: u64,
    /// Length of the image in the source, in bytes; to the end where not given.
    pub size: Option<u64>,
    /// Name of the format; found by content where not given.
    pub format: Option<String>,
    /// Blocks, readahead, cache, threads.
    pub engine: EngineOptions,
    /// Bounds on what the image may ask for.
    pub limits: Limits,
    /// Told of every block that crosses a boundary.
    pub events: Option<Arc<dyn EventSink>>,
}

impl fmt::Debug for OpenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenOptions")
            .field("offset", &self.offset)
            .field("size", &self.size)
            .field("format", &self.format)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// An open image.
#[derive(Clone, Debug)]
pub struct Image {
    format: &'static Format,
    source_len: u64,
    reader: Reader,
}

impl Image {
    /// Opens an image in a file or block device.
    ///
    /// # Errors
    /// As [`from_source`](Self::from_source); [`Error::Io`] where the file cannot be opened.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Self> {
        let file = FileSource::open(path).map_err(|error| Error::io(0, 0, error))?;
        Self::from_source(Arc::new(file), options)
    }

    /// Opens an image in any source.
    ///
    /// # Errors
    /// [`Error::UnknownFormat`] where no driver knows the bytes, [`Error::Io`] where they cannot be
    /// read or offset and size do not fit, and what the driver finds wrong with the image.
    pub fn from_source(source: Arc<dyn ReadAt>, options: &OpenOptions) -> Result<Self> {
        let source: Arc<dyn ReadAt> = if options.offset == 0 && options.size.is_none() {
            source
        } else {
            let window = Window::new(source, options.offset, options.size);
            Arc::new(window.map_err(|error| Error::io(options.offset, 0, error))?)
        };
        let observer = Arc::new(Observer::new(options.events.clone()));
        let counted = Counted::new(source, BlobId::IMAGE, observer);
        let source_len = counted.len();
        let geometry = options.engine.geometry(source_len);
        // An eighth of the budget for metadata; the engine takes the rest for data.
        let metadata = MetadataSource::new(counted.clone(), geometry, options.engine.cache / 8);
        let metadata = Arc::new(metadata);
        let format = find_format(&*metadata, options.format.as_deref())?;
        let driver_source: Arc<dyn ReadAt> = Arc::<MetadataSource>::clone(&metadata);
        let fs = (format.open)(driver_source, &options.limits)?;
        let reader = Reader::new(
            fs,
            counted,
            metadata,
            options.engine.clone(),
            options.limits.clone(),
        );
        Ok(Self {
            format,
            source_len,
            reader,
        })
    }

    /// Name of the format.
    #[must_use]
    pub const fn format(&self) -> &'static str {
        self.format.name
    }

    /// Length of the source from the image's offset on, in bytes. The image may be shorter.
    #[must_use]
    pub const fn source_len(&self) -> u64 {
        self.source_len
    }

    /// What reads its files.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }
}

fn find_format(image: &dyn ReadAt, wanted: Option<&str>) -> Result<&'static Format> {
    let probe_len = formats()
        .iter()
        .map(|format| format.probe_len)
        .max()
        .unwrap_or(0);
    let mut head = vec![0; probe_len.min(saturating_usize(image.len()))];
    image
        .read_exact_at(0, &mut head)
        .map_err(|error| Error::io(0, head.len(), error))?;
    let format = match wanted {
        Some(name) => formats().iter().find(|format| format.name == name),
        None => formats().iter().find(|format| (format.probe)(&head)),
    };
    // A format asked for by name is opened whatever its magic; the driver says what is wrong.
    format.ok_or_else(|| Error::UnknownFormat {
        expected: wanted.map_or_else(
            || {
                formats()
                    .iter()
                    .map(|format| format.name)
                    .collect::<Vec<_>>()
                    .join(", ")
            },
            str::to_string,
        ),
        found: describe_head(&head),
    })
}

fn describe_head(head: &[u8]) -> String {
    let known: &[(&[u8], &str)] = &[
        (b"", "no bytes at all"),
        (b"\x7fELF", "an ELF file"),
        (b"\x1f\x8b", "a gzip file; decompress it first"),
        (b"\xfd7zXZ", "an xz file; decompress it first"),
        (b"\x28\xb5\x2f\xfd", "a zstd file; decompress it first"),
        (b"PK\x03\x04", "a zip archive"),
        (b"hsqs", "a SquashFS image"),
    ];
    let name = known.iter().find(|(magic, _)| {
        if magic.is_empty() {
            head.is_empty()
        } else {
            head.starts_with(magic)
        }
    });
    match name {
        Some((_, name)) => (*name).to_string(),
        None => format!("data that starts with {}", hex(&head[..head.len().min(8)])),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .join(" ")
}
