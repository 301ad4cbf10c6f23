//! Files of a composefs mount that the kernel itself reads, while their server is replaced.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use forerun_testkit::generate;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use super::{BIG, Scene, eventually};

/// The files that are opened repeatedly, including `big`.
const FILES: [&str; 4] = ["big", "d3/3", "d5/23", "d0/12"];

/// A shell that was started from the mount, so that its code is mapped from there.
struct Shell(Child);

impl Shell {
    fn start(scene: &Scene) -> Self {
        let mut command = Command::new(scene.path("mnt/shell"));
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(piped.spawn().unwrap())
    }

    fn answers(&mut self, number: u32) {
        let input = self.0.stdin.as_mut().unwrap();
        writeln!(input, "echo $(({number} + 1))").unwrap();
        let mut line = String::new();
        let output = self.0.stdout.as_mut().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, format!("{}\n", number + 1));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ended = self.0.kill();
        let _ended = self.0.wait();
    }
}

fn scene(options: &str) -> Option<Scene> {
    let scene = Scene::new("composefs")?;
    fs::copy("/bin/sh", scene.path("tree/shell")).unwrap();
    scene.pack("composefs");
    let options = format!("restarts=1000{options}");
    scene.mount(&["-o", &options, "--log", "log"]);
    Some(scene)
}

fn requests(scene: &Scene, kind: &str) -> u64 {
    let status = scene.run(&["status", "--json"]).ok().mounts();
    status[0]["fuse_requests"][kind].as_u64().unwrap_or(0)
}

fn open(scene: &Scene, name: &str) -> File {
    let opened = File::open(scene.path("mnt").join(name));
    opened.unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn is_whole(scene: &Scene, name: &str, file: &File) {
    let expected = fs::read(scene.path("tree").join(name)).unwrap();
    let mut bytes = vec![0; expected.len() + 1];
    let mut len = 0;
    while let count @ 1.. = file.read_at(&mut bytes[len..], len as u64).unwrap() {
        len += count;
    }
    assert!(bytes[..len] == expected, "{name}");
}

/// Unmounts. A child process that another test is starting may have copies of this test's files
/// open for a moment.
fn end(scene: &Scene) {
    eventually("unmounted", || {
        scene.run(&["umount", "mnt"]).code == Some(0)
    });
}

/// Replaces the server `times` times while files are open and a program runs, and opens the files
/// again.
pub fn open_again(times: u32, replace: impl Fn(&Scene)) {
    let Some(scene) = scene("") else {
        return;
    };
    let mut shell = Shell::start(&scene);
    let mut held: Vec<(&str, File)> = Vec::new();
    for time in 0..times {
        held.extend(FILES.map(|name| (name, open(&scene, name))));
        shell.answers(time);
        let old = scene.server();
        replace(&scene);
        for name in FILES {
            is_whole(&scene, name, &open(&scene, name));
        }
        eventually("another process serves", || scene.server() != old);
        let started = Command::new(scene.path("mnt/shell"))
            .args(["-c", "exit 7"])
            .status();
        assert_eq!(started.unwrap().code(), Some(7));
        shell.answers(time);
        for (name, file) in &held {
            is_whole(&scene, name, file);
        }
        // One file stays open from the first server to the last; the others are open for a while or
        // closed.
        let keep = |n: usize| n == 0 || (time % 5 != 4 && !n.is_multiple_of(3));
        let mut n = 0..;
        held.retain(|_| n.next().is_some_and(keep));
        // No byte of a file passes through the server.
        assert_eq!(requests(&scene, "read"), 0);
    }
    held.clear();
    drop(shell);
    let closed = requests(&scene, "release");
    eventually("a file that was closed is released", || {
        is_whole(&scene, "d3/3", &open(&scene, "d3/3"));
        requests(&scene, "release") > closed + FILES.len() as u64
    });
    scene.answers();
    assert_eq!(requests(&scene, "read"), 0);
    let log = fs::read_to_string(scene.path("log")).unwrap();
    let mut errors = log.lines().filter(|line| line.contains("ERROR"));
    assert!(errors.all(|line| line.contains("has died")), "{log}");
    end(&scene);
}

/// Replaces an object by another file with its bytes while files are open, before or after the
/// server is replaced.
pub fn replaced_object(replace: impl Fn(&Scene)) {
    let Some(scene) = scene(",verity=on") else {
        return;
    };
    let big = generate::bytes(1, BIG);
    let mut held = open(&scene, "big");
    replace(&scene);
    let object = object_of_big(&scene);
    let copy = object.with_extension("copy");
    fs::copy(&object, &copy).unwrap();
    fs::rename(&copy, &object).unwrap();
    // The kernel continues to read the old file for the existing handle.
    for _ in 0..3 {
        let refused = File::open(scene.path("mnt/big")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(5));
        replace(&scene);
    }
    let mut bytes = Vec::new();
    held.read_to_end(&mut bytes).unwrap();
    assert!(bytes == big);
    drop(held);
    eventually("the file is closed", || {
        File::open(scene.path("mnt/big")).is_ok()
    });
    let held = [open(&scene, "big"), open(&scene, "big")];
    replace(&scene);
    for file in held.iter().chain([&open(&scene, "big")]) {
        is_whole(&scene, "big", file);
    }
    assert_eq!(requests(&scene, "read"), 0);
    drop(held);
    end(&scene);
}

/// Replaces the server while the kernel reads an object, which is removed. The kernel closes it
/// with the last handle.
pub fn given_back(replace: impl Fn(&Scene)) {
    let Some(scene) = scene("") else {
        return;
    };
    let first = open(&scene, "big");
    replace(&scene);
    // The previous server registered it under this number.
    let second = open(&scene, "big");
    let object = object_of_big(&scene);
    let events = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    // A file without a name is deleted when it is closed.
    inotify::add_watch(&events, &object, WatchFlags::DELETE_SELF).unwrap();
    fs::remove_file(&object).unwrap();
    let is_deleted = || rustix::io::read(&events, &mut [0; 64]).is_ok();
    drop(first);
    replace(&scene);
    is_whole(&scene, "big", &second);
    assert!(!is_deleted());
    drop(second);
    eventually("the kernel has closed the object", is_deleted);
    end(&scene);
}

fn object_of_big(scene: &Scene) -> PathBuf {
    let big = generate::bytes(1, BIG);
    let mut objects = walk(&scene.path("store")).into_iter();
    objects.find(|path| fs::read(path).unwrap() == big).unwrap()
}

fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
