//! From extents to bytes: single reads, the cache of decoded blocks, and the segments read ahead.

mod assembly;
mod blobs;
mod buffer;
mod claims;
mod data;
mod decoded;
mod in_flight;
mod reader;
mod seek;
mod segment;
mod stored;

pub use assembly::Blocks;
pub use data::Data;
pub use reader::{Moves, Reader};
pub use segment::wait_slice;
