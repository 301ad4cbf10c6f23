//! Images mounted by the drivers that forerun is compared with, and by the kernel at its request.
//!
//! mount(2) and not mount(8), which puts a loop device under every regular file that the kernel could
//! read by itself. Loop devices are set up by losetup(8).

use std::ffi::{CString, OsStr};
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use forerun_testkit::{TempDir, require, temp_dir};
use rustix::mount::{MountFlags, UnmountFlags};

use super::mount::{Counters, Mounted, objects_option, peak_of, wait_for_mount};
use crate::process;

/// A mount, of forerun or of another driver. Unmounted when dropped.
pub enum Mount {
    /// With counters.
    Forerun(Mounted),
    /// Without.
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

/// How the kernel's driver reads an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Through a loop device, and the page cache of the image under it.
    Loop,
    /// Through a loop device that bypasses the page cache of the image.
    DirectLoop,
    /// From the file.
    File,
}

/// A mount that another driver serves.
pub struct Other {
    /// Mountpoints, the last on top of the others.
    points: Vec<PathBuf>,
    daemon: Option<Child>,
    dir: TempDir,
    /// Goes last, when nothing uses it.
    device: Option<LoopDevice>,
}

impl Other {
    fn empty() -> Result<Self> {
        let dir = temp_dir("bench");
        fs::create_dir(dir.path().join("mnt"))?;
        Ok(Self {
            points: Vec::new(),
            daemon: None,
            dir,
            device: None,
        })
    }

    /// Mounts with the kernel's driver.
    pub fn kernel(fstype: &str, image: &Path, reader: Reader) -> Result<Self> {
        let mut this = Self::empty()?;
        let source = this.source(image, reader)?;
        this.mount(fstype, &source, this.path(), "")?;
        Ok(this)
    }

    /// Mounts with the kernel's EROFS the metadata of a composefs image, under an overlayfs with a layer
    /// of data only.
    pub fn kernel_overlay(image: &Path, reader: Reader, objects: &Path) -> Result<Self> {
        let mut this = Self::empty()?;
        let source = this.source(image, reader)?;
        let lower = this.dir.path().join("lower");
        fs::create_dir(&lower)?;
        this.mount("erofs", &source, lower.clone(), "")?;
        let mut options = CString::from(c"metacopy=on,redirect_dir=on,lowerdir=").into_bytes();
        options.extend(lower.as_os_str().as_bytes());
        options.extend(b"::");
        options.extend(objects.as_os_str().as_bytes());
        this.mount("overlay", Path::new("overlay"), this.path(), options)?;
        Ok(this)
    }

    /// Mounts with the kernel's driver, but by `forerun mount --via kernel`, which reads metadata ahead
    /// above all. Returns its output too.
    pub fn via_kernel(
        forerun: &Path,
        image: &Path,
        reader: Reader,
        objects: Option<&Path>,
    ) -> Result<(Self, String)> {
        let mut this = Self::empty()?;
        let source = this.source(image, reader)?;
        let mut command = Command::new(forerun);
        command.args(["mount", "--via", "kernel", "-v"]);
        if let Some(objects) = objects {
            command.arg("-o").arg(objects_option(objects));
        }
        command.arg(source).arg(this.path()).stdin(Stdio::null());
        let output = command
            .output()
            .with_context(|| process::describe(&command))?;
        let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
        let command = process::describe(&command);
        ensure!(
            output.status.success(),
            "{command}: {}\n{said}",
            output.status
        );
        this.points.push(this.path());
        // Otherwise it is something else that is measured.
        let way = match reader {
            Reader::File => "from the file",
            Reader::Loop | Reader::DirectLoop => "from the device",
        };
        ensure!(
            said.contains(way),
            "{command}: not mounted {way}, but: {said}"
        );
        ensure!(
            said.contains("read ahead"),
            "{command}: nothing is read ahead: {said}"
        );
        Ok((this, said))
    }

    /// Starts a program that serves until the mount goes, with the mount point as its last argument.
    pub fn daemon(program: &str, arguments: &[&OsStr]) -> Result<Self> {
        let mut this = Self::empty()?;
        let log = File::create(this.dir.path().join("log"))?;
        let mut command = Command::new(program);
        command.args(arguments).arg(this.path());
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let daemon = command.spawn();
        let mut daemon = daemon.with_context(|| process::describe(&command))?;
        let waited = wait_for_mount(&this.path(), &mut daemon);
        this.daemon = Some(daemon);
        let log = fs::read_to_string(this.dir.path().join("log")).unwrap_or_default();
        waited.with_context(|| format!("{program}: {log}"))?;
        this.points.push(this.path());
        Ok(this)
    }

    /// Returns where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    /// Returns the source to give the kernel for `image`.
    fn source(&mut self, image: &Path, reader: Reader) -> Result<PathBuf> {
        let direct = match reader {
            Reader::File => return Ok(image.to_path_buf()),
            Reader::Loop => false,
            Reader::DirectLoop => true,
        };
        let device = LoopDevice::attach(image, direct)?;
        Ok(self.device.insert(device).path.clone())
    }

    fn mount(
        &mut self,
        fstype: &str,
        source: &Path,
        point: PathBuf,
        options: impl Into<Vec<u8>>,
    ) -> Result<()> {
        let options = CString::new(options)?;
        rustix::mount::mount(
            source,
            &point,
            fstype,
            MountFlags::RDONLY,
            options.as_c_str(),
        )
        .with_context(|| {
            let (source, options) = (source.display(), options.to_string_lossy());
            format!("mount -t {fstype} -o ro,{options} {source}")
        })?;
        self.points.push(point);
        Ok(())
    }

    fn peak(&self) -> Option<u64> {
        peak_of(self.daemon.as_ref()?.id())
    }

    /// Unmounts.
    pub fn finish(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        while let Some(point) = self.points.pop() {
            rustix::mount::unmount(&point, UnmountFlags::empty())
                .with_context(|| format!("umount {}", point.display()))?;
        }
        if let Some(mut daemon) = self.daemon.take() {
            daemon.wait()?;
        }
        Ok(())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            eprintln!("{error:#}");
        }
        if let Some(mut daemon) = self.daemon.take() {
            let _best_effort = daemon.kill();
            let _reaped = daemon.wait();
        }
    }
}

/// A loop device, detached when dropped.
struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    fn attach(image: &Path, direct: bool) -> Result<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--read-only"]);
        if direct {
            losetup.arg("--direct-io=on");
        }
        let path = process::output(losetup.arg(image))?;
        let this = Self {
            path: PathBuf::from(path.trim()),
        };
        let name = this.path.file_name().context("a loop device")?;
        let dio = Path::new("/sys/block").join(name).join("loop/dio");
        let is_direct = fs::read_to_string(&dio).with_context(|| dio.display().to_string())?;
        ensure!(
            (is_direct.trim() == "1") == direct,
            "{}: direct I/O is {}",
            this.path.display(),
            is_direct.trim()
        );
        Ok(this)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let mut losetup = Command::new("losetup");
        if let Err(error) = process::output(losetup.arg("--detach").arg(&self.path)) {
            eprintln!("{error:#}");
        }
    }
}

/// Returns whether the kernel has a driver, as a module perhaps.
pub fn has_filesystem(name: &str) -> bool {
    let known = || {
        let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        known.split_whitespace().any(|word| word == name)
    };
    let load = || {
        let mut modprobe = Command::new("modprobe");
        modprobe.args(["--quiet", name]);
        modprobe.status().is_ok_and(|status| status.success())
    };
    known() || require::find_program("modprobe").is_some() && load() && known()
}
