//! The Rust part of the Python library: `forerun._forerun`.
//!
//! Classes here hold open images and move bytes; the package in `forerun/` is what Python programs
//! see. Three rules apply everywhere:
//!
//! - Code that may read, decode or wait runs without the interpreter's lock.
//! - Each of our own locks is either taken and released while the interpreter's lock is held, or
//!   taken before the interpreter's lock and released after it. So no two threads wait for each
//!   other, and no process is forked while another thread holds a lock of the first kind.
//! - A forked process shares no threads with its parent. It opens again what it finds open
//!   (`handle.rs`), and never drops what the parent's threads use.

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

/// The extension module of the package `forerun`.
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
