//! The constants that decide how much is fetched ahead of readers.

use std::time::Duration;

/// Sequential readers remembered for each image.
pub const STREAMS: usize = 32;
/// Bytes of the first window of a stream.
pub const FIRST_WINDOW: u64 = 1 << 20;
/// Most bytes of one request that a reader waits for: small, so that its first chunk comes soon.
pub const DEMAND_BYTES: u64 = 1 << 20;
/// Most bytes of one request ahead of readers.
pub const AHEAD_BYTES: u64 = 2 << 20;
/// Most bytes of one request in the background.
pub const BACKGROUND_BYTES: u64 = 4 << 20;
/// Bytes that may wait to be read ahead; beyond that the oldest are dropped.
pub const AHEAD_BYTES_QUEUED: u64 = 128 << 20;
/// First pause between polls for the chunks of another process; doubled up to the longest.
pub const FIRST_LOOK: Duration = Duration::from_millis(2);
/// Longest pause between such polls.
pub const LONGEST_LOOK: Duration = Duration::from_millis(20);
/// How often a part of the table that does not lead to the root is requested.
pub const TABLE_TRIES: usize = 3;
/// How often an image is fetched again from its beginning because other processes have stored wrong bytes of it.
pub const ANEW: u32 = 3;
/// How long background chunks are left alone after they could not be fetched.
pub const BACKGROUND_PAUSE: Duration = Duration::from_secs(2);
/// Time after a read has failed in which another one of the same bytes counts as repeated. The kernel
/// repeats it within milliseconds; a user or a program that tries again comes later.
pub const REPEATED_READ: Duration = Duration::from_secs(1);
/// Time that a repeated read waits: the kernel makes four of one read(2), and a server that is back
/// answers within this time.
pub const REPEATED_WAIT: Duration = Duration::from_millis(200);
/// Failed reads that are remembered: more than a mount has readers that wait.
pub const FAILED_READS: usize = 256;
