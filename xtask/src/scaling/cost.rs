//! The cost of a program: CPU time, wall time and memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::Lab;
use super::series::float;
use crate::process;

/// The longest time that a mount may take to be there or to go.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(120);

/// The cost of a program that has ended.
pub struct Cost {
    /// Seconds of CPU time of the program and the programs it waited for.
    pub cpu: f64,
    /// Wall time in seconds.
    pub seconds: f64,
    /// The most memory that it had, in MB. What it took in its last few milliseconds may be missing.
    pub peak: f64,
}

/// Empties the caches of the machine, and runs a program to its end. Nothing else that this process
/// has started may end meanwhile.
pub fn of(command: &mut Command) -> Result<Cost> {
    drop_caches()?;
    let before = children()?;
    let start = Instant::now();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.spawn();
    let child = child.with_context(|| process::describe(command))?;
    let (status, peak) = watch(child)?;
    ensure!(status, "{} failed", process::describe(command));
    Ok(Cost {
        cpu: children()? - before,
        seconds: start.elapsed().as_secs_f64(),
        peak,
    })
}

/// Waits for a program, with an eye on its memory. Returns whether it succeeded.
fn watch(mut child: Child) -> Result<(bool, f64)> {
    let mut peak = 0.0;
    loop {
        if let Some(now) = status_field(child.id(), "VmHWM:") {
            peak = now;
        }
        if let Some(status) = child.try_wait()? {
            return Ok((status.success(), peak));
        }
        thread::sleep(Duration::from_millis(3));
    }
}

/// Returns a field of `/proc/PID/status` in MB.
fn status_field(pid: u32, field: &str) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(float(kilobytes) / 1000.0)
}

/// Returns the CPU time of all programs that this process has waited for, in seconds.
fn children() -> Result<f64> {
    let usage: Usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let total = usage.user_time() + usage.system_time();
    Ok(Duration::from_micros(u64::try_from(total.num_microseconds())?).as_secs_f64())
}

/// Returns the CPU time of a process that runs, in seconds; its clock ticks are 10 ms.
pub fn cpu_of(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name may have spaces; what follows its bracket has none.
    let (_, rest) = text.rsplit_once(')').context("/proc/PID/stat")?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || -> Result<u64> { Ok(fields.next().context("a field")?.parse()?) };
    Ok(float(ticks()? + ticks()?) / 100.0)
}

/// Returns the memory of a process in MB, shared pages divided among those that share them.
pub fn memory_of(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let line = line.context("no Pss in smaps_rollup")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(float(kilobytes) / 1000.0)
}

/// Empties page cache, dentries and inodes.
pub fn drop_caches() -> Result<()> {
    rustix::fs::sync();
    fs::write("/proc/sys/vm/drop_caches", "3").context("dropping caches")
}

/// An image that is mounted by a process in the foreground. Unmounted when dropped.
pub struct ForegroundMount {
    forerun: PathBuf,
    dir: PathBuf,
    server: Child,
}

impl ForegroundMount {
    /// Mounts `image`, a file or an address, on a new directory called `name`.
    pub fn new(lab: &Lab, image: &str, name: &str, options: &[&str]) -> Result<Self> {
        let dir = lab.dir.join(name);
        fs::create_dir_all(&dir)?;
        let device = device(&dir)?;
        let mut command = Command::new(&lab.forerun);
        command.args(["mount", "-f", "--quiet"]).args(options);
        command.arg(image).arg(&dir).stdin(Stdio::null());
        let server = command
            .spawn()
            .with_context(|| process::describe(&command))?;
        let mut mount = Self {
            forerun: lab.forerun.clone(),
            dir,
            server,
        };
        let start = Instant::now();
        while self::device(&mount.dir)? == device {
            let ended = mount.server.try_wait()?;
            ensure!(ended.is_none(), "{} ended", process::describe(&command));
            ensure!(start.elapsed() < MOUNT_TIMEOUT, "no mount: {image}");
            thread::sleep(Duration::from_millis(1));
        }
        Ok(mount)
    }

    /// Returns its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the number of the process that serves it.
    pub fn pid(&self) -> u32 {
        self.server.id()
    }
}

impl Drop for ForegroundMount {
    fn drop(&mut self) {
        let mut umount = Command::new(&self.forerun);
        let gone = umount.args(["umount", "--quiet"]).arg(&self.dir).status();
        if !gone.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.dir.display());
            let _ended_already = self.server.kill();
        }
        let _its_end_counts = self.server.wait();
    }
}

fn device(dir: &Path) -> Result<u64> {
    use std::os::unix::fs::MetadataExt;
    Ok(dir
        .metadata()
        .with_context(|| dir.display().to_string())?
        .dev())
}
