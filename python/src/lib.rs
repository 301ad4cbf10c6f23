//! The library for Python: the part in Rust, `forerun._forerun`.
//!
//! Classes here hold open images and move bytes; how they look to a Python program is the package in
//! `forerun/`. Three rules hold everywhere:
//!
//! - Whatever may read, decode or wait runs without the interpreter's lock.
//! - A lock of ours is taken with the interpreter's lock held and given back before that is released, or the
//!   other way round; no lock is held across both. So no two threads wait for each other, and no process is forked
//!   while another thread holds one of the first kind.
//! - A process that was forked shares no thread with its parent. What it finds open, it opens anew (`handle.rs`),
//!   and it never drops what the parent's threads work with.

mod at_exit;
mod contents;
mod entries;
mod errors;
mod export;
mod extents;
mod file;
mod handle;
mod image;
mod interruptible;
mod mounts;
mod options;
mod pack;
mod path;
mod read_many;
mod source;
mod stat;

use pyo3::pymodule;

/// The module below the package `forerun`.
#[pymodule]
mod _forerun {
    #[pymodule_export]
    use crate::entries::{Entries, Entry};
    #[pymodule_export]
    use crate::extents::Extent;
    #[pymodule_export]
    use crate::file::RawFile;
    #[pymodule_export]
    use crate::image::{Image, format_names};
    #[pymodule_export]
    use crate::mounts::Mount;
    #[pymodule_export]
    use crate::pack::{pack, packable_formats};
    #[pymodule_export]
    use crate::read_many::ReadMany;
    #[pymodule_export]
    use crate::stat::Stat;
}
