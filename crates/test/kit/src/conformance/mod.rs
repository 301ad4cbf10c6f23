//! The contracts of the core traits as tests: one suite for every
//! [`FileSystem`](forerun_vfs::FileSystem), one for every
//! [`FileSystemMut`](forerun_vfs::FileSystemMut), one for every [`ReadAt`](forerun_io::ReadAt).
//!
//! All panic at the first violation, with the node or range. They test valid images and sources;
//! each driver has its own tests of hostile ones.

mod extents;
mod faults;
mod filesystem;
mod names;
mod source;
mod volume;
mod volume_files;

pub use faults::check_faults;
pub use filesystem::check_filesystem;
pub use names::check_names;
pub use source::check_source;
pub use volume::check_filesystem_mut;
