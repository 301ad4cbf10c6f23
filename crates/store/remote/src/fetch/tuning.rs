//! Constants for how much to fetch ahead of readers.

use std::time::Duration;

/// Sequential readers tracked per image.
pub const STREAMS: usize = 32;
/// First readahead window of a stream, in bytes.
pub const FIRST_WINDOW: u64 = 1 << 20;
/// Largest request with a waiting reader, in bytes. Small, so that the first chunk arrives soon.
pub const DEMAND_BYTES: u64 = 1 << 20;
/// Largest readahead request, in bytes.
pub const AHEAD_BYTES: u64 = 2 << 20;
/// Largest background request, in bytes.
pub const BACKGROUND_BYTES: u64 = 4 << 20;
/// Limit of the readahead queue, in bytes. Beyond it, the oldest readahead is dropped.
pub const AHEAD_BYTES_QUEUED: u64 = 128 << 20;
/// First pause between polls for chunks that another process fetches. It doubles up to
/// [`LONGEST_LOOK`].
pub const FIRST_LOOK: Duration = Duration::from_millis(2);
/// Longest pause between such polls.
pub const LONGEST_LOOK: Duration = Duration::from_millis(20);
/// How often to request a part of the table that does not match the root.
pub const TABLE_TRIES: usize = 3;
/// How often to fetch an image again because other processes stored wrong bytes of it.
pub const ANEW: u32 = 3;
/// Pause before failed background chunks are requested again.
pub const BACKGROUND_PAUSE: Duration = Duration::from_secs(2);
/// Within this time after a failed read, a read of the same bytes counts as repeated. The kernel
/// repeats a read within milliseconds; a user or program tries again later.
pub const REPEATED_READ: Duration = Duration::from_secs(1);
/// How long a repeated read waits. The kernel repeats one read(2) four times, and a server that is
/// back answers within this time.
pub const REPEATED_WAIT: Duration = Duration::from_millis(200);
/// Number of failed reads to remember. A mount has fewer waiting readers.
pub const FAILED_READS: usize = 256;
