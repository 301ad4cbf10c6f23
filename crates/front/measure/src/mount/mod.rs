//! Images mounted for one measurement: by forerun, and by the drivers that it is compared with.

mod forerun;
mod loop_device;
mod other;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::counters::Counters;
use crate::process::{self, Running};
use crate::run::cpu_seconds_of;

pub use forerun::{Access, Mounted, objects_option};
pub use loop_device::{Attach, LoopDevice};
pub use other::{Other, Reader};

/// A mount, of forerun or of another driver. Unmounted when dropped.
#[derive(Debug)]
pub enum Mount {
    /// With counters.
    Forerun(Mounted),
    /// Without.
    Other(Other),
}

impl Mount {
    /// Returns where it is mounted.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Forerun(mounted) => mounted.path(),
            Self::Other(other) => other.path(),
        }
    }

    /// Returns the processor time that the process that serves the mount took so far, in seconds; `None` for the
    /// kernel's drivers.
    #[must_use]
    pub fn cpu_seconds(&self) -> Option<f64> {
        match self {
            Self::Forerun(mounted) => cpu_seconds_of(mounted.pid()),
            Self::Other(other) => cpu_seconds_of(other.pid()?),
        }
    }

    /// Unmounts, and returns what the driver counted and the most memory it had.
    pub fn finish(self) -> Result<(Counters, Option<u64>)> {
        match self {
            Self::Forerun(mounted) => {
                let peak = mounted.peak()?;
                Ok((mounted.finish()?, Some(peak)))
            }
            Self::Other(other) => {
                let peak = other.peak();
                other.finish()?;
                Ok((Counters::new(), peak))
            }
        }
    }
}

/// The longest time that mounting takes.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(20);
/// The same for an image at a server, all of which may be fetched first.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(900);
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_micros(500);
const UNMOUNT_STEP: Duration = Duration::from_millis(20);

/// Waits until something is mounted at `point`, which `daemon` is about to do, for at most `patience`.
pub fn wait_for_mount(point: &Path, daemon: &mut Running, patience: Duration) -> Result<()> {
    let start = Instant::now();
    let entry = format!(" {} ", point.display());
    while !fs::read_to_string("/proc/self/mountinfo")?.contains(&entry) {
        if let Some(status) = daemon.try_wait()? {
            bail!("the daemon ended with {status}");
        }
        ensure!(start.elapsed() < patience, "no mount after {patience:?}");
        thread::sleep(STEP);
    }
    Ok(())
}

/// Unmounts as root. Tries again while the mount is busy: a program that looks at all mounts of the machine
/// keeps it busy for a moment.
fn unmount(point: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        match rustix::mount::unmount(point, UnmountFlags::empty()) {
            Err(Errno::BUSY) if start.elapsed() < UNMOUNT_TIMEOUT => thread::sleep(UNMOUNT_STEP),
            done => return Ok(done?),
        }
    }
}

/// Unmounts by a program, and tries again while the mount is busy.
fn unmount_by(program: impl Fn() -> Command) -> Result<()> {
    let start = Instant::now();
    loop {
        match process::output(&mut program()) {
            Err(error) if is_busy(&error.to_string()) && start.elapsed() < UNMOUNT_TIMEOUT => {
                thread::sleep(UNMOUNT_STEP);
            }
            done => return done.map(drop),
        }
    }
}

fn is_busy(said: &str) -> bool {
    ["busy", "in use"].iter().any(|word| said.contains(word))
}
