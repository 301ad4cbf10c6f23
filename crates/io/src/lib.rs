//! Sources of bytes, and the accounting of what each request costs.
//!
//! All other crates use this one: positional sources ([`ReadAt`]), the accounting of each boundary
//! that a block crosses ([`Observer`], [`IoStats`], [`Event`]), the bounded single-flight
//! [`BlockCache`], the division of a source into blocks ([`BlockGeometry`]) and the [`Limits`] on
//! hostile images. A writable store is a [`BlockDevice`]; [`WriteBack`] keeps changed metadata
//! until it is committed, and an [`UndoDevice`] saves old bytes before they are overwritten.
//! [`wait`] limits how long a thread waits for a source.
//!
//! This crate knows no image format, no front end and no decompression.

mod aligned;
mod cache;
mod causes;
mod counted_device;
mod device;
mod direct;
mod file;
mod file_device;
mod geometry;
mod limits;
mod memory;
mod memory_device;
mod num;
mod observe;
mod output;
mod output_file;
mod read_at;
mod sequential;
mod stats;
mod trace;
mod undo;
mod unpoisoned;
pub mod wait;
mod weighed_cache;
mod window;
mod write_back;

pub use aligned::{ALIGNMENT, AlignedBuffer};
pub use cache::{BlockCache, BlockKey, Lookup};
pub use causes::causes;
pub use counted_device::CountedDevice;
pub use device::BlockDevice;
pub use direct::LEAST as LEAST_DIRECT;
pub use file::FileSource;
pub use file_device::FileDevice;
pub use geometry::{BlockGeometry, LEGACY_BLOCK, page_size};
pub use limits::Limits;
pub use memory::MemorySource;
pub use memory_device::MemoryDevice;
pub use num::{u16_from, u32_from, u64_from, usize_from};
pub use observe::{Counted, Observer, Timer};
pub use output::CountedWrite;
pub use output_file::OutputFile;
pub use read_at::{BlobId, Pattern, ReadAt, past_end};
pub use sequential::{SequentialStreams, SequentialWindow, Step, WindowRules};
pub use stats::{Counter, IoStats, StatsSnapshot};
pub use trace::{Event, EventKind, EventLog, EventSink, Purpose, Structure, StructureName};
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub use undo::fuzzing as undo_fuzzing;
pub use undo::{Restored, UndoDevice, UndoError, UndoFile, UndoLog};
pub use unpoisoned::Unpoisoned;
pub use weighed_cache::{Weighed, WeighedCache};
pub use window::Window;
pub use write_back::{CommitError, CommitOrder, Group, WriteBack};
