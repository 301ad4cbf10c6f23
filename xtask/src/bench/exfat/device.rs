//! Loop devices that are written, mounts of them, and what the kernel counts at them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use forerun_testkit::{TempDir, temp_dir};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::rows::ExfatContender;
use crate::bench::mount::{Counters, parse, peak_of, wait_for_mount};
use crate::process;

/// A loop device, detached when dropped.
pub struct Loop {
    pub path: PathBuf,
}

impl Loop {
    pub fn attach(image: &Path) -> Result<Self> {
        let mut losetup = Command::new("losetup");
        let path = process::output(losetup.args(["--find", "--show"]).arg(image))?;
        Ok(Self {
            path: PathBuf::from(path.trim()),
        })
    }

    /// Writes, KiB written and flushes so far.
    pub fn counted(&self) -> Result<[u64; 3]> {
        let name = self.path.file_name().context("a loop device")?;
        let stat = Path::new("/sys/block").join(name).join("stat");
        let text = fs::read_to_string(&stat).with_context(|| stat.display().to_string())?;
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        let field = |index: usize| numbers.get(index).copied().unwrap_or(0);
        Ok([field(4), field(6) / 2, field(15)])
    }

    /// Makes everything durable that was written so far.
    pub fn flush(&self) -> Result<()> {
        File::open(&self.path)?.sync_data()?;
        Ok(())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let mut losetup = Command::new("losetup");
        if let Err(error) = process::output(losetup.arg("--detach").arg(&self.path)) {
            eprintln!("{error:#}");
        }
    }
}

/// A mounted volume; unmounted when dropped.
pub struct MountedVolume {
    server: Server,
    is_mounted: bool,
    dir: TempDir,
}

/// The process that serves it.
enum Server {
    Forerun(Child),
    /// By its number. In the foreground it would say every request.
    ExfatFuse(u32),
}

const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(60);

impl MountedVolume {
    /// Mounts `source`, a device or, for forerun, an image.
    pub fn new(
        forerun: &Path,
        contender: ExfatContender,
        source: &Path,
        options: &str,
    ) -> Result<Self> {
        let dir = temp_dir("bench-exfat");
        let point = dir.path().join("mnt");
        fs::create_dir(&point)?;
        let server = match contender {
            ExfatContender::Forerun => {
                let log = File::create(dir.path().join("log"))?;
                let mut command = Command::new(forerun);
                command.args(["mount", "-f", "--stats", "-o", options]);
                command.arg(source).arg(&point).stdin(Stdio::null());
                command.stdout(log.try_clone()?).stderr(log);
                let daemon = command.spawn();
                let mut daemon = daemon.with_context(|| process::describe(&command))?;
                wait_for_mount(&point, &mut daemon)?;
                Server::Forerun(daemon)
            }
            ExfatContender::ExfatFuse | ExfatContender::ExfatFuseFlushed => {
                let mut command = Command::new("mount.exfat-fuse");
                command.args(["-o", options]).arg(source).arg(&point);
                process::output(&mut command)?;
                Server::ExfatFuse(process_of(&point)?)
            }
        };
        Ok(Self {
            server,
            is_mounted: true,
            dir,
        })
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Unmounts; returns what forerun counted and the most memory that the daemon had.
    pub fn finish(mut self) -> Result<(Counters, Option<u64>)> {
        let peak = peak_of(match &self.server {
            Server::Forerun(daemon) => daemon.id(),
            Server::ExfatFuse(id) => *id,
        });
        self.unmount().context("umount")?;
        self.is_mounted = false;
        let log = self.dir.path().join("log");
        match &mut self.server {
            Server::Forerun(daemon) => {
                let status = daemon.wait()?;
                let log = fs::read_to_string(log).unwrap_or_default();
                ensure!(status.success(), "the daemon ended with {status}:\n{log}");
                Ok((parse(&log), peak))
            }
            Server::ExfatFuse(id) => {
                let (entry, start) = (PathBuf::from(format!("/proc/{id}")), Instant::now());
                while entry.exists() {
                    ensure!(start.elapsed() < UNMOUNT_TIMEOUT, "exfat-fuse does not end");
                    thread::sleep(Duration::from_millis(2));
                }
                Ok((Counters::new(), peak))
            }
        }
    }
}

impl MountedVolume {
    /// Unmounts. Tries again while the mount is busy: a program that looks at all mounts of the machine
    /// keeps it busy for a moment.
    fn unmount(&self) -> Result<()> {
        let start = Instant::now();
        loop {
            match rustix::mount::unmount(self.path(), UnmountFlags::empty()) {
                Err(Errno::BUSY) if start.elapsed() < UNMOUNT_TIMEOUT => {
                    thread::sleep(Duration::from_millis(20));
                }
                done => return Ok(done?),
            }
        }
    }
}

/// Finds the process that was told to mount there.
fn process_of(point: &Path) -> Result<u32> {
    let point = point.as_os_str().as_encoded_bytes();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        if words.any(|word| word == point) {
            return Ok(id);
        }
    }
    anyhow::bail!("no process of exfat-fuse")
}

impl Drop for MountedVolume {
    fn drop(&mut self) {
        if self.is_mounted {
            let _best_effort = rustix::mount::unmount(self.path(), UnmountFlags::DETACH);
        }
        if let Server::Forerun(daemon) = &mut self.server
            && matches!(daemon.try_wait(), Ok(None))
        {
            let _best_effort = daemon.kill();
            let _reaped = daemon.wait();
        }
    }
}
