//! Moves the blocks that drivers map, and knows no format.
//!
//! [`Reader`] turns the extents of a [`FileSystem`](forerun_vfs::FileSystem) into bytes: demand
//! reads, readahead, the decode cache, bulk streams. [`MetadataSource`] is what a driver reads its
//! metadata through.
//!
//! Threads, no async runtime; nothing here knows FUSE or errno.

mod ahead;
mod assembly;
mod blobs;
mod buffer;
mod bulk;
mod data;
mod decoded;
mod in_flight;
mod metadata_source;
mod options;
mod pool;
mod reader;
mod recent;
mod segment;
mod stored;
mod stream;
mod tree_ahead;
mod volume;
mod walk_ahead;
mod xattr_scan;

pub use bulk::{Bulk, Taken};
pub use data::Data;
pub use metadata_source::MetadataSource;
pub use options::{EngineOptions, MemoryUse};
pub use reader::Reader;
pub use volume::Volume;
