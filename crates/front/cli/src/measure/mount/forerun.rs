//! An image mounted by forerun for one measurement, and what its daemon counted.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::{unmount, wait_for_mount};
use crate::measure::active::temp_dir;
use crate::measure::counters::{Counters, parse};
use crate::measure::process::{self, Running};
use crate::measure::run::peak_of;

/// A mounted image; unmounted when dropped.
#[derive(Debug)]
pub struct Mounted {
    forerun: PathBuf,
    daemon: Running,
    dir: TempDir,
}

impl Mounted {
    /// Mounts with these mount options, and waits until the mount is there.
    pub fn new(forerun: &Path, image: &Path, options: &[impl AsRef<OsStr>]) -> Result<Self> {
        let dir = temp_dir("bench")?;
        let point = dir.path().join("mnt");
        fs::create_dir(&point)?;
        let log = File::create(dir.path().join("log"))?;
        let mut command = Command::new(forerun);
        command.args(["mount", "-f", "--stats"]);
        for option in options {
            command.arg("-o").arg(option);
        }
        command.arg(image).arg(&point);
        let daemon = process::spawn_daemon(command, &log)?;
        let mut mounted = Self {
            forerun: forerun.to_path_buf(),
            daemon,
            dir,
        };
        let waited = wait_for_mount(&point, &mut mounted.daemon);
        waited.with_context(|| format!("forerun mount: {}", mounted.log().trim_end()))?;
        Ok(mounted)
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
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
        unmount(&self.path(), || {
            let mut command = Command::new(&self.forerun);
            command.arg("umount").arg(self.path());
            command
        })
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
pub fn objects_option(objects: &Path) -> OsString {
    let mut option = OsString::from("objects=");
    option.push(objects);
    option
}
