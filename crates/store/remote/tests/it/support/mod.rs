//! Helpers that the tests against real servers share: an image of noise, options without patience,
//! and reads that are compared and timed.

mod clock;
mod served;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forerun_io::ReadAt;
use forerun_remote::{Reference, RemoteImage, RemoteOptions, open};
use forerun_testkit::rng::Rng;

pub use clock::{while_running, worked};
pub use served::{Proxied, Served, name_at, push_to, pushed};

/// Longest time a reader waits. Machines that test are busy: faults of half a second must fit several
/// times.
pub const TIMEOUT: Duration = Duration::from_secs(4);
/// Patience where a fault comes once and must be mended: more than a busy machine can use up. Where
/// faults do not end it is [`TIMEOUT`], which they do use up.
pub const PATIENT: Duration = Duration::from_secs(20);
/// Extra time that a busy machine may take.
pub const SLACK: Duration = Duration::from_secs(6);

/// Returns bytes that do not compress and do not repeat.
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Returns options with a cache of the test's own.
pub fn options(cache: &Path) -> RemoteOptions {
    let mut options = RemoteOptions {
        cache_dir: Some(cache.to_path_buf()),
        timeout: TIMEOUT,
        stall: Duration::from_millis(500),
        connect_timeout: Duration::from_millis(500),
        ..RemoteOptions::default()
    };
    options.registry.auth_files = Some(Vec::new());
    options.registry.timeout = Duration::from_millis(500);
    options.registry.backoff = Duration::from_millis(20);
    options
}

/// Opens, in no more than the time that opening may take. Returns the text of the error where it fails.
pub fn try_open(text: &str, options: &RemoteOptions) -> Result<Arc<RemoteImage>, String> {
    let start = worked();
    let reference = Reference::parse(text).map_err(|error| error.to_string())?;
    let opened = open(&reference, options).map_err(|error| error.to_string());
    let took = worked() - start;
    assert!(took < options.timeout + SLACK, "opening took {took:?}");
    opened
}

/// Reads and compares. Returns the text of the error where that fails; wrong bytes and readers that wait
/// for too long fail the test.
pub fn try_read(
    image: &RemoteImage,
    bytes: &[u8],
    at: usize,
    len: usize,
    timeout: Duration,
) -> Result<(), String> {
    let start = worked();
    let mut out = vec![0; len];
    let read = image.read_exact_at(u64::try_from(at).unwrap(), &mut out);
    let took = worked() - start;
    assert!(
        took < timeout + SLACK,
        "a read of {len} bytes at {at} took {took:?}"
    );
    match read {
        Ok(()) => {
            assert!(out == bytes[at..at + len], "WRONG BYTES: {len} at {at}");
            Ok(())
        }
        Err(error) => {
            let text = error.to_string();
            assert!(text.len() > 10, "says too little: {text}");
            Err(text)
        }
    }
}

/// Reads and compares, where nothing may fail.
pub fn read(image: &RemoteImage, bytes: &[u8], at: usize, len: usize) {
    if let Err(error) = while_running(|| try_read(image, bytes, at, len, TIMEOUT)) {
        panic!("{len} bytes at {at}: {error}");
    }
}
