//! Images mounted for one measurement: by forerun, and by the drivers that it is compared with.
//!
//! Uses mount(2) instead of mount(8), which attaches a loop device to every regular file even if
//! the kernel could read it directly.

use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, bail, ensure};
use forerun_sys::loop_device::{self, LoopDevice, Part};
use rustix::mount::{MountFlags, UnmountFlags};
use tempfile::TempDir;

use super::active::{Running, mounting, temp_dir};
use super::peers::find_program;
use super::process;
use super::run::{Counters, parse, peak_of};

const MOUNT_TIMEOUT: Duration = Duration::from_secs(20);
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_micros(500);
const UNMOUNT_STEP: Duration = Duration::from_millis(20);

/// A mount, which is unmounted when dropped.
#[derive(Debug)]
pub struct Mount {
    /// Mountpoints. Each is mounted on top of the earlier ones.
    points: Vec<PathBuf>,
    /// The serving process. `None` for kernel drivers and for programs in the background.
    daemon: Option<Running>,
    /// Whether the daemon prints counters when it exits.
    counts: bool,
    dir: TempDir,
    /// Dropped last, when it is unused: the device detaches with it.
    device: Option<LoopDevice>,
}

impl Mount {
    fn empty() -> Result<Self> {
        let dir = temp_dir()?;
        fs::create_dir(dir.path().join("mnt"))?;
        Ok(Self {
            points: Vec::new(),
            daemon: None,
            counts: false,
            dir,
            device: None,
        })
    }

