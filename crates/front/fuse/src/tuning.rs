//! Constants that control what is stored in the page cache ahead of readers, and which CPU answers
//! requests.

use std::time::Duration;

/// Bytes of a chunk to store, including the page left out at its end.
pub const PIECE: u64 = 1 << 20;
/// Bytes that a reader must read sequentially before data is stored ahead of it.
pub const STORE_PROOF: u64 = 512 << 10;
/// Bytes that the kernel's own readahead has in flight when a reader is first detected.
pub const KERNEL_WINDOW: u64 = 128 << 10;
/// Number of files whose readers are remembered.
pub const STORED_FILES: usize = 32;

/// Maximum bytes to store ahead of a reader at once; at most twice as many in total.
pub const STORE_WINDOW: u64 = 4 << 20;
/// Maximum queued chunks; further ones are dropped, and the reader requests the data.
pub const WAITING_PIECES: usize = 16;
/// Bytes per store. A READ of the same pages may begin during a store and delays it. Four random
/// readers leave the queue of requests empty so rarely that with 16 KiB half of the blocks were
/// dropped.
pub const STORE_LEN: usize = 128 << 10;
/// Number of checks for conflicting READs before a store is abandoned, for threads that answer
/// requests and for the storing thread.
pub const STORE_ATTEMPTS: u32 = 8;
pub const PATIENT_ATTEMPTS: u32 = 32;
pub const STORE_PAUSE: Duration = Duration::from_micros(20);
/// Maximum number of left-out pages that are kept; the oldest are dropped first.
pub const KEPT_GAPS: usize = 128;
/// Maximum length of a read that can count as random: the kernel reads sequential data in longer
/// requests.
pub const SCATTERED_READ: u64 = 32 << 10;
/// Number of consecutive random reads after which the rest of their blocks is stored.
pub const SCATTERED_READS: u32 = 8;
/// Number of consecutive random reads without a decoded block to store, after which the search
/// ends.
pub const SCATTERED_IN_VAIN: u32 = 64;
/// Number of consecutive terminal checks followed by a READ, after which files are stored with the
/// answer to the check.
pub const ASKED_AND_READ: u32 = 4;
/// Number of files stored together with the answer to a terminal check between two probes. A
/// probe's file is not stored: a READ shows that the kernel had not cached it.
pub const ASKED_PROBE: u32 = 31;
/// Number of threads whose last terminal check is remembered.
pub const ASKED_FILES: usize = 16;
/// Number of threads of which it is remembered whether they look up what they list.
pub const LISTERS: usize = 64;
/// Number of files without attributes in each answer about the first directory that a thread lists.
pub const LISTED_PROBES: usize = 4;
/// Number of files of each directory that always have attributes. In a tree of 6,000 directories
/// with 7 files each, find takes as long with attributes as without.
pub const SHORT_LISTING: u64 = 128;
/// Number of files of one directory after which a thread that has looked up none gets names only.
/// find and du list at most 100,000 files before they look at them.
pub const LONG_LISTING: u64 = 1 << 17;
/// Number of directories whose listings of names the kernel may be told to forget. Each costs a
/// system call while a lookup waits.
pub const NAMES_ONLY: usize = 1 << 16;
/// Number of lookups in directories that others listed after which it is told so.
pub const LISTED_STRANGERS: u32 = 32;
/// How long an answer may take before all threads are called back: the maximum delay that one slow
/// answer adds to other requests.
pub const SLOW_ANSWER: Duration = Duration::from_millis(4);
/// Number of consecutive waits of `SLOW_ANSWER` without a request before all threads are called
/// back.
pub const QUIET_WAITS: u32 = 25;
/// Number of consecutive small requests of one thread before it is followed, and between lookups of
/// its CPU. A lookup costs as much as a request.
pub const REQUESTS_IN_A_ROW: u32 = 64;
/// Number of data requests between two lookups after which the thread is no longer followed.
pub const LARGE_REQUESTS: u32 = REQUESTS_IN_A_ROW / 4;
/// Maximum length of a read or write that is about as quick as a metadata request.
pub const MAX_LITTLE: u32 = 64 << 10;
/// Number of consecutive lookups that found the thread on another CPU, after which the thread is no
/// longer followed: the scheduler moves it with each answer.
pub const MIGRATIONS: u32 = 16;
/// Number of small requests for which the thread is then not followed.
pub const PAUSE: u32 = 256 * REQUESTS_IN_A_ROW;

/// How long a process that hands over a volume waits for files without a name to be closed. The
/// kernel reports the last close of a file asynchronously: milliseconds later, more on a busy
/// machine. The value only affects how long a restart takes to be refused.
pub const RELEASE_WAIT: Duration = Duration::from_secs(1);
/// Interval between checks for files without a name.
pub const RELEASE_PAUSE: Duration = Duration::from_millis(5);
