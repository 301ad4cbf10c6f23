//! A directory to work in with remote images: a tree, an image of it, a cache and a socket
//! directory.

use std::fs;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};

use forerun_testkit::{TempDir, temp_dir};
use forerun_testkit_servers::DockerRegistry;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Ran, command, ran};

pub struct Place {
    pub dir: TempDir,
}

impl Place {
    pub fn new() -> Self {
        let dir = temp_dir("remote-cli");
        let at = dir.path();
        fs::create_dir_all(at.join("tree/sub")).unwrap();
        fs::create_dir_all(at.join("run")).unwrap();
        fs::create_dir_all(at.join("mnt")).unwrap();
        fs::write(at.join("tree/big"), noise(3 << 20)).unwrap();
        fs::write(at.join("tree/sub/other"), noise(9 << 20)).unwrap();
        fs::write(at.join("tree/small"), "small\n").unwrap();
        let place = Self { dir };
        place
            .run(&["pack", "-q", "--format", "erofs", "tree", "image"])
            .ok();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = command(args);
        command
            .current_dir(self.dir.path())
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("XDG_RUNTIME_DIR", self.path("run"))
            .env("DOCKER_CONFIG", self.path("docker"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().unwrap())
    }

    /// Mounts in the foreground. Returns when the mount answers.
    pub fn mount(&self, args: &[&str], name: &str) -> Mounted<'_> {
        let mut command = self.command(&[&["mount", "-f"], args, &[name, "mnt"]].concat());
        let log = fs::File::create(self.path("log")).unwrap();
        let child = command.stderr(log).spawn().unwrap();
        let mut mounted = Mounted { place: self, child };
        let dir = self.path("mnt");
        mounted.wait_for("the mount", || dir.join("small").exists());
        mounted
    }
}

pub struct Mounted<'p> {
    place: &'p Place,
    pub child: Child,
}

impl Mounted<'_> {
    pub fn wait_for(&mut self, what: &str, mut done: impl FnMut() -> bool) {
        let start = Instant::now();
        while !done() {
            let ended = self.child.try_wait().unwrap();
            let log = fs::read_to_string(self.place.path("log")).unwrap();
            assert!(ended.is_none(), "{what}: {ended:?}: {log}");
            assert!(start.elapsed() < Duration::from_secs(60), "{what}: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub fn end(mut self) {
        self.place.run(&["umount", "mnt"]).ok();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // Has an effect only after a failed test.
        let _ = self.place.run(&["umount", "mnt"]);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

pub fn name_at(registry: &DockerRegistry, tag: &str) -> String {
    format!("oci://{}/a/app:{tag}", registry.authority())
}
