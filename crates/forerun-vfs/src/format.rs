//! What the registry knows of a format.

use std::sync::Arc;

use forerun_io::{Limits, Observer, ReadAt};

use crate::{FileSystem, NoBlobs, ResolveBlob, Result, Verity};

/// What a driver is opened with.
#[derive(Clone)]
pub struct OpenWith {
    /// The image as metadata is read: cached in blocks of the source.
    pub metadata: Arc<dyn ReadAt>,
    /// Bounds on what the image may ask for.
    pub limits: Limits,
    /// Who counts what the driver decodes of its metadata.
    pub observer: Arc<Observer>,
    /// Bytes that the driver may keep of decoded metadata.
    pub cache: u64,
    /// Who opens the data that the image keeps elsewhere.
    pub blobs: Arc<dyn ResolveBlob>,
    /// What is done with the digests of that data.
    pub verity: Verity,
}

impl OpenWith {
    /// Bytes of decoded metadata kept where the caller has no budget of its own.
    pub const CACHE: u64 = 32 << 20;

    /// The default limits and budget, and nobody else to look at the counters.
    #[must_use]
    pub fn new(metadata: Arc<dyn ReadAt>) -> Self {
        Self {
            metadata,
            limits: Limits::default(),
            observer: Arc::default(),
            cache: Self::CACHE,
            blobs: Arc::new(NoBlobs),
            verity: Verity::default(),
        }
    }
}

impl std::fmt::Debug for OpenWith {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenWith")
            .field("len", &self.metadata.len())
            .field("limits", &self.limits)
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// Opens an image for reading.
pub type OpenFormat = fn(with: OpenWith) -> Result<Arc<dyn FileSystem>>;

/// A format as the registry sees it: how to tell it, how to open it. A table entry, not a trait:
/// the set of formats is closed and listed in one place.
#[derive(Clone, Copy)]
pub struct Format {
    /// Name, as `--format` takes it and `info` prints it.
    pub name: &'static str,
    /// Bytes from the start of the image that [`probe`](Self::probe) wants to see; it gets fewer
    /// where the image is shorter.
    pub probe_len: usize,
    /// Whether the image claims to be of this format. Cheap; looks at magic numbers only.
    pub probe: fn(head: &[u8]) -> bool,
    /// Opens the image for reading.
    pub open: OpenFormat,
}

impl std::fmt::Debug for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Format")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
