//! An image mounted by forerun for one measurement, and what its daemon counted.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{MOUNT_TIMEOUT, REMOTE_TIMEOUT, unmount, unmount_by, wait_for_mount};
use crate::active::temp_dir;
use crate::counters::{Counters, parse};
use crate::process::{self, Running};
use crate::run::peak_of;

/// How an image is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// As another user, by fusermount3, and not as root.
    pub rootless: bool,
    /// The mount option `largeblocks` or `nolargeblocks`.
    pub large_blocks: bool,
}

impl Access {
    /// As root, with large blocks.
    pub const ROOT: Self = Self {
        rootless: false,
        large_blocks: true,
    };

    /// Returns the name in tables.
    #[must_use]
    pub fn name(self) -> String {
        format!("{} mount, {}", self.user(), self.option())
    }

    /// Returns the name of the user who mounts.
    #[must_use]
    pub const fn user(self) -> &'static str {
        match self.rootless {
            true => "rootless",
            false => "root",
        }
    }

    /// Returns the mount option.
    #[must_use]
    pub const fn option(self) -> &'static str {
        match self.large_blocks {
            true => "largeblocks",
            false => "nolargeblocks",
        }
    }

    /// Returns a command that runs as the user who mounts: without `allow_other`, no other user may
    /// look in.
    #[must_use]
    pub fn command(self, program: &Path) -> Command {
        if !self.rootless || !rustix::process::geteuid().is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(program);
        command
    }

    /// Returns whether mount(2) and umount(2) are allowed.
    fn is_root(self) -> bool {
        !self.rootless && rustix::process::geteuid().is_root()
    }
}

/// A mounted image; unmounted when dropped.
#[derive(Debug)]
pub struct Mounted {
    access: Access,
    forerun: PathBuf,
    daemon: Running,
    dir: TempDir,
}

impl Mounted {
    /// Mounts and waits until the mount is there.
    pub fn new(forerun: &Path, image: &Path, access: Access) -> Result<Self> {
        Self::with_objects(forerun, image, access, None)
    }

    /// Mounts with the object store of a composefs image.
    pub fn with_objects(
        forerun: &Path,
        image: &Path,
        access: Access,
        objects: Option<&Path>,
    ) -> Result<Self> {
        let objects = objects.map(|objects| ["-o".into(), objects_option(objects)]);
        let arguments: Vec<OsString> = objects.into_iter().flatten().collect();
        Self::with_arguments(forerun, image, access, &arguments)
    }

    /// Mounts with any arguments; the image may be one at a server.
    pub fn with_arguments(
        forerun: &Path,
        image: &Path,
        access: Access,
        arguments: &[impl AsRef<OsStr>],
    ) -> Result<Self> {
        let dir = temp_dir("bench")?;
        let point = dir.path().join("mnt");
        fs::create_dir(&point)?;
        if access.rootless && rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534))?;
            std::os::unix::fs::chown(&point, Some(65534), Some(65534))?;
        }
        let log = File::create(dir.path().join("log"))?;
        let mut command = access.command(forerun);
        command.args(["mount", "-f", "--stats", "-o", access.option()]);
        command.args(arguments);
        command.arg(image).arg(&point);
        let daemon = process::spawn_daemon(command, &log)?;
        let mut mounted = Self {
            access,
            forerun: forerun.to_path_buf(),
            daemon,
            dir,
        };
        let is_remote = image.to_str().is_some_and(|name| name.contains("://"));
        mounted.wait(match is_remote {
            true => REMOTE_TIMEOUT,
            false => MOUNT_TIMEOUT,
        })?;
        Ok(mounted)
    }

    /// Returns where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Returns the number of the daemon's process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.id()
    }

    /// Returns the most memory that the daemon had at any time, in bytes.
    pub fn peak(&self) -> Result<u64> {
        peak_of(self.daemon.id()).context("the daemon is gone")
    }

    /// Unmounts, waits for the daemon's end and returns its counters.
    pub fn finish(mut self) -> Result<Counters> {
        self.unmount()?;
        let status = self.daemon.wait()?;
        let log = self.log();
        ensure!(status.success(), "the daemon ended with {status}:\n{log}");
        // Those that are zero are not printed: of an image whose index is kept, a listing reads nothing.
        let counters = parse(&log);
        ensure!(
            !counters.is_empty(),
            "the daemon printed no counters:\n{log}"
        );
        Ok(counters)
    }

    fn unmount(&self) -> Result<()> {
        if self.access.is_root() {
            return unmount(&self.path()).context("umount");
        }
        unmount_by(|| {
            let mut command = self.access.command(&self.forerun);
            command.arg("umount").arg(self.path());
            command
        })
    }

    fn wait(&mut self, patience: Duration) -> Result<()> {
        let waited = wait_for_mount(&self.dir.path().join("mnt"), &mut self.daemon, patience);
        waited.with_context(|| format!("forerun mount: {}", self.log().trim_end()))
    }

    fn log(&self) -> String {
        let log = fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if matches!(self.daemon.try_wait(), Ok(None)) {
            let _best_effort = self.unmount();
            let _best_effort = self.daemon.kill();
            let _reaped = self.daemon.wait();
        }
    }
}

/// Returns the mount option that names an object store.
#[must_use]
pub fn objects_option(objects: &Path) -> OsString {
    let mut option = OsString::from("objects=");
    option.push(objects);
    option
}
