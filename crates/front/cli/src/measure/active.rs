//! The directory, mounts and processes of a measurement, and their cleanup after an interrupt.
//!
//! With a [`Home`], each process has its own process group, so that Ctrl-C at the terminal reaches
//! only this process, which then ends the others.

use std::collections::BTreeSet;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use forerun::build::is_in_memory;
use forerun_sys::mount_table::mounts;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use crate::error::{Failure, Result};
use crate::interrupt::OnInterrupt;

/// Time that processes have to exit by themselves.
const GRACE: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(10);

static HOME: OnceLock<PathBuf> = OnceLock::new();
static ACTIVE: Mutex<Active> = Mutex::new(Active {
    processes: BTreeSet::new(),
    is_over: false,
});

struct Active {
    /// Ids of the processes that were not yet waited for.
    processes: BTreeSet<u32>,
    is_over: bool,
}

/// The directory of all mounts and files. A process has at most one.
pub struct Home {
    dir: TempDir,
    _guard: OnInterrupt,
}

impl Home {
    /// Creates the directory in `parent` or in `TMPDIR`. If that is in memory, uses `/var/tmp`,
    /// because otherwise no cold cache could be measured.
    pub fn new(parent: Option<&Path>) -> Result<Self> {
        let (temporary, disk) = (std::env::temp_dir(), Path::new("/var/tmp"));
        let parent = match parent {
            Some(parent) => parent,
            None if is_in_memory(&temporary) && disk.is_dir() => disk,
            None => &temporary,
        };
        let failed = |error: io::Error| Failure::output(&error).of(parent.display());
        // The mount table contains no symbolic links.
        let place = parent.canonicalize().map_err(failed)?;
        let mut builder = tempfile::Builder::new();
        let dir = builder.prefix("forerun-bench-").tempdir_in(place);
        let dir = dir.map_err(failed)?;
        let path = dir.path().to_path_buf();
        // A second home would leave the first without cleanup.
        let _kept = HOME.set(path.clone());
        Ok(Self {
            dir,
            _guard: OnInterrupt::new(move || abandon(&path)),
        })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Returns the directory in which temporary directories are created.
pub fn home() -> PathBuf {
    HOME.get().cloned().unwrap_or_else(std::env::temp_dir)
}

/// Creates a temporary directory, which is removed when dropped.
pub fn temp_dir() -> anyhow::Result<TempDir> {
    let mut builder = tempfile::Builder::new();
    let made = builder.prefix("forerun-bench-").tempdir_in(home());
    made.context("a temporary directory")
}

#[derive(Debug)]
pub struct Running {
    pub child: Child,
    pub _ticket: Ticket,
}

/// Registers a process until dropped.
#[derive(Debug)]
pub struct Ticket(u32);

impl Drop for Ticket {
    fn drop(&mut self) {
        lock().processes.remove(&self.0);
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

fn lock() -> MutexGuard<'static, Active> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the list of processes. Blocks forever after [`abandon`], because the process is about to
/// exit.
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

pub fn spawn(command: &mut Command) -> io::Result<Running> {
    if HOME.get().is_some() {
        command.process_group(0);
    }
    spawn_in_group(command)
}

/// Starts a process in the group of this one. Used for setsid(1), which creates a session and group
/// itself; a group leader would have to fork for that.
pub fn spawn_in_group(command: &mut Command) -> io::Result<Running> {
    let mut active = open();
    let child = command.spawn()?;
    let id = child.id();
    active.processes.insert(id);
    Ok(Running {
        child,
        _ticket: Ticket(id),
    })
}

/// Runs `work`, which leaves a mount behind. `work` must not start processes with [`spawn`].
pub fn mounting<T>(work: impl FnOnce() -> T) -> T {
    let _active = open();
    work()
}

/// Ends all processes, unmounts everything below `home`, and removes `home`. Nothing can be started
/// afterwards.
fn abandon(home: &Path) {
    lock().is_over = true;
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
    // Never removes files inside a mount. Tries twice, because the interrupted work may just have
    // made another file.
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

/// Unmounts lazily, even if the mount is in use.
fn detach_mount(point: &Path) {
    if rustix::mount::unmount(point, UnmountFlags::DETACH).is_err() {
        let mut fusermount = Command::new("fusermount3");
        fusermount.arg("-uz").arg(point).stderr(Stdio::null());
        let _best_effort = fusermount.status();
    }
}
