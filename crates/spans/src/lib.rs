//! Compressed streams, cut into spans: blocks that the engine decodes on their own.
//!
//! Archives are compressed as one stream, which its tools read from the start. [`index`] reads a stream once, in order,
//! gives the decoded bytes to its caller, and notes where decoding can start again. A driver then maps files to
//! these spans ([`Spans::map`]), as other drivers map files to compressed blocks.
//!
//! | compression | spans |
//! |---|---|
//! | gzip, bare DEFLATE | about 4 MiB of decoded bytes, from one DEFLATE block to another; with the 32 KiB before, which they refer to |
//! | Zstandard | frames |
//! | LZ4 | blocks of 256 KiB or more; of a frame whose blocks refer back about 4 MiB, with the 64 KiB before |
//! | XZ, bzip2, and longer frames of Zstandard | none: what they decode to is spooled in the first pass, and read there |
//!
//! The bytes of a stream are hostile. Memory is bounded by [`Limits::walk_bytes`](forerun_vfs::Limits::walk_bytes),
//! each span by `block_len`, and what a stream may decode to by `stream_bytes`.

mod compression;
mod cutter;
mod error;
mod failed;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gzip;
mod head;
mod history;
mod input;
mod kept;
mod lz4;
mod options;
mod pass;
mod spans;
mod spool;
mod streams;
mod zran;

pub use compression::Compression;
pub use head::head;
pub use kept::KeptSpans;
pub use options::IndexOptions;
pub use pass::{Indexed, decode, index, index_part};
pub use spans::{SPOOL, Spans};
pub use spool::Spool;
pub use zran::{ZranSpans, zran_spans};
