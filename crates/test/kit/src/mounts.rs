//! Ending what a test has mounted.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::children;

/// How long others may keep a mount busy.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs umount(8) until it succeeds. A program that looks at all mounts of a machine, such as a
/// file manager or another test, keeps each of them busy for a moment. A mount that stays busy is
/// detached, so that it does not disturb what follows. Returns whether umount(8) succeeded.
///
/// # Panics
/// Where umount(8) cannot be run.
#[must_use]
pub fn unmount(mount: &Path) -> bool {
    let umount = |lazily: &[&str]| {
        let mut umount = Command::new("umount");
        umount.args(lazily).arg(mount);
        children::output(&mut umount).unwrap().status.success()
    };
    let start = Instant::now();
    while start.elapsed() < BUSY_TIMEOUT {
        if umount(&[]) {
            return true;
        }
        thread::sleep(Duration::from_millis(100));
    }
    let _so_that_nothing_stays = umount(&["--lazy"]);
    false
}
