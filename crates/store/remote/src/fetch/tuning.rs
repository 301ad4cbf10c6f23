//! The constants that decide how much is fetched ahead of readers.

use std::time::Duration;

/// Sequential readers remembered for each image.
pub const STREAMS: usize = 32;
/// Bytes of the first window of a stream.
pub const FIRST_WINDOW: u64 = 1 << 20;
/// Most bytes of one request that a reader waits for; small, so that the first chunk arrives soon.
pub const DEMAND_BYTES: u64 = 1 << 20;
/// Most bytes of one request ahead of readers.
pub const AHEAD_BYTES: u64 = 2 << 20;
/// Most bytes of one request in the background.
pub const BACKGROUND_BYTES: u64 = 4 << 20;
/// Bytes that may be queued for readahead; beyond that, the oldest are dropped.
pub const AHEAD_BYTES_QUEUED: u64 = 128 << 20;
/// First pause between polls for the chunks of another process; doubled up to [`LONGEST_LOOK`].
pub const FIRST_LOOK: Duration = Duration::from_millis(2);
/// Longest pause between such polls.
pub const LONGEST_LOOK: Duration = Duration::from_millis(20);
/// How often to request a part of the table that does not match the root.
pub const TABLE_TRIES: usize = 3;
/// How often to fetch an image again from the start because other processes have stored wrong bytes of it.
pub const ANEW: u32 = 3;
/// Pause before background chunks that could not be fetched are tried again.
pub const BACKGROUND_PAUSE: Duration = Duration::from_secs(2);
/// Time after a failed read in which a read of the same bytes counts as repeated. The kernel repeats a read
/// within milliseconds; a user or program tries again later.
pub const REPEATED_READ: Duration = Duration::from_secs(1);
/// Time that a repeated read waits. The kernel repeats one read(2) four times, and a server that is back
/// answers within this time.
pub const REPEATED_WAIT: Duration = Duration::from_millis(200);
/// Number of failed reads to remember: more than a mount has waiting readers.
pub const FAILED_READS: usize = 256;
