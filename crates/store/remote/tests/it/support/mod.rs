//! Helpers that the tests against real servers share: an image of noise, options without patience,
//! and reads that are compared and timed.

mod clock;
mod served;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forerun_io::ReadAt;
use forerun_remote::{Reference, RemoteImage, RemoteOptions, open};
use forerun_testkit::eventually;
use forerun_testkit::rng::Rng;

pub use clock::worked;
pub use served::{Proxied, Served, name_at, push_to, pushed};

/// Time limit of readers where no bytes come: the tests use it up.
pub const TIMEOUT: Duration = Duration::from_secs(4);
/// Time limit where bytes come: more than a busy machine can use up.
pub const PATIENT: Duration = Duration::from_secs(60);
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

/// Returns options with a cache of the test's own, and with time limits that only a defect reaches.
pub fn options(cache: &Path) -> RemoteOptions {
    let mut options = RemoteOptions {
        cache_dir: Some(cache.to_path_buf()),
        timeout: PATIENT,
        stall: PATIENT,
        connect_timeout: PATIENT,
        ..RemoteOptions::default()
    };
    options.registry.auth_files = Some(Vec::new());
    options.registry.timeout = PATIENT;
    options.registry.backoff = Duration::from_millis(20);
    options
}

/// Shortens the time limits, for servers that never answer.
pub fn impatient(mut options: RemoteOptions) -> RemoteOptions {
    let brief = Duration::from_millis(500);
    options.timeout = TIMEOUT;
    options.stall = brief;
    options.connect_timeout = brief;
    options.registry.timeout = brief;
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
    if let Err(error) = try_read(image, bytes, at, len, PATIENT) {
        panic!("{len} bytes at {at}: {error}");
    }
}

/// Reads and compares until that succeeds: a chunk that has just failed is waited for only a moment.
pub fn read_at_last(image: &RemoteImage, bytes: &[u8], at: usize, len: usize) {
    eventually("the bytes come", || {
        try_read(image, bytes, at, len, PATIENT).is_ok()
    });
}
