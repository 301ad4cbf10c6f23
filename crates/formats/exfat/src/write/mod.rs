//! Writing of exFAT volumes.
//!
//! Everything is laid out before a byte is written: boot regions, FAT, bitmap, up-case table, all
//! directories, then all files. Each is in adjacent clusters, so that files and directories need no FAT
//! and reads are sequential. Free space is a hole in the image. The same tree gives the same volume.
//! The format has no place for owners, permissions except the write bit, extended attributes, links and
//! special files ([`KEPT`]).

mod directories;
mod emit;
mod geometry;
mod head;
mod names;
mod options;
mod plan;

use std::sync::Arc;

use forerun_build::{BuildError, ImageOutput, KeptProperties, Tree};
use forerun_io::Observer;

use crate::default_upcase;

pub use options::ExfatOptions;

use self::directories::Directories;
use self::geometry::Geometry;
use self::plan::Plan;

/// The properties of nodes that a volume keeps. Of permissions it keeps one bit, and the masks of a mount
/// make the rest: the usual modes are not called lost.
pub const KEPT: KeptProperties = KeptProperties {
    symlinks: false,
    special_files: false,
    hard_links: false,
    owners: false,
    xattrs: |_| false,
    special_bits: false,
    permissions: |node| match node.mode & 0o777 {
        usual @ (0o444 | 0o555 | 0o644 | 0o755) => usual,
        _ => 0o755,
    },
    time: crate::time::can_keep,
    root: false,
};

/// Writes `tree` as an exFAT volume, and returns its length.
///
/// # Errors
/// [`BuildError::Format`], before anything is written, for options out of their ranges, a size that
/// is too small, directories over 256 MiB, and names that the format cannot hold or tell apart, all
/// of them listed. [`BuildError::Content`] if a file cannot be read or has changed since it was
/// scanned, and [`BuildError::Output`].
pub fn write(
    tree: &Tree,
    options: &ExfatOptions,
    out: &mut dyn ImageOutput,
    observer: &Arc<Observer>,
) -> Result<u64, BuildError> {
    options.validate()?;
    let upcase = default_upcase::table();
    let plan = Plan::new(tree, options, &upcase)?;
    let geometry = Geometry::new(options, &plan, default_upcase::LEN)?;
    let directories = Directories::new(tree, options, &plan, &geometry, &upcase)?;
    emit::emit(
        tree,
        options,
        &plan,
        &geometry,
        directories,
        (out, observer),
    )
}

fn cannot(reason: String) -> BuildError {
    BuildError::Format {
        format: "exfat",
        reason,
    }
}
