//! Mounts and loop devices of tests, and how they end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::children;
use crate::everything::run;

/// How long other processes may keep a mount busy.
const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs umount(8) until it succeeds. A program that examines all mounts of a machine, such as a
/// file manager or another test, keeps each of them busy for a moment. A mount that stays busy is
/// detached, so that it does not disturb later tests. Returns whether umount(8) succeeded.
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

#[derive(Debug)]
pub struct LoopDevice(pub PathBuf);

impl LoopDevice {
    /// Attaches a file with losetup(8).
    #[must_use]
    pub fn new(file: &Path, options: &[&str]) -> Self {
        let mut losetup = Command::new("losetup");
        let attached = run(losetup.args(["--find", "--show"]).args(options).arg(file));
        Self(PathBuf::from(attached.trim()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let mut losetup = Command::new("losetup");
        let detached = children::output(losetup.arg("--detach").arg(&self.0)).unwrap();
        assert!(
            detached.status.success() || thread::panicking(),
            "{detached:?}"
        );
    }
}

#[derive(Debug)]
pub struct Mounted {
    pub path: PathBuf,
}

impl Mounted {
    #[must_use]
    pub fn new(kind: &str, options: &str, source: &Path, path: PathBuf) -> Self {
        let mut mount = Command::new("mount");
        Self::by(mount.args(["-t", kind, "-o", options]).arg(source), path)
    }

    /// Mounts an image with exfat-fuse, which writes the last changes when the loop device is
    /// detached.
    #[must_use]
    pub fn exfat_fuse(
        image: &Path,
        path: PathBuf,
        options: &str,
        losetup: &[&str],
    ) -> (Self, LoopDevice) {
        let device = LoopDevice::new(image, losetup);
        let mut mount = Command::new("mount.exfat-fuse");
        (
            Self::by(mount.args(["-o", options]).arg(&device.0), path),
            device,
        )
    }

    fn by(mount: &mut Command, path: PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        run(mount.arg(&path));
        Self { path }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        assert!(unmount(&self.path) || thread::panicking());
    }
}
