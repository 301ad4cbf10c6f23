//! From extents to bytes: the assembly of a read, the cache of decoded blocks, and the segments read ahead.

mod around;
mod assembly;
mod blobs;
mod buffer;
mod claims;
mod data;
mod decoded;
mod in_flight;
mod moves;
mod segment;
mod stored;

pub use assembly::{Assembly, Blocks};
pub use blobs::BlobTable;
pub use data::Data;
pub use decoded::{Allowance, Block, Decoded};
pub use moves::Moves;
pub use stored::{Stored, Use};
