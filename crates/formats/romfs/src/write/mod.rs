//! The writer: lays out the whole image, then streams it from its first byte to its last.
//!
//! Writing starts only when everything is known to fit, and the output need not be seekable.

mod emit;
mod layout;

use std::io::Write;
use std::sync::Arc;

use forerun_build::{BuildError, KeptProperties, NodeKind, Tree};
use forerun_io::Observer;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RomfsOptions {
    /// Volume name, at most 127 bytes without NUL, because the Linux driver cannot mount longer
    /// ones. The default contains no date, so that the same input gives the same image.
    pub volume_name: Vec<u8>,
    /// Alignment of the data of regular files in the image: a power of two from 16 (the format's
    /// own, and the default) to 65536. With 4096, reads of pages are aligned.
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

/// Writes `tree` as a romfs image, and returns its length. The format cannot store owners, times,
/// extended attributes, and permissions other than the executable bit; these are left out.
///
/// # Errors
/// [`BuildError::Format`], before anything is written, for an image over 4 GiB, a file of 4 GiB or
/// more, names over 127 bytes (the Linux driver truncates them), links over 4095 bytes, and options
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
