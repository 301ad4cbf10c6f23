//! A mount to restart: a tree, an image of it, a mountpoint, and its processes.

pub mod load;
pub mod met;
pub mod passthrough;
pub mod writers;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use forerun_fuse::Abort;
pub use forerun_testkit::eventually;
use forerun_testkit::{TempDir, generate, require, temp_dir};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Ran, command, ran};

pub const NOBODY: u32 = 65534;
pub const BIG: usize = 12 * 1024 * 1024 + 777;

/// A directory with a tree, an image of it, a mountpoint, and a socket directory.
pub struct Scene {
    pub dir: TempDir,
    nobody: bool,
}

pub struct Connection(Abort);

impl Connection {
    pub fn of(scene: &Scene) -> Self {
        let device = fs::metadata(scene.path("mnt")).unwrap().dev();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        Self(Abort::of(device).unwrap())
    }

    /// Fails all requests, which also ends processes that cannot be ended otherwise.
    pub fn abort(&self) {
        self.0.abort().unwrap();
    }
}

impl Scene {
    /// Creates a scene. Returns `None` if this machine lacks something.
    pub fn new(format: &str) -> Option<Self> {
        if !require::root() || !require::fuse() {
            return None;
        }
        let scene = Self {
            dir: temp_dir("restart"),
            nobody: false,
        };
        for dir in ["tree", "run", "mnt"] {
            fs::create_dir(scene.path(dir)).unwrap();
        }
        fs::write(scene.path("tree/big"), generate::bytes(1, BIG)).unwrap();
        for n in 0..24_u64 {
            let dir = scene.path(&format!("tree/d{}", n % 6));
            fs::create_dir_all(&dir).unwrap();
            let len = 1000 + 7919 * usize::try_from(n).unwrap();
            fs::write(dir.join(n.to_string()), generate::bytes(n, len)).unwrap();
        }
        scene.pack(format);
        Some(scene)
    }

    pub fn pack(&self, format: &str) {
        let more: &[&str] = match format {
            "exfat" => &["--volume-size", "+64M"],
            "composefs" => &["--objects", "store"],
            _ => &[],
        };
        let words = ["pack", "-q", "--force", "--format", format, "tree", "image"];
        self.run(&[&words, more].concat()).ok();
    }

    /// Gives the scene to an unprivileged user, who then runs everything.
    pub fn served_without_root(mut self) -> Option<Self> {
        if !require::fusermount() || require::program("setpriv").is_none() {
            return None;
        }
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.dir.path(), open).unwrap();
        for name in [".", "run", "mnt"] {
            std::os::unix::fs::chown(self.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        self.nobody = true;
        Some(self)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let forerun = command(args);
        let mut command = if self.nobody {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
                .arg(forerun.get_program())
                .args(forerun.get_args());
            command
        } else {
            forerun
        };
        command
            .current_dir(self.path("."))
            .env("XDG_RUNTIME_DIR", self.path("run"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().unwrap())
    }

    pub fn mount(&self, args: &[&str]) {
        let objects: &[&str] = if self.path("store").exists() {
            &["-o", "objects=store"]
        } else {
            &[]
        };
        let words = [&["mount"], objects, args, &["image", "mnt"]].concat();
        self.run(&words).ok();
    }

    /// Returns the serving process, as it reports itself. A new process serves before it reports.
    pub fn server(&self) -> Pid {
        let mut served = None;
        // A process serves before it reports, and an ending process may not answer.
        eventually("one process tells of the mount", || {
            let mounts = self.run(&["status", "--json"]).mounts();
            let mounts = mounts.as_array().unwrap();
            // A killed process may still exist, but does not answer.
            let mut mounts = mounts.iter().filter(|mount| mount["answering"] != false);
            served = mounts.next().and_then(|mount| mount["pid"].as_i64());
            mounts.next().is_none() && served.is_some()
        });
        Pid::from_raw(served.unwrap().try_into().unwrap()).unwrap()
    }

    pub fn supervisor(&self) -> Pid {
        let mut supervisor = None;
        // An ending process may not answer.
        eventually("the process that serves tells of its supervisor", || {
            let mounts = self.run(&["status", "--json"]).mounts();
            supervisor = mounts[0]["supervisor"].as_i64();
            supervisor.is_some()
        });
        Pid::from_raw(supervisor.unwrap().try_into().unwrap()).unwrap()
    }

    /// Kills the server and the supervisor, so that no other process takes over.
    pub fn kill_all(&self) {
        let (supervisor, server) = (self.supervisor(), self.server());
        for pid in [supervisor, server] {
            kill_process(pid, Signal::KILL).unwrap();
        }
        eventually("they are gone", || {
            !is_running(server) && !is_running(supervisor)
        });
    }

    pub fn kill_servers(&self) {
        let mounts = self.run(&["status", "--json"]).ok().mounts();
        for pid in mounts.as_array().unwrap().iter().map(|mount| &mount["pid"]) {
            let pid = pid.as_i64().and_then(|pid| pid.try_into().ok());
            if let Some(pid) = pid.and_then(Pid::from_raw) {
                let _ended = kill_process(pid, Signal::KILL);
            }
        }
    }

    pub fn restart(&self) -> Ran {
        self.run(&["-q", "restart", "mnt"])
    }

    #[track_caller]
    pub fn refused(&self, expected: &str) {
        let told = self.restart();
        assert_eq!(told.code, Some(7), "{}", told.stderr);
        assert!(told.stderr.contains(expected), "{}", told.stderr);
    }

    pub fn answers(&self) {
        let words = format!("missing-{}", unused_number());
        assert!(!self.path("mnt").join(words).exists());
        assert!(same(&self.path("mnt/d3/3"), &self.path("tree/d3/3")));
    }

    pub fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(self.path("mnt").to_str().unwrap())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if self.is_mounted() {
            self.nobody = false;
            let _gone = self.run(&["umount", "--lazy", "mnt"]);
        }
    }
}

pub fn unused_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Compares files, bypassing the page cache.
pub fn same(left: &Path, right: &Path) -> bool {
    let file = File::open(left).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    drop(file);
    fs::read(left).unwrap() == fs::read(right).unwrap()
}

pub fn is_running(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Finds the process that the supervisor has started in addition to the server.
pub fn successor(supervisor: Pid, server: Pid) -> Option<Pid> {
    let parent = format!("PPid:\t{}\n", supervisor.as_raw_nonzero());
    let all = fs::read_dir("/proc").unwrap().flatten();
    let children = all.filter(|entry| {
        let status = fs::read_to_string(entry.path().join("status"));
        status.is_ok_and(|status| status.contains(&parent) && status.contains("forerun"))
    });
    let pids = children.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(Pid::from_raw).find(|pid| *pid != server)
}
