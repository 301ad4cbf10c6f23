//! Images mounted for one measurement: by forerun, and by the drivers that it is compared with.

mod forerun;
mod loop_device;
mod other;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use rustix::mount::UnmountFlags;

use crate::measure::counters::Counters;
use crate::measure::process::{self, Running};

pub use forerun::{Mounted, objects_option};
pub use loop_device::Attach;
pub use other::Other;

/// A mount, of forerun or of another driver. Unmounted when dropped.
#[derive(Debug)]
pub enum Mount {
    Forerun(Mounted),
    Other(Other),
}

impl Mount {
    /// Returns where it is mounted.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Forerun(mounted) => mounted.path(),
            Self::Other(other) => other.path(),
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
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_micros(500);
const UNMOUNT_STEP: Duration = Duration::from_millis(20);

/// Waits until something is mounted at `point`, which `daemon` is about to do.
fn wait_for_mount(point: &Path, daemon: &mut Running) -> Result<()> {
    let start = Instant::now();
    let entry = format!(" {} ", point.display());
    while !fs::read_to_string("/proc/self/mountinfo")?.contains(&entry) {
        if let Some(status) = daemon.try_wait()? {
            bail!("the daemon ended with {status}");
        }
        ensure!(
            start.elapsed() < MOUNT_TIMEOUT,
            "no mount after {MOUNT_TIMEOUT:?}"
        );
        thread::sleep(STEP);
    }
    Ok(())
}

/// Unmounts, as root or by `other`. Tries again while the mount is busy: a program that looks at all mounts of the
/// machine keeps it busy for a moment.
fn unmount(point: &Path, other: impl Fn() -> Command) -> Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    let start = Instant::now();
    loop {
        let unmounted = if is_root {
            rustix::mount::unmount(point, UnmountFlags::empty()).map_err(Error::from)
        } else {
            process::output(&mut other()).map(drop)
        };
        match unmounted {
            Err(error) if is_busy(&error.to_string()) && start.elapsed() < UNMOUNT_TIMEOUT => {
                thread::sleep(UNMOUNT_STEP);
            }
            done => return done.with_context(|| format!("umount {}", point.display())),
        }
    }
}

fn is_busy(said: &str) -> bool {
    ["busy", "in use"].iter().any(|word| said.contains(word))
}
