//! The constants that decide how much is fetched ahead of readers.

/// Sequential readers remembered for each image.
pub const STREAMS: usize = 32;
/// Bytes of the first window of a stream.
pub const FIRST_WINDOW: u64 = 1 << 20;
