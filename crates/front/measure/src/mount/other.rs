//! Images mounted by the drivers that forerun is compared with, and by the kernel at its request.
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
use super::{
    MOUNT_TIMEOUT, STEP, UNMOUNT_TIMEOUT, objects_option, unmount, unmount_by, wait_for_mount,
};
use crate::active::{mounting, temp_dir};
use crate::process::{self, Running};
use crate::programs::find_program;
use crate::run::peak_of;

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

    /// Mounts with the kernel's driver.
    pub fn kernel(fstype: &str, image: &Path, reader: Reader) -> Result<Self> {
        let mut this = Self::empty()?;
        let source = this.source(image, reader)?;
        this.mount(fstype, &source, this.path(), "")?;
        Ok(this)
    }

    /// Mounts with the kernel's driver an image that is a part of a file.
    pub fn kernel_part(fstype: &str, image: &Path, how: Attach) -> Result<Self> {
        let mut this = Self::empty()?;
        let source = this.attach(image, how)?;
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

    /// Mounts the kernel's overlayfs over directories, the uppermost first.
    pub fn overlay(layers: &[impl AsRef<Path>]) -> Result<Self> {
        let mut this = Self::empty()?;
        let mut options = CString::from(c"lowerdir=").into_bytes();
        for (number, layer) in layers.iter().enumerate() {
            if number > 0 {
                options.push(b':');
            }
            options.extend(layer.as_ref().as_os_str().as_bytes());
        }
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
        let output = process::collect(&mut command);
        let output = output.with_context(|| process::describe(&command))?;
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
        let path = find_program(program).with_context(|| format!("{program} is not installed"))?;
        let mut this = Self::empty()?;
        let log = File::create(this.dir.path().join("log"))?;
        let mut command = Command::new(path);
        command.args(arguments).arg(this.path());
        let mut daemon = process::spawn_session_leader(command, &log)?;
        let waited = wait_for_mount(&this.path(), &mut daemon, MOUNT_TIMEOUT);
        this.server = Server::Foreground(daemon);
        let log = fs::read(this.dir.path().join("log")).unwrap_or_default();
        waited.with_context(|| format!("{program}: {}", String::from_utf8_lossy(&log).trim()))?;
        this.points.push(this.path());
        Ok(this)
    }

    /// Mounts a device with exfat-fuse, which takes no files. Needs root.
    pub fn exfat_fuse(device: &Path, options: &str) -> Result<Self> {
        let mut this = Self::empty()?;
        let point = this.path();
        let mut command = Command::new(EXFAT_FUSE);
        command.args(["-o", options]).arg(device).arg(&point);
        command.stdin(Stdio::null());
        // In the foreground it would print every request.
        let output = mounting(|| command.output());
        let output = output.with_context(|| process::describe(&command))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{}: {}",
            process::describe(&command),
            said.trim()
        );
        this.points.push(point.clone());
        this.server = Server::Background(process_of(&point)?);
        Ok(this)
    }

    /// Mounts with exfat-fuse an image that is a file or a part of one.
    pub fn exfat_fuse_part(image: &Path, how: Attach, options: &str) -> Result<Self> {
        let device = LoopDevice::attach(image, how)?;
        let mut this = Self::exfat_fuse(device.path(), options)?;
        this.device = Some(device);
        Ok(this)
    }

    /// Returns where it is mounted.
    #[must_use]
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
        let how = Attach {
            direct,
            ..Attach::default()
        };
        self.attach(image, how)
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
        options: impl Into<Vec<u8>>,
    ) -> Result<()> {
        let options = CString::new(options)?;
        let flags = MountFlags::RDONLY;
        let mounted =
            mounting(|| rustix::mount::mount(source, &point, fstype, flags, options.as_c_str()));
        mounted.with_context(|| {
            let (source, options) = (source.display(), options.to_string_lossy());
            format!("mount -t {fstype} -o ro,{options} {source}")
        })?;
        self.points.push(point);
        Ok(())
    }

    /// Returns the number of the process that serves the mount; `None` for the kernel's drivers.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match &self.server {
            Server::Kernel => None,
            Server::Foreground(daemon) => Some(daemon.id()),
            Server::Background(id) => Some(*id),
        }
    }

    /// Returns the most memory that the process that serves the mount had at any time, in bytes.
    #[must_use]
    pub fn peak(&self) -> Option<u64> {
        peak_of(self.pid()?)
    }

    /// Unmounts.
    pub fn finish(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        while let Some(point) = self.points.pop() {
            let unmounted = match rustix::process::geteuid().is_root() {
                true => unmount(&point),
                false => unmount_by(|| {
                    let mut command = Command::new("fusermount3");
                    command.arg("-u").arg(&point);
                    command
                }),
            };
            unmounted.with_context(|| format!("umount {}", point.display()))?;
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

const EXFAT_FUSE: &str = "mount.exfat-fuse";

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
