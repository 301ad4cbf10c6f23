//! An image mounted by one of the drivers that are compared.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use forerun_testkit::{TempDir, require, temp_dir};

use super::rows::Who;
use crate::bench::mount::{Access, Counters, Mounted, wait_for_mount};
use crate::process;

/// A mount, whoever made it. Unmounted when dropped.
pub enum Mount {
    /// With counters.
    Forerun(Mounted),
    /// Without.
    Other(Other),
}

impl Mount {
    /// Mounts as root and waits until the mount is there.
    pub fn new(who: Who, forerun: &Path, image: &Path) -> Result<Self> {
        let access = Access {
            rootless: false,
            large_blocks: true,
        };
        match who {
            Who::Forerun => Mounted::new(forerun, image, access).map(Self::Forerun),
            Who::Kernel => Other::kernel(image).map(Self::Other),
            Who::Squashfuse => Other::squashfuse(image).map(Self::Other),
            Who::Unsquashfs | Who::Mksquashfs => bail!("{who} mounts nothing"),
        }
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Forerun(mounted) => mounted.path(),
            Self::Other(other) => other.path(),
        }
    }

    /// Unmounts, and gives what the driver counted and the most memory it had.
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

/// A mount that another driver serves.
pub struct Other {
    daemon: Option<Child>,
    mounted: bool,
    dir: TempDir,
}

impl Other {
    fn empty() -> Result<Self> {
        let dir = temp_dir("bench");
        fs::create_dir(dir.path().join("mnt"))?;
        Ok(Self {
            daemon: None,
            mounted: false,
            dir,
        })
    }

    fn kernel(image: &Path) -> Result<Self> {
        let mut this = Self::empty()?;
        let mut command = Command::new("mount");
        command.args(["-t", "squashfs", "-o", "loop,ro"]);
        process::output(command.arg(image).arg(this.path()))?;
        this.mounted = true;
        Ok(this)
    }

    fn squashfuse(image: &Path) -> Result<Self> {
        let mut this = Self::empty()?;
        let log = File::create(this.dir.path().join("log"))?;
        let mut command = Command::new("squashfuse_ll");
        command.arg("-f").arg(image).arg(this.path());
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let daemon = command.spawn();
        let mut daemon = daemon.with_context(|| process::describe(&command))?;
        let waited = wait_for_mount(&this.path(), &mut daemon);
        this.daemon = Some(daemon);
        this.mounted = true;
        let log = fs::read_to_string(this.dir.path().join("log")).unwrap_or_default();
        waited.with_context(|| format!("squashfuse_ll: {log}"))?;
        Ok(this)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn peak(&self) -> Option<u64> {
        let daemon = self.daemon.as_ref()?;
        crate::bench::mount::peak_of(daemon.id())
    }

    fn finish(mut self) -> Result<()> {
        self.unmount()
    }

    fn unmount(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.mounted) {
            return Ok(());
        }
        process::output(Command::new("umount").arg(self.path()))?;
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

/// Why somebody cannot take part.
pub fn missing(who: Who) -> Option<&'static str> {
    let has = |name| require::find_program(name).is_some();
    let (there, why) = match who {
        Who::Forerun => (true, ""),
        Who::Kernel => (
            fs::read_to_string("/proc/filesystems").is_ok_and(|all| all.contains("squashfs"))
                || has("modprobe") && load_module(),
            "the kernel has no SQUASHFS",
        ),
        Who::Squashfuse => (has("squashfuse_ll"), "squashfuse_ll is not installed"),
        Who::Unsquashfs => (has("unsquashfs"), "unsquashfs is not installed"),
        Who::Mksquashfs => (has("mksquashfs"), "mksquashfs is not installed"),
    };
    (!there).then_some(why)
}

fn load_module() -> bool {
    let mut modprobe = Command::new("modprobe");
    modprobe.args(["--quiet", "squashfs"]);
    modprobe.status().is_ok_and(|status| status.success())
}
