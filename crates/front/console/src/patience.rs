//! Waits for volumes and mounts that another process is about to release.
//!
//! umount(8) returns before the process of that mount has written the last data and released its
//! lock, and a short command holds a volume only while it reads it. Opening waits for such
//! processes. A visible mount is not about to end, so its volume is refused at once.

use std::path::Path;
use std::time::{Duration, Instant};

use forerun::unstable::locks::{InUse, Kind};
use forerun::vfs::{Error, Result};
use forerun_sys::mount_table::mounts;

/// Time for the process of an ended mount to write the volume.
const FOR_WRITERS: Duration = Duration::from_secs(10);
/// Time for a reading process to finish.
const FOR_READERS: Duration = Duration::from_secs(1);
/// Time for the threads of a dead process to end.
const FOR_THE_ENDED: Duration = Duration::from_secs(60);
/// Time for which processes that are being started may keep a mount in use: each has copies of its
/// parent's open files until its exec.
const FOR_THE_STARTED: Duration = Duration::from_millis(500);
const STEP: Duration = Duration::from_millis(5);

/// Opens a volume. Retries for a short time while another process that may be about to end holds
/// it.
pub fn patiently<T>(image: &Path, open: impl FnMut() -> Result<T>) -> Result<T> {
    let source = image.canonicalize();
    let source = source.as_deref().unwrap_or(image);
    again(open, |error| patience(error, source))
}

/// Opens a volume. Retries while the ended process that had it holds its lock: the last thread of
/// that process may hang in the device.
pub fn after_the_end<T>(open: impl FnMut() -> Result<T>) -> Result<T> {
    again(open, |error| match InUse::of(error) {
        Some(in_use) if in_use.is_lock() => FOR_THE_ENDED,
        _ => Duration::ZERO,
    })
}

/// Unmounts. Retries while the mount is in use: files that this process has closed may be open for
/// a moment in child processes that other threads are starting.
pub fn until_unused<E>(
    unmount: impl FnMut() -> std::result::Result<(), E>,
    is_busy: impl Fn(&E) -> bool,
) -> std::result::Result<(), E> {
    again(unmount, |error| {
        if is_busy(error) {
            FOR_THE_STARTED
        } else {
            Duration::ZERO
        }
    })
}

/// Retries until opening succeeds, or until `patience` with the error runs out.
fn again<T, E>(
    mut open: impl FnMut() -> std::result::Result<T, E>,
    patience: impl Fn(&E) -> Duration,
) -> std::result::Result<T, E> {
    let begun = Instant::now();
    loop {
        match open() {
            Err(error) if patience(&error) > begun.elapsed() => std::thread::sleep(STEP),
            opened => return opened,
        }
    }
}

fn patience(error: &Error, source: &Path) -> Duration {
    let Some(in_use) = InUse::of(error).filter(|in_use| in_use.is_lock()) else {
        return Duration::ZERO;
    };
    let holders = in_use.holders();
    let is_written = holders.is_empty() || holders.iter().any(|held| held.kind == Kind::Write);
    let all = mounts().unwrap_or_default();
    let mut mounted = all
        .iter()
        .filter(|entry| Path::new(&entry.source) == source);
    if mounted.any(|entry| entry.is_read_only() != is_written) {
        return Duration::ZERO;
    }
    if is_written { FOR_WRITERS } else { FOR_READERS }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_is_busy_for_a_moment_is_unmounted_and_other_errors_are_told_at_once() {
        let unmounted = |failures: &[&'static str]| {
            let mut attempts = failures.iter();
            let unmount = || attempts.next().map_or(Ok(()), |error| Err(*error));
            let result = until_unused(unmount, |error| *error == "busy");
            (result, attempts.len())
        };
        assert_eq!(unmounted(&["busy", "busy", "busy"]), (Ok(()), 0));
        assert_eq!(
            unmounted(&["busy", "not there", "busy"]),
            (Err("not there"), 1)
        );
        let busy = until_unused(|| Err("busy"), |_| true);
        assert_eq!(busy, Err("busy"));
    }
}
