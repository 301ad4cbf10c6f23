//! Images mounted by the drivers that forerun is compared with.
//!
//! mount(2) and not mount(8), which puts a loop device under every regular file that the kernel could
//! read by itself. Loop devices are set up by losetup(8).

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::mount::MountFlags;
use tempfile::TempDir;

use super::loop_device::{Attach, LoopDevice};
use super::{STEP, UNMOUNT_TIMEOUT, unmount, wait_for_mount};
use crate::measure::active::{mounting, temp_dir};
use crate::measure::process::{self, Running};
use crate::measure::programs::find_program;
use crate::measure::run::peak_of;

const EXFAT_FUSE: &str = "mount.exfat-fuse";

/// A mount that another driver serves.
#[derive(Debug)]
pub struct Other {
    /// Mountpoints, the last on top of the others.
    points: Vec<PathBuf>,
    server: Server,
    dir: TempDir,
    /// Goes last, when nothing uses it.
    device: Option<LoopDevice>,
}

/// The process that serves a mount.
#[derive(Debug)]
enum Server {
    Kernel,
    Foreground(Running),
    /// By its number: a program that knows no foreground without a log of every request.
    Background(u32),
}

impl Other {
    fn empty() -> Result<Self> {
        let dir = temp_dir("bench")?;
        fs::create_dir(dir.path().join("mnt"))?;
        Ok(Self {
            points: Vec::new(),
            server: Server::Kernel,
            dir,
            device: None,
        })
    }

    /// Mounts with the kernel's driver. Changes to directories are durable when they return.
    pub fn kernel(fstype: &str, image: &Path, how: Attach) -> Result<Self> {
        let mut this = Self::empty()?;
        let source = this.attach(image, how)?;
        let flags = if how.writable {
            MountFlags::DIRSYNC
        } else {
            MountFlags::RDONLY
        };
        this.mount(fstype, &source, this.path(), flags, "")?;
        Ok(this)
    }

    /// Mounts with the kernel's EROFS the metadata of a composefs image, under an overlayfs with a layer
    /// of data only.
    pub fn kernel_overlay(image: &Path, how: Attach, objects: &Path) -> Result<Self> {
        let mut this = Self::empty()?;
        let source = this.attach(image, how)?;
        let lower = this.dir.path().join("lower");
        fs::create_dir(&lower)?;
        this.mount("erofs", &source, lower.clone(), MountFlags::RDONLY, "")?;
        let mut options = CString::from(c"metacopy=on,redirect_dir=on,lowerdir=").into_bytes();
        options.extend(lower.as_os_str().as_bytes());
        options.extend(b"::");
        options.extend(objects.as_os_str().as_bytes());
        let source = Path::new("overlay");
        this.mount("overlay", source, this.path(), MountFlags::RDONLY, options)?;
        Ok(this)
    }

    /// Starts a program that serves until the mount goes, with the mount point as its last argument.
    pub fn daemon(program: &str, arguments: &[&OsStr]) -> Result<Self> {
        let path = find_program(program).with_context(|| format!("{program} is not installed"))?;
        let mut this = Self::empty()?;
        let log = File::create(this.dir.path().join("log"))?;
        let mut command = Command::new(path);
        command.args(arguments).arg(this.path());
        let mut daemon = process::spawn_session_leader(command, &log)?;
        let waited = wait_for_mount(&this.path(), &mut daemon);
        this.server = Server::Foreground(daemon);
        let log = fs::read(this.dir.path().join("log")).unwrap_or_default();
        waited.with_context(|| format!("{program}: {}", String::from_utf8_lossy(&log).trim()))?;
        this.points.push(this.path());
        Ok(this)
    }

    /// Mounts with exfat-fuse, which takes devices only. Needs root.
    pub fn exfat_fuse(image: &Path, how: Attach) -> Result<Self> {
        let mut this = Self::empty()?;
        let device = this.attach(image, how)?;
        let point = this.path();
        let options = if how.writable { "rw,dirsync" } else { "ro" };
        let mut command = Command::new(EXFAT_FUSE);
        command.args(["-o", options]).arg(device).arg(&point);
        command.stdin(Stdio::null());
        // In the foreground it would print every request.
        let output = mounting(|| command.output());
        process::successful(
            &command,
            output.with_context(|| process::describe(&command))?,
        )?;
        this.points.push(point.clone());
        this.server = Server::Background(process_of(&point)?);
        Ok(this)
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn attach(&mut self, image: &Path, how: Attach) -> Result<PathBuf> {
        let device = LoopDevice::attach(image, how)?;
        Ok(self.device.insert(device).path().to_path_buf())
    }

    fn mount(
        &mut self,
        fstype: &str,
        source: &Path,
        point: PathBuf,
        flags: MountFlags,
        options: impl Into<Vec<u8>>,
    ) -> Result<()> {
        let options = CString::new(options)?;
        let mounted =
            mounting(|| rustix::mount::mount(source, &point, fstype, flags, options.as_c_str()));
        mounted.with_context(|| {
            let (source, options) = (source.display(), options.to_string_lossy());
            format!("mount -t {fstype} -o {options} {source}")
        })?;
        self.points.push(point);
        Ok(())
    }

    /// Returns the most memory that the process that serves the mount had at any time, in bytes.
    pub fn peak(&self) -> Option<u64> {
        match &self.server {
            Server::Kernel => None,
            Server::Foreground(daemon) => peak_of(daemon.id()),
            Server::Background(id) => peak_of(*id),
        }
    }

    pub fn finish(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        while let Some(point) = self.points.pop() {
            unmount(&point, || {
                let mut command = Command::new("fusermount3");
                command.arg("-u").arg(&point);
                command
            })?;
        }
        match &mut self.server {
            Server::Kernel => {}
            Server::Foreground(daemon) => drop(daemon.wait()?),
            Server::Background(id) => {
                let (entry, start) = (PathBuf::from(format!("/proc/{id}")), Instant::now());
                while entry.exists() {
                    let is_late = start.elapsed() > UNMOUNT_TIMEOUT;
                    ensure!(!is_late, "{EXFAT_FUSE} does not end");
                    thread::sleep(STEP);
                }
            }
        }
        self.server = Server::Kernel;
        Ok(())
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
    anyhow::bail!("no process of {EXFAT_FUSE}")
}

impl Drop for Other {
    fn drop(&mut self) {
        // Where it fails, the mount is left and its directory not removed.
        let _best_effort = self.unmount();
        if let Server::Foreground(daemon) = &mut self.server {
            let _best_effort = daemon.kill();
            let _reaped = daemon.wait();
        }
    }
}
