//! Helpers of the tests against real servers: an image of noise, options with short timeouts, and
//! reads that are compared and timed.

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

/// Time limit of readers if no bytes arrive. The tests wait for it.
pub const TIMEOUT: Duration = Duration::from_secs(4);
/// Time limit if bytes arrive: more than a busy machine needs.
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

/// Returns options with a cache for this test, and with time limits that only a defect reaches.
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

/// Opens an image and checks that this does not take too long. Returns an error as text.
pub fn try_open(text: &str, options: &RemoteOptions) -> Result<Arc<RemoteImage>, String> {
    let start = worked();
    let reference = Reference::parse(text).map_err(|error| error.to_string())?;
    let opened = open(&reference, options).map_err(|error| error.to_string());
    let took = worked() - start;
    assert!(took < options.timeout + SLACK, "opening took {took:?}");
    opened
}

/// Reads and compares. Returns an error as text. Wrong bytes and too long waits fail the test.
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

/// Reads and compares. Any error fails the test.
pub fn read(image: &RemoteImage, bytes: &[u8], at: usize, len: usize) {
    if let Err(error) = try_read(image, bytes, at, len, PATIENT) {
        panic!("{len} bytes at {at}: {error}");
    }
}

/// Reads and compares until it succeeds, because a read of a chunk that has just failed waits only
/// briefly.
pub fn read_at_last(image: &RemoteImage, bytes: &[u8], at: usize, len: usize) {
    eventually("the bytes come", || {
        try_read(image, bytes, at, len, PATIENT).is_ok()
    });
}
