//! The constants that decide what is stored in the page cache ahead of readers, and which CPU answers.

/// Bytes of a piece of a file, with the gap at its end.
pub const PIECE: u64 = 1 << 20;
/// Bytes that must have been read in order before anything is stored.
pub const STORE_PROOF: u64 = 512 << 10;
/// Bytes that the kernel's own readahead has in flight when a reader is first noticed.
pub const KERNEL_WINDOW: u64 = 128 << 10;
/// Files whose readers are remembered.
pub const STORED_FILES: usize = 32;

/// Small requests in a row of one thread before it is followed, and between looks at its CPU. A look
/// costs as much as a request.
pub const REQUESTS_IN_A_ROW: u32 = 64;
/// Requests that move data, between two looks, after which following stops.
pub const LARGE_REQUESTS: u32 = REQUESTS_IN_A_ROW / 4;
/// Looks in a row that found the thread on another CPU before it is left alone: the scheduler moves it
/// with each answer.
pub const MIGRATIONS: u32 = 16;
/// Small requests for which it is left alone then.
pub const PAUSE: u32 = 256 * REQUESTS_IN_A_ROW;
