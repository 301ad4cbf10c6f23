//! An image mounted for one measurement, and what its daemon counted.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use forerun_testkit::{TempDir, temp_dir};

use crate::process;

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
    pub fn name(self) -> String {
        format!("{} mount, {}", self.user(), self.option())
    }

    /// Returns the name of the user who mounts.
    pub const fn user(self) -> &'static str {
        match self.rootless {
            true => "rootless",
            false => "root",
        }
    }

    /// Returns the mount option.
    pub const fn option(self) -> &'static str {
        match self.large_blocks {
            true => "largeblocks",
            false => "nolargeblocks",
        }
    }

    /// Returns a command that runs as the user who mounts: without `allow_other`, no other user may
    /// look in.
    pub fn command(self, program: &Path) -> Command {
        if !self.rootless || !rustix::process::geteuid().is_root() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
        command.arg(program);
        command
    }
}

/// The counters by their names in `--stats`.
pub type Counters = BTreeMap<String, u64>;

/// A mounted image; unmounted when dropped.
pub struct Mounted {
    access: Access,
    forerun: PathBuf,
    daemon: Child,
    dir: TempDir,
}

const MOUNT_TIMEOUT: Duration = Duration::from_secs(20);

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
        arguments: &[OsString],
    ) -> Result<Self> {
        let dir = temp_dir("bench");
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
        command.arg(image).arg(&point).stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let daemon = command
            .spawn()
            .with_context(|| process::describe(&command))?;
        let mut mounted = Self {
            access,
            forerun: forerun.to_path_buf(),
            daemon,
            dir,
        };
        mounted.wait()?;
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
        let counters = parse(&log);
        ensure!(
            counters.contains_key("source_requests"),
            "the daemon printed no counters:\n{log}"
        );
        Ok(counters)
    }

    fn unmount(&self) -> Result<()> {
        let mut command = self.access.command(&self.forerun);
        process::run(command.arg("umount").arg(self.path()))
    }

    fn wait(&mut self) -> Result<()> {
        let waited = wait_for_mount(&self.dir.path().join("mnt"), &mut self.daemon);
        waited.with_context(|| format!("forerun mount: {}", self.log()))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
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

/// Waits until something is mounted at `point`, which `daemon` is about to do.
pub fn wait_for_mount(point: &Path, daemon: &mut Child) -> Result<()> {
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
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// Returns the most memory that a process had at any time, in bytes; `None` for one that has ended.
pub fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Parses lines of a name and a number.
pub fn parse(log: &str) -> Counters {
    log.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let (name, value) = (words.next()?, words.next()?.parse().ok()?);
            words.next().is_none().then(|| (name.to_string(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_among_other_lines() {
        let counters = parse("mounted at 12\nsource_requests     17\nsource_bytes 4096\nx y\n");
        assert_eq!(counters.len(), 2);
        assert_eq!(counters["source_requests"], 17);
    }
}
