//! Writes exFAT volumes.
//!
//! The writer lays out everything before it writes a byte: boot regions, FAT, bitmap, up-case
//! table, all directories, then all files. Each is contiguous, so that files and directories need
//! no FAT and reads are sequential. Free space is a hole in the image. The same tree gives the same
//! volume. The format cannot store owners, permissions except the write bit, extended attributes,
//! links and special files ([`KEPT`]).

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

/// The properties of nodes that a volume stores. It stores one permission bit, and mount masks
/// supply the rest: the usual modes are not reported as lost.
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
/// [`BuildError::Format`], before anything is written, for invalid options, a size that is too
/// small, directories over 256 MiB, and names that the format cannot store or distinguish; the
/// error lists these names. [`BuildError::Content`] if a file cannot be read or has changed since
/// the scan.
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
