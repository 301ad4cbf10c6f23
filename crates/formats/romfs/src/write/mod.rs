//! The writer: lays the whole image out, then streams it from its first byte to its last.
//!
//! Writing starts only once everything is known to fit, and the output need not be seekable.

mod emit;
mod layout;

use std::io::Write;
use std::sync::Arc;

use forerun_build::{BuildError, KeptProperties, NodeKind, Tree};
use forerun_io::Observer;

/// The options of a romfs image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RomfsOptions {
    /// Volume name, at most 127 bytes without NUL: the Linux driver cannot mount longer ones. The same input gives the same image, so the
    /// default holds no date.
    pub volume_name: Vec<u8>,
    /// Alignment of the data of regular files in the image: a power of two from 16 (the format's
    /// own, and the default) to 65536. 4096 lets reads of pages go straight through.
    pub align: u32,
}

impl Default for RomfsOptions {
    fn default() -> Self {
        Self {
            volume_name: b"rom".to_vec(),
            align: 16,
        }
    }
}

/// The properties of nodes that an image keeps.
pub const KEPT: KeptProperties = KeptProperties {
    symlinks: true,
    special_files: true,
    hard_links: true,
    owners: false,
    xattrs: |_| false,
    special_bits: false,
    permissions: |node| {
        let executes = layout::executable(node.mode) != 0;
        match node.kind {
            NodeKind::Directory(_) | NodeKind::File { .. } if executes => 0o755,
            NodeKind::BlockDevice(_) | NodeKind::CharDevice(_) => 0o600,
            _ => 0o644,
        }
    },
    time: |time| time.seconds == 0 && time.nanoseconds == 0,
    root: false,
};

/// Writes `tree` as a romfs image, and returns its length. Owners, times, permissions other than
/// the executable bit and extended attributes have no place in the format and are left out.
///
/// # Errors
/// [`BuildError::Format`], before anything is written, for an image over 4 GiB, a file of 4 GiB or
/// more, names over 127 bytes (the Linux driver cuts them off), links over 4095 bytes, and options
/// out of their ranges. [`BuildError::Content`] if a file has changed since it was scanned, and
/// [`BuildError::Output`].
pub fn write(
    tree: &Tree,
    options: &RomfsOptions,
    out: &mut dyn Write,
    observer: &Arc<Observer>,
) -> Result<u64, BuildError> {
    let layout = layout::layout(tree, options)?;
    emit::emit(tree, options, &layout, out, observer)
}

fn cannot(reason: String) -> BuildError {
    BuildError::Format {
        format: "romfs",
        reason,
    }
}
