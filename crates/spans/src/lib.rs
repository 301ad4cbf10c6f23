//! Compressed streams, divided into spans: blocks that the engine can decode on their own.
//!
//! An archive is compressed as one stream, which its tools read from the start. [`index`] reads a
//! stream once, in order, passes the decoded bytes to its caller, and records where decoding can
//! start again. A driver then maps files to these spans ([`Spans::map`]), as other drivers map
//! files to compressed blocks.
//!
//! | compression | spans |
//! |---|---|
//! | gzip, raw DEFLATE | about 4 MiB of decoded bytes, from one DEFLATE block to another; they refer to the 32 KiB before them |
//! | Zstandard | frames |
//! | LZ4 | blocks of 256 KiB or more; in a frame whose blocks refer back about 4 MiB, which refer to the 64 KiB before them |
//! | XZ, bzip2, and longer frames of Zstandard | none: the first pass writes the decoded bytes to a temporary file (the spool), from which they are read |
//!
//! Streams are hostile input. [`Limits::walk_bytes`](forerun_vfs::Limits::walk_bytes) bounds
//! memory, `block_len` the length of a span, and `stream_bytes` the decoded length of a stream.

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
