//! Where bytes come from, and what each of them costs.
//!
//! This crate sits under everything else: positional sources ([`ReadAt`]), the accounting of every
//! boundary a block crosses ([`Observer`], [`IoStats`], [`Event`]), the bounded single-flight
//! [`BlockCache`], the rule that cuts a source into blocks ([`BlockGeometry`]) and the [`Limits`]
//! that bound what hostile images may ask for.
//!
//! It knows no image format, no front end and no decompression.

mod cache;
mod device;
mod file;
mod geometry;
mod limits;
mod memory;
mod num;
mod observe;
mod output;
mod read_at;
mod stats;
mod trace;
mod window;

pub use cache::{BlockCache, BlockKey, Lookup};
pub use device::BlockDevice;
pub use file::FileSource;
pub use geometry::{BlockGeometry, LEGACY_BLOCK, page_size};
pub use limits::Limits;
pub use memory::MemorySource;
pub use num::{saturating_usize, u64_from};
pub use observe::{Counted, Observer};
pub use output::CountedWrite;
pub use read_at::{BlobId, ReadAt, past_end};
pub use stats::{Counter, IoStats, StatsSnapshot};
pub use trace::{Event, EventKind, EventLog, EventSink, Purpose};
pub use window::Window;
