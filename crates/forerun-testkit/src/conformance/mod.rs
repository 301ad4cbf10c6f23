//! The contracts of the seam as tests: one suite for every [`FileSystem`](forerun_vfs::FileSystem),
//! one for every [`ReadAt`](forerun_io::ReadAt).
//!
//! Both panic at the first breach, saying which node or range it was. They judge images and sources
//! that are sound; hostile ones are each driver's own tests.

mod extents;
mod filesystem;
mod names;
mod source;

pub use filesystem::check_filesystem;
pub use source::check_source;
