//! Commands in a control group of 128 MiB: none is killed, and all stay a fifth below the limit. A
//! mount with a small cache stays small with many readers.
//!
//! The tree has more contents than the group has memory, so a cache sized by the machine's memory
//! would exceed the group's.

use std::fs;
use std::path::Path;
use std::process::{Child, Command};

use forerun::build::is_in_memory;
use forerun_testkit::memory_group::MemoryGroup;
use forerun_testkit::rng::Rng;
use forerun_testkit::{eventually, require, temp_dir, unmount};
use forerun_testkit_servers::{Auth, DockerRegistry};

use crate::common::place::{Place, name_at, noise};
use crate::common::ran;

const LIMIT: u64 = 128 << 20;
const FILES: u64 = 5000;
/// One of this many files is long.
const LONG: u64 = 500;

/// Reads every file below the working directory with four processes, in an order unrelated to the
/// files' locations, so that the cache holds partly used blocks that many files share.
const READERS: &str =
    "find . -type f -print0 | shuf -z --random-source=../squashfs | xargs -0 -P4 -n100 cat | wc -c";

fn make_tree(tree: &Path) -> u64 {
    let pool = noise(1 << 20);
    let mut rng = Rng::new(1);
    let mut below = |bound: usize| usize::try_from(rng.below(bound.try_into().unwrap())).unwrap();
    let mut all = 0;
    for number in 0..FILES {
        let dir = tree.join(format!("{}", number % 97));
        fs::create_dir_all(&dir).unwrap();
        let wanted = match number % LONG {
            0 => (1 << 20) + below(1 << 10),
            _ => below(64 << 10),
        };
        let mut contents = Vec::with_capacity(wanted + 256);
        while contents.len() < wanted {
            let at = below(pool.len() - 256);
            contents.extend_from_slice(&pool[at..at + 64 + below(192)]);
        }
        all += u64::try_from(contents.len()).unwrap();
        fs::write(dir.join(format!("{number}")), contents).unwrap();
    }
    all
}

struct Confined {
    place: Place,
    contents: u64,
}

impl Confined {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.place.command(args);
        command.env("TMPDIR", self.place.path("spool"));
        command
    }

    /// Runs `work` in a group, and checks its memory usage.
    fn within(&self, what: &str, work: impl FnOnce(&MemoryGroup)) {
        let group = MemoryGroup::new(LIMIT).unwrap();
        let watch = group.watch();
        work(&group);
        let peak = watch.peak();
        assert_eq!(group.kills(), 0, "{what} was killed; it had {peak} bytes");
        assert!(peak <= LIMIT / 5 * 4, "{what} took {peak} bytes");
        assert!(peak > 1 << 20, "{what} was not watched: {peak}");
    }

    fn run(&self, args: &[&str]) {
        self.within(&args.join(" "), |group| {
            let output = group.inside(&self.command(args)).output().unwrap();
            let ended = output.status;
            let ran = ran(output);
            assert!(ended.success(), "{args:?}: {ended}: {}", ran.stderr);
        });
    }

    fn mount(&self, image: &str) {
        let dir = self.place.path("mnt");
        let mut counted = String::new();
        self.within(&format!("mount {image}"), |group| {
            let mut mount = self.command(&["mount", "-f", image, "mnt"]);
            let log = fs::File::create(self.place.path("log")).unwrap();
            let server = group.inside(mount.stderr(log)).spawn().unwrap();
            let mut mounted = Mounted { dir: &dir, server };
            eventually("the mount answers", || dir.join("0").exists());
            let mut readers = Command::new("sh");
            readers.args(["-c", READERS]).current_dir(&dir);
            let read = group.inside(&readers).output().unwrap();
            let told = String::from_utf8_lossy(&read.stderr);
            let log = || fs::read_to_string(self.place.path("log")).unwrap();
            // If the kernel had killed the server, the log would have a line for each of 5,000
            // files.
            let first = told.lines().next();
            assert_eq!((first, group.kills()), (None, 0), "{image}: {}", log());
            counted.push_str(String::from_utf8_lossy(&read.stdout).trim());
            assert!(unmount(&dir), "{image} stays mounted");
            assert!(mounted.server.wait().unwrap().success(), "{}", log());
        });
        assert_eq!(counted, self.contents.to_string(), "bytes read of {image}");
    }
}