    /// Mounts with forerun and these mount options.
    pub fn forerun(program: &Path, image: &Path, options: &[impl AsRef<OsStr>]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["mount", "-f", "--stats"]);
        for option in options {
            command.arg("-o").arg(option);
        }
        command.arg(image);
        let mut this = Self::empty()?;
        this.counts = true;
        this.serve(command, process::spawn_daemon)?;
        Ok(this)
    }

    /// Starts a program that serves until it is unmounted. The mount point is its last argument.
    pub fn daemon(program: &str, arguments: &[OsString]) -> Result<Self> {
        let path = find_program(program).with_context(|| format!("{program} is not installed"))?;
        let mut command = Command::new(path);
        command.args(arguments);
        let mut this = Self::empty()?;
        this.serve(command, process::spawn_session_leader)?;
        Ok(this)
    }

    /// Mounts with the kernel's driver. Changes to directories are durable when they return.
    pub fn kernel(fstype: &str, image: &Path, part: Part) -> Result<Self> {
        let mut this = Self::empty()?;
        let source = this.attach(image, part)?;
        let flags = if part.writable {
            MountFlags::DIRSYNC
        } else {
            MountFlags::RDONLY
        };
        this.mount(fstype, &source, this.path(), flags, "")?;
        Ok(this)
    }

    /// Mounts the metadata of a composefs image with the kernel's EROFS, below an overlayfs with a
    /// data-only layer.
    pub fn kernel_overlay(image: &Path, part: Part, objects: &Path) -> Result<Self> {
        let mut this = Self::empty()?;
        let source = this.attach(image, part)?;
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

    /// Mounts with exfat-fuse, which accepts only devices. Needs root. It runs in the background,
    /// because in the foreground it prints every request.
    pub fn exfat_fuse(image: &Path, part: Part) -> Result<Self> {
        let mut this = Self::empty()?;
        let device = this.attach(image, part)?;
        let options = if part.writable { "rw,dirsync" } else { "ro" };
        let mut command = Command::new("mount.exfat-fuse");
        command.args(["-o", options]).arg(device).arg(this.path());
        let output = mounting(|| command.stdin(Stdio::null()).output());
        let output = output.with_context(|| process::describe(&command))?;
        process::successful(&command, output)?;
        this.points.push(this.path());
        Ok(this)
    }

    /// Makes an ext4 filesystem for extracted trees, and mounts it. Needs root.
    ///
    /// A new filesystem is needed because ext4 avoids inodes that were freed within the last
    /// minutes, and searches past all of them for every new file. After `rm -r` of the previous
    /// run, that search would dominate the measurement.
    pub fn scratch() -> Result<Self> {
        /// Room for several copies of the tree; the file is sparse.
        const LEN: u64 = 16 << 30;
        let mut this = Self::empty()?;
        let image = this.dir.path().join("ext4");
        File::create(&image)?.set_len(LEN)?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1"]);
        process::output(mkfs.arg(&image))?;
        let part = Part {
            writable: true,
            ..Part::default()
        };
        let source = this.attach(&image, part)?;
        this.mount("ext4", &source, this.path(), MountFlags::empty(), "")?;
        Ok(this)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Unmounts. Returns the driver's counters and the peak memory of its daemon in bytes.
    pub fn finish(mut self) -> Result<(Counters, Option<u64>)> {
        let peak = self.daemon.as_ref().and_then(|daemon| peak_of(daemon.id()));
        self.unmount()?;
        let Some(mut daemon) = self.daemon.take() else {
            return Ok((Counters::new(), None));
        };
        let status = daemon.wait()?;
        if !self.counts {
            return Ok((Counters::new(), peak));
        }
        let log = self.log();
        ensure!(status.success(), "the daemon ended with {status}:\n{log}");
        // Zero counters are not printed: if an image's index is cached, a listing reads nothing.
        let counters = parse(&log);
        ensure!(
            !counters.is_empty(),
            "the daemon printed no counters:\n{log}"
        );
        Ok((counters, peak))
    }

    fn attach(&mut self, image: &Path, part: Part) -> Result<PathBuf> {
        let file = File::options().read(true).write(part.writable).open(image);
        let device = file.and_then(|file| loop_device::attach(file.as_fd(), part));
        let device = device.with_context(|| format!("a loop device of {}", image.display()))?;
        Ok(self.device.insert(device).path.clone())
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

    fn serve(
        &mut self,
        mut command: Command,
        spawn: fn(Command, &File) -> Result<Running>,
    ) -> Result<()> {
        let name = process::describe(&command);
        command.arg(self.path());
        let log = File::create(self.dir.path().join("log"))?;
        let daemon = self.daemon.insert(spawn(command, &log)?);
        let waited = wait_for_mount(&self.dir.path().join("mnt"), daemon);
        waited.with_context(|| format!("{name}: {}", self.log().trim_end()))?;
        self.points.push(self.path());
        Ok(())
    }

    fn log(&self) -> String {
        let log = fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn unmount(&mut self) -> Result<()> {
        while let Some(point) = self.points.pop() {
            unmount(&point).with_context(|| format!("umount {}", point.display()))?;
        }
        Ok(())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // If unmounting fails, the mount stays and its directory is not removed.
        let _best_effort = self.unmount();
        if let Some(daemon) = &mut self.daemon {
            let _best_effort = daemon.kill();
            let _reaped = daemon.wait();
        }
    }
}

fn wait_for_mount(point: &Path, daemon: &mut Running) -> Result<()> {
    let start = Instant::now();
    let entry = format!(" {} ", point.display());
    while !fs::read_to_string("/proc/self/mountinfo")?.contains(&entry) {
        if let Some(status) = daemon.try_wait()? {
            bail!("the daemon ended with {status}");
        }
        let is_late = start.elapsed() > MOUNT_TIMEOUT;
        ensure!(!is_late, "no mount after {MOUNT_TIMEOUT:?}");
        thread::sleep(STEP);
    }
    Ok(())
}

/// Unmounts, as root or with fusermount3. Retries while the mount is busy: a program that examines
/// all mounts of the machine keeps it busy for a moment.
fn unmount(point: &Path) -> Result<()> {
    let start = Instant::now();
    loop {
        let unmounted = if rustix::process::geteuid().is_root() {
            rustix::mount::unmount(point, UnmountFlags::empty()).map_err(Error::from)
        } else {
            process::output(Command::new("fusermount3").arg("-u").arg(point)).map(drop)
        };
        match unmounted {
            Err(error) if is_busy(&error.to_string()) && start.elapsed() < UNMOUNT_TIMEOUT => {
                thread::sleep(UNMOUNT_STEP);
            }
            done => return done,
        }
    }
}

fn is_busy(said: &str) -> bool {
    ["busy", "in use"].iter().any(|word| said.contains(word))
}
