//! Volumes and mounts that another process is about to release.
//!
//! umount(8) returns before the process of that mount has written the last data and released its lock;
//! a short command holds a volume only while it reads it. Such a process is waited for. A mount that is
//! visible is not about to end, so its volume is refused at once.

use std::path::Path;
use std::time::{Duration, Instant};

use forerun::unstable::locks::{InUse, Kind};
use forerun::vfs::{Error, Result};
use forerun_sys::mount_table::mounts;

/// How long the volume of a mount that is gone may take to be written.
const FOR_WRITERS: Duration = Duration::from_secs(10);
/// How long a process that reads may take.
const FOR_READERS: Duration = Duration::from_secs(1);
/// How long the threads of a process that has ended may take.
const FOR_THE_ENDED: Duration = Duration::from_secs(60);
/// How long a mount may stay in use by processes that are being started: one has copies of the open files of
/// the program that started it until it runs a program of its own.
const FOR_THE_STARTED: Duration = Duration::from_millis(500);
/// From one attempt to the next.
const STEP: Duration = Duration::from_millis(5);

/// Opens a volume, and retries for a short time while another process that may be about to end holds it.
pub fn patiently<T>(image: &Path, open: impl FnMut() -> Result<T>) -> Result<T> {
    let source = image.canonicalize();
    let source = source.as_deref().unwrap_or(image);
    again(open, |error| patience(error, source))
}

/// Opens a volume, again and again while the process that had it, and has ended, holds its lock. The lock
/// goes with the last thread of that process, which may hang in the device.
pub fn after_the_end<T>(open: impl FnMut() -> Result<T>) -> Result<T> {
    again(open, |error| match InUse::of(error) {
        Some(in_use) if in_use.is_lock() => FOR_THE_ENDED,
        _ => Duration::ZERO,
    })
}

/// Unmounts, again and again while that fails because the mount is in use. Files that this caller has closed may
/// be open for a moment in processes that its other threads are starting.
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

/// Returns how long to wait after this error.
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
