//! The constants that decide what is stored in the page cache ahead of readers.

/// Bytes of a piece of a file, with the gap at its end.
pub const PIECE: u64 = 1 << 20;
/// Bytes that must have been read in order before anything is stored.
pub const STORE_PROOF: u64 = 512 << 10;
/// Bytes that the kernel's own readahead has in flight when a reader is first noticed.
pub const KERNEL_WINDOW: u64 = 128 << 10;
/// Files whose readers are remembered.
pub const STORED_FILES: usize = 32;