/// A mount and its serving process. Both are ended after a failure.
struct Mounted<'d> {
    dir: &'d Path,
    server: Child,
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let is_over = self.server.try_wait().is_ok_and(|ended| ended.is_some());
        if is_over && !std::thread::panicking() {
            return;
        }
        let _ = Command::new("umount").arg("--lazy").arg(self.dir).status();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn commands_stay_a_fifth_below_the_limit_of_their_control_group() {
    if !require::root() || !require::fuse() || MemoryGroup::new(LIMIT).is_none() {
        return;
    }
    let Some(registry) = DockerRegistry::start(Auth::None) else {
        return;
    };
    // Files of a tmpfs count towards the group's memory.
    let dir = if is_in_memory(&std::env::temp_dir()) {
        tempfile::tempdir_in("/var/tmp").unwrap()
    } else {
        temp_dir("memory")
    };
    let place = Place { dir };
    for name in ["files", "spool", "run", "mnt"] {
        fs::create_dir(place.path(name)).unwrap();
    }
    let contents = make_tree(&place.path("files"));
    let confined = Confined { place, contents };
    confined.run(&["pack", "-q", "--format", "squashfs", "files", "squashfs"]);
    confined.run(&[
        "pack",
        "-q",
        "--format",
        "erofs",
        "--compressor",
        "lz4",
        "files",
        "erofs",
    ]);
    confined.run(&["extract", "-q", "-C", "out", "squashfs"]);
    confined.run(&[
        "convert",
        "-q",
        "--format",
        "erofs",
        "squashfs",
        "converted",
    ]);
    confined.mount("squashfs");
    let name = name_at(&registry, "1");
    confined.run(&["push", "-q", "erofs", &name]);
    confined.run(&["pull", "-q", &name, "pulled"]);
    confined.mount(&name);
}

/// Limit on the resident memory of a process, and the requested cache size.
const SMALL: u64 = 64 << 20;
const CACHE: &str = "cache=16M";

/// Like [`READERS`], with eight processes.
const EIGHT: &str =
    "find . -type f -print0 | shuf -z --random-source=../image | xargs -0 -P8 -n100 cat | wc -c";

fn peak(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.unwrap().split_whitespace().next().unwrap();
    number.parse::<u64>().unwrap() << 10
}

#[test]
fn a_mount_with_a_cache_of_16_mib_and_eight_readers_stays_below_64_mib() {
    if !require::root() || !require::fuse() {
        return;
    }
    let place = Place {
        dir: temp_dir("small-cache"),
    };
    for name in ["files", "mnt"] {
        fs::create_dir(place.path(name)).unwrap();
    }
    let contents = make_tree(&place.path("files")).to_string();
    let dir = place.path("mnt");
    for args in [
        ["squashfs", "--compressor", "lz4", "--block-size", "128K"],
        ["squashfs", "--compressor", "zstd", "--block-size", "1M"],
        ["erofs", "--compressor", "lz4", "--cluster-size", "64K"],
        ["erofs", "--compressor", "zstd", "--cluster-size", "1M"],
    ] {
        let pack = ["pack", "-q", "--force", "--format"].into_iter();
        let pack: Vec<_> = pack.chain(args).chain(["files", "image"]).collect();
        ran(place.command(&pack).output().unwrap()).ok();
        let server = place
            .command(&["mount", "-f", "-o", CACHE, "image", "mnt"])
            .spawn();
        let mut mounted = Mounted {
            dir: &dir,
            server: server.unwrap(),
        };
        eventually("the mount answers", || dir.join("0").exists());
        for _ in 0..2 {
            let mut readers = Command::new("sh");
            let read = readers
                .args(["-c", EIGHT])
                .current_dir(&dir)
                .output()
                .unwrap();
            assert_eq!(String::from_utf8_lossy(&read.stdout).trim(), contents);
        }
        let peak = peak(mounted.server.id());
        assert!(unmount(&dir), "{args:?} stays mounted");
        assert!(mounted.server.wait().unwrap().success());
        assert!(peak < SMALL, "{args:?} took {peak} bytes");
    }
}
