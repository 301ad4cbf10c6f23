//! The constants that decide what is stored in the page cache ahead of readers, and which CPU answers.

use std::time::Duration;

/// Bytes of a piece of a file, with the gap at its end.
pub const PIECE: u64 = 1 << 20;
/// Bytes that must have been read in order before anything is stored.
pub const STORE_PROOF: u64 = 512 << 10;
/// Bytes that the kernel's own readahead has in flight when a reader is first noticed.
pub const KERNEL_WINDOW: u64 = 128 << 10;
/// Files whose readers are remembered.
pub const STORED_FILES: usize = 32;

/// Most bytes stored ahead of a reader at once, and at most twice as many in all.
pub const STORE_WINDOW: u64 = 4 << 20;
/// Pieces that may wait to be stored; more are dropped, and the reader asks for them itself.
pub const WAITING_PIECES: usize = 16;
/// Bytes that are stored at once. While they are, a READ of their pages may begin, and holds the store up. Four random
/// readers leave the queue of requests empty so seldom that with 16 KiB half of the blocks were dropped.
pub const STORE_LEN: usize = 128 << 10;
/// Looks at the requests before a store is given up: by threads that answer requests, and by the one that only stores.
pub const STORE_ATTEMPTS: u32 = 8;
pub const PATIENT_ATTEMPTS: u32 = 32;
/// The time between two of them.
pub const STORE_PAUSE: Duration = Duration::from_micros(20);
/// Pages between pieces that are kept, the oldest forgotten first.
pub const KEPT_GAPS: usize = 128;
/// Length up to which a read may be one at a random place: the kernel reads ahead more of what is read in order.
pub const SCATTERED_READ: u64 = 32 << 10;
/// Such reads in a row, none of which continues the one before, after which the rest of their blocks is stored.
pub const SCATTERED_READS: u32 = 8;
/// Such reads in a row without a decoded block whose rest could be stored, after which none is looked for.
pub const SCATTERED_IN_VAIN: u32 = 64;
/// Files in a row that a program read after it had asked whether they are terminals, before further ones
/// are stored with the answer.
pub const ASKED_AND_READ: u32 = 4;
/// Files stored so before one is left out: a READ for it shows that the kernel does not have them.
pub const ASKED_PROBE: u32 = 31;
/// Threads whose last such file is remembered.
pub const ASKED_FILES: usize = 16;
/// Time that an answer may take before all threads are back: the longest delay that one slow answer
/// adds to other requests.
pub const SLOW_ANSWER: Duration = Duration::from_millis(4);
/// Waits of that length in a row without a request before all threads are back.
pub const QUIET_WAITS: u32 = 25;
/// Small requests in a row of one thread before it is followed, and between looks at its CPU. A look
/// costs as much as a request.
pub const REQUESTS_IN_A_ROW: u32 = 64;
/// Requests that move data, between two looks, after which following stops.
pub const LARGE_REQUESTS: u32 = REQUESTS_IN_A_ROW / 4;
/// The longest read or write that is about as quick as a request for metadata.
pub const MAX_LITTLE: u32 = 64 << 10;
/// Looks in a row that found the thread on another CPU before it is left alone: the scheduler moves it
/// with each answer.
pub const MIGRATIONS: u32 = 16;
/// Small requests for which it is left alone then.
pub const PAUSE: u32 = 256 * REQUESTS_IN_A_ROW;

/// The time that a process which is to hand a volume over waits for files without a name to be closed. The kernel tells
/// of the last close of a file asynchronously: milliseconds later, more on a busy machine. Half and double
/// change how long a restart takes to be refused, and nothing else.
pub const RELEASE_WAIT: Duration = Duration::from_secs(1);
/// The time between two looks at them.
pub const RELEASE_PAUSE: Duration = Duration::from_millis(5);
