//! romfs: the driver and the writer.

use std::io::Write;
use std::sync::Arc;

use forerun_engine::build::{BuildError, Tree};
use forerun_io::{Limits, Observer, ReadAt};
use forerun_vfs::{FileSystem, Format, Result};

/// romfs in the registry.
pub const FORMAT: Format = Format {
    name: "romfs",
    probe_len: 16,
    probe: |head| head.starts_with(b"-rom1fs-"),
    open,
};

fn open(_metadata: Arc<dyn ReadAt>, _limits: &Limits) -> Result<Arc<dyn FileSystem>> {
    Err(forerun_vfs::Error::Unsupported("romfs".into()))
}

/// How a romfs image is made.
#[derive(Clone, Debug)]
pub struct RomfsOptions {
    /// Volume name; the writer truncates nothing, too long is an error.
    pub volume_name: Vec<u8>,
    /// Alignment of the data of regular files, a power of two from 16 up.
    pub align: u32,
}

/// See `forerun::Writer::write`.
///
/// # Errors
/// [`BuildError`].
pub fn write(
    _: &Tree,
    _: &RomfsOptions,
    _: &mut dyn Write,
    _: &Arc<Observer>,
) -> Result<u64, BuildError> {
    Err(BuildError::Format {
        format: "romfs",
        reason: "not yet".into(),
    })
}
