//! The constants that decide how much is read ahead, kept and forgotten.

/// Sequential readers remembered for each image.
pub const STREAMS: usize = 64;
/// Streams that may have the full window; more of them share its memory.
pub const STREAMS_AT_FULL_WINDOW: usize = 8;
/// Bytes of the first window of a stream.
pub const FIRST_WINDOW: u64 = 128 << 10;
/// Bytes of a first read at the start of a file from which on it begins a stream.
pub const TRUSTED_READ: u64 = 64 << 10;
/// Bytes of a read from which on its reader has several such reads in flight, as the kernel's readahead
/// has in a mount.
pub const LONG_READ: u64 = 512 << 10;
/// Long reads of one file that the kernel has in flight: so many CPUs decode in the threads that answer.
pub const READS_IN_FLIGHT: usize = 4;
