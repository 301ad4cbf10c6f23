//! Processes, loop devices and mounts that a measurement has in use, and how all of them end when the
//! user interrupts it.
//!
//! After [`guard`] each process has a process group of its own, so that a Ctrl-C at the terminal reaches
//! the caller only, which then calls [`abandon`].

use std::collections::BTreeSet;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use forerun_sys::mount_table::mounts;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

/// Time that processes have to end by themselves.
const GRACE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(10);

static HOME: OnceLock<PathBuf> = OnceLock::new();
static ACTIVE: Mutex<Active> = Mutex::new(Active {
    processes: BTreeSet::new(),
    devices: Vec::new(),
    is_over: false,
});

struct Active {
    /// Processes by their numbers, until they are waited for.
    processes: BTreeSet<u32>,
    devices: Vec<PathBuf>,
    /// Whether nothing may be started any more.
    is_over: bool,
}

/// A note of a process, removed when dropped.
#[derive(Debug)]
pub struct Ticket {
    id: u32,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        lock().processes.remove(&self.id);
    }
}

/// Has all temporary directories made below `home`, and processes in groups of their own. Once in the life of
/// a process.
pub fn guard(home: &Path) {
    // A second home would leave the first without a guard.
    let _kept = HOME.set(home.to_path_buf());
}

/// Creates a temporary directory, which is removed when dropped.
pub fn temp_dir(name: &str) -> Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("forerun-{name}-");
    builder.prefix(&prefix);
    let made = match HOME.get() {
        Some(home) => builder.tempdir_in(home),
        None => builder.tempdir(),
    };
    made.context("a temporary directory")
}

fn lock() -> MutexGuard<'static, Active> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the lock once something may be started. After [`abandon`] nothing may: the process is about to end.
fn open() -> MutexGuard<'static, Active> {
    let active = lock();
    if !active.is_over {
        return active;
    }
    drop(active);
    loop {
        thread::park();
    }
}

pub fn spawn(command: &mut Command) -> io::Result<(Child, Ticket)> {
    if HOME.get().is_some() {
        command.process_group(0);
    }
    spawn_in_group(command)
}

/// Starts a process in the group of this one. That is for setsid(1), which makes a session and a group itself: had it a
/// group of its own, it would have to start another process for that.
pub fn spawn_in_group(command: &mut Command) -> io::Result<(Child, Ticket)> {
    let mut active = open();
    let child = command.spawn()?;
    let id = child.id();
    active.processes.insert(id);
    Ok((child, Ticket { id }))
}

/// Does something that leaves a mount behind, such as mount(2). It must not start processes by [`spawn`].
pub fn mounting<T>(work: impl FnOnce() -> T) -> T {
    let _active = open();
    work()
}

/// Notes a loop device, which `attach` makes and returns. It must not start processes by [`spawn`].
pub fn attach(attach: impl FnOnce() -> Result<PathBuf>) -> Result<PathBuf> {
    let mut active = open();
    let device = attach()?;
    active.devices.push(device.clone());
    Ok(device)
}

/// Forgets a loop device that was detached.
pub fn detached(device: &Path) {
    lock().devices.retain(|other| other != device);
}

/// Ends all processes, takes down all mounts below `home`, detaches loop devices, and removes `home`. Nothing
/// can be started from now on.
pub fn abandon(home: &Path) {
    let devices = {
        let mut active = lock();
        active.is_over = true;
        active.devices.clone()
    };
    let signal = |signal| {
        for id in &lock().processes {
            let id = i32::try_from(*id).ok().and_then(Pid::from_raw);
            let _has_ended = id.map(|id| kill_process_group(id, signal));
        }
    };
    signal(Signal::TERM);
    let start = Instant::now();
    while start.elapsed() < GRACE && !(mounts_below(home).is_empty() && lock().processes.is_empty())
    {
        thread::sleep(STEP);
    }
    signal(Signal::KILL);
    for mount in mounts_below(home).iter().rev() {
        detach_mount(mount);
    }
    for device in devices {
        let mut losetup = Command::new("losetup");
        losetup.arg("--detach").arg(device).stderr(Stdio::null());
        let _best_effort = losetup.status();
    }
    // Never into a mount. Twice: the work that is interrupted may just have made another file.
    for _ in 0..2 {
        if mounts_below(home).is_empty() {
            let _best_effort = std::fs::remove_dir_all(home);
        }
    }
}

fn mounts_below(home: &Path) -> Vec<PathBuf> {
    let all = mounts().unwrap_or_default().into_iter();
    let points = all.map(|entry| entry.mount_point);
    points.filter(|point| point.starts_with(home)).collect()
}

/// Takes a mount down, although it may be in use.
fn detach_mount(point: &Path) {
    if rustix::mount::unmount(point, UnmountFlags::DETACH).is_err() {
        let mut fusermount = Command::new("fusermount3");
        fusermount.arg("-uz").arg(point).stderr(Stdio::null());
        let _best_effort = fusermount.status();
    }
}
