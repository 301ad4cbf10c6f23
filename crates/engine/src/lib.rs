//! Moves the blocks that drivers map. Knows no format, no FUSE and no errno.
//!
//! [`Reader`] turns the extents of a [`FileSystem`](forerun_vfs::FileSystem) into bytes: demand
//! reads, readahead, the decode cache, bulk streams. A driver reads its metadata through
//! [`MetadataSource`].
//!
//! Uses threads and no async runtime.

mod ahead;
mod metadata;
mod options;
mod pool;
mod read;
mod reader;
mod recent;
mod tuning;
mod volume;
mod waiting;

pub use metadata::MetadataSource;
pub use options::{EngineOptions, MemoryUse};
pub use read::Data;
pub use reader::{Asked, Bulk, FilePlace, GroupBlock, Reader, Sink, TakenFile};
pub use volume::Volume;
