//! What the registry knows of a format.

use std::sync::Arc;

use forerun_io::{Limits, ReadAt};

use crate::{FileSystem, Result};

/// Opens an image for reading. `metadata` is the image as metadata is read: cached in blocks.
pub type OpenFormat = fn(metadata: Arc<dyn ReadAt>, limits: &Limits) -> Result<Arc<dyn FileSystem>>;

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
