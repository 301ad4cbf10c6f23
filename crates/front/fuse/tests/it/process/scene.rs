//! A directory with the program, an image and a mountpoint, and the processes that run there.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use crate::common::{Place, as_nobody, can_mount, is_mounted, romfs, run};
use forerun_testkit::{eventually, forerun_binary};
use rustix::process::{Pid, Signal, kill_process};

pub const BIG: usize = 20 * 1024 * 1024 + 777;

pub struct Scene {
    pub place: Place,
    pub program: PathBuf,
    pub image: PathBuf,
}

impl Scene {
    /// Creates a scene, `None` if this machine lacks a requirement.
    pub fn new(name: &str) -> Option<Self> {
        let place = Place::new(name);
        let (tree, image) = (place.dir().join("tree"), place.dir().join("image.romfs"));
        fs::create_dir_all(tree.join("dir")).unwrap();
        fs::write(tree.join("dir/hello"), "hello\n").unwrap();
        let bytes = forerun_testkit::generate::bytes(5, BIG);
        fs::write(tree.join("big"), bytes).unwrap();
        if !can_mount() || !romfs(&tree, &image, &["-V", name]) {
            return None;
        }
        // Copy the program, because other users may not be able to reach the build directory. A
        // child process writes the copy: a concurrent fork could inherit this process's writable
        // descriptor, and then the program could not be executed.
        let program = place.dir().join("forerun");
        let (ok, text) = run(Command::new("cp").arg(forerun_binary()).arg(&program));
        assert!(ok, "{text}");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        place.give_away();
        Some(Self {
            place,
            program,
            image,
        })
    }

    pub fn mnt(&self) -> PathBuf {
        self.place.mnt()
    }

    pub fn forerun(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(self.place.dir());
        command
    }

    pub fn mount(&self, options: &str) -> (bool, String) {
        run(self
            .forerun(&["mount", "-o", options, "image.romfs", "mnt"])
            .arg("--log=log"))
    }

    pub fn mount_as_nobody(&self, options: &str) -> (bool, String) {
        let mut command = as_nobody(&self.program);
        command.args(["mount", "-o", options, "image.romfs", "mnt"]);
        run(command.current_dir(self.place.dir()))
    }

    /// Returns the processes that supervise and serve the mount; the program's copy runs nowhere
    /// else.
    pub fn processes(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let of_scene = processes.filter(|entry| {
            let exe = fs::read_link(entry.path().join("exe"));
            // A zombie process has no exe.
            exe.is_ok_and(|exe| exe == self.program)
        });
        let pids = of_scene.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).collect()
    }

    pub fn server(&self) -> Option<Pid> {
        self.processes().into_iter().next()
    }

    /// Returns the processes that mount and unmount for a server; one may be a watchdog.
    pub fn helpers(&self) -> Vec<Pid> {
        let is_helper = |pid: &Pid| {
            let words = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero()));
            words.is_ok_and(|words| words.starts_with(b"forerun: mounts for the server of "))
        };
        self.processes().into_iter().filter(is_helper).collect()
    }

    /// Sends a signal to one of the processes. SIGKILL goes to all except helpers, until none is
    /// left.
    pub fn signal(&self, signal: Signal) {
        assert!(self.server().is_some());
        if signal != Signal::KILL {
            return kill_process(self.server().unwrap(), signal).unwrap();
        }
        eventually("all have ended", || {
            let helpers = self.helpers();
            let mut processes = self.processes();
            processes.retain(|pid| !helpers.contains(pid));
            for pid in &processes {
                // The process may have ended meanwhile.
                let _ended = kill_process(*pid, Signal::KILL);
            }
            processes.is_empty()
        });
    }

    pub fn is_gone(&self) {
        eventually("the process has ended", || self.server().is_none());
        assert!(!is_mounted(&self.mnt()));
    }

    pub fn answers(&self) {
        assert_eq!(fs::read(self.mnt().join("dir/hello")).unwrap(), b"hello\n");
        assert_eq!(fs::read_dir(self.mnt()).unwrap().count(), 2);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for _ in 0..3 {
            for pid in self.processes() {
                // Kill all processes, even if the test has failed. A supervisor may start another
                // one before it ends.
                let _ended_meanwhile = kill_process(pid, Signal::KILL);
            }
        }
    }
}
