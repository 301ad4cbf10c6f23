//! Control groups with a memory limit, to run programs in.
//!
//! A group is made at the top of the hierarchy with the memory controller, version 1 or 2. A
//! program that exceeds the limit is killed, as in a container.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use forerun_sys::mount_table::mounts;

use crate::require;

/// How often the memory of a group is read.
const INTERVAL: Duration = Duration::from_millis(5);
/// How long processes of a group may take to disappear.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct MemoryGroup {
    dir: PathBuf,
    is_unified: bool,
}

/// Reads the memory of a group until it is dropped or asked for the peak.
#[derive(Debug)]
pub struct MemoryWatch {
    stop: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryGroup {
    /// Makes a group whose processes may use `limit` bytes, and no swap.
    pub fn new(limit: u64) -> Option<Self> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        if !require::root() {
            return None;
        }
        let name = format!(
            "forerun-test-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let made = version_1(&name).or_else(|| version_2(&name));
        let limited = made.filter(|group| group.limit(limit).is_ok());
        let works = require::that(limited.is_some(), "control groups with memory limits");
        limited.filter(|_| works)
    }

    fn limit(&self, limit: u64) -> std::io::Result<()> {
        let (memory, swap, most) = match self.is_unified {
            true => ("memory.max", "memory.swap.max", 0),
            // In version 1, the limit of memory and swap together.
            false => (
                "memory.limit_in_bytes",
                "memory.memsw.limit_in_bytes",
                limit,
            ),
        };
        fs::write(self.dir.join(memory), limit.to_string())?;
        // A kernel without swap accounting has no such file.
        let _without_accounting = fs::write(self.dir.join(swap), most.to_string());
        Ok(())
    }

    /// Returns the same command running in this group, including its children.
    pub fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("sh");
        inside
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.dir.join("cgroup.procs"))
            .arg(command.get_program())
            .args(command.get_args())
            .stdin(Stdio::null());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => inside.env(name, value),
                None => inside.env_remove(name),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            inside.current_dir(dir);
        }
        inside
    }

    /// Returns how many processes of the group were killed for lack of memory.
    pub fn kills(&self) -> u64 {
        let name = if self.is_unified {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = fs::read_to_string(self.dir.join(name)).unwrap();
        field(&text, "oom_kill").expect("a count of kills")
    }

    pub fn watch(&self) -> MemoryWatch {
        let stop = Arc::new(AtomicBool::new(false));
        let peak = Arc::new(AtomicU64::new(0));
        let (stat, is_unified) = (self.dir.join("memory.stat"), self.is_unified);
        let (ended, most) = (Arc::clone(&stop), Arc::clone(&peak));
        let thread = thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                most.fetch_max(held(&stat, is_unified), Ordering::Relaxed);
                thread::sleep(INTERVAL);
            }
        });
        MemoryWatch {
            stop,
            peak,
            thread: Some(thread),
        }
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The kernel removes a group only when its last process is gone.
        let start = Instant::now();
        while fs::remove_dir(&self.dir).is_err() && start.elapsed() < REMOVAL_TIMEOUT {
            thread::sleep(INTERVAL);
        }
    }
}

impl MemoryWatch {
    /// Stops watching. Returns the peak of unreclaimable memory: that of the processes and files of
    /// a tmpfs, and with version 2 also kernel memory for them. Page cache does not count, because
    /// it is reclaimed on demand. Version 1 does not tell which part of the kernel's memory can be
    /// reclaimed. Peaks shorter than 5 ms may be missed.
    pub fn peak(self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn held(stat: &Path, is_unified: bool) -> u64 {
    let text = fs::read_to_string(stat).unwrap_or_default();
    let names: &[&str] = if is_unified {
        &[
            "anon",
            "shmem",
            "slab_unreclaimable",
            "kernel_stack",
            "pagetables",
        ]
    } else {
        &["total_rss", "total_shmem"]
    };
    names.iter().filter_map(|name| field(&text, name)).sum()
}

fn field(text: &str, name: &str) -> Option<u64> {
    let mut values = text.lines().filter_map(|line| line.split_once(' '));
    values.find(|(key, _)| *key == name)?.1.parse().ok()
}

fn version_1(name: &str) -> Option<MemoryGroup> {
    let mut all = mounts().ok()?.into_iter();
    let mount = all.find(|mount| mount.fstype == "cgroup" && mount.has_option("memory"))?;
    let dir = mount.mount_point.join(name);
    fs::create_dir(&dir).ok()?;
    Some(MemoryGroup {
        dir,
        is_unified: false,
    })
}

fn version_2(name: &str) -> Option<MemoryGroup> {
    let mut all = mounts().ok()?.into_iter();
    let top = all.find(|mount| mount.fstype == "cgroup2")?.mount_point;
    // A service manager has already enabled the controller for groups.
    let _already = fs::write(top.join("cgroup.subtree_control"), "+memory");
    let dir = top.join(name);
    fs::create_dir(&dir).ok()?;
    // Dropped if there is no controller.
    let group = MemoryGroup {
        dir,
        is_unified: true,
    };
    group.dir.join("memory.max").exists().then_some(group)
}
