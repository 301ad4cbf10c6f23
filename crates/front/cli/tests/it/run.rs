//! `forerun run`: commands whose root directory is an image. The programs of this system are bound
//! into it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use forerun_testkit::{TempDir, children, eventually, require, temp_dir};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::{Ran, command, ran};

pub const NOBODY: u32 = 65534;
/// Directories with the programs of a Debian system.
const PROGRAMS: [&str; 4] = ["/usr", "/bin", "/lib", "/lib64"];

/// A directory with an image, and the user who runs commands in it.
pub struct Place {
    dir: TempDir,
    pub is_root: bool,
}

impl Place {
    pub fn new(is_root: bool) -> Option<Self> {
        let possible = require::root()
            && require::fuse_for_users()
            && require::kernel_filesystem("overlay")
            && require::program("setpriv").is_some();
        if !possible {
            return None;
        }
        let dir = temp_dir("run");
        let place = Self { dir, is_root };
        let tree = place.path("tree");
        for name in ["etc", "data", "real"] {
            fs::create_dir_all(tree.join(name)).unwrap();
        }
        fs::write(tree.join("data/file"), "of the image\n").unwrap();
        chown(tree.join("data/file"), Some(1000), Some(1000)).unwrap();
        std::os::unix::fs::symlink("/run/no/resolv.conf", tree.join("etc/resolv.conf")).unwrap();
        std::os::unix::fs::symlink("real", tree.join("alias")).unwrap();
        std::os::unix::fs::symlink("/proc/self/exe", tree.join("itself")).unwrap();
        fs::create_dir(place.path("upper")).unwrap();
        fs::write(place.path("upper/added"), "above\n").unwrap();
        for (input, output) in [("tree", "a.sqsh"), ("upper", "b.sqsh")] {
            let packed = command(&["pack", "-q", input, output])
                .current_dir(place.dir.path())
                .output();
            ran(packed.unwrap()).ok();
        }
        fs::create_dir(place.path("work")).unwrap();
        fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        if !is_root {
            chown(place.path("work"), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Some(place)
    }

    pub fn of_each() -> impl Iterator<Item = Self> {
        [true, false].into_iter().filter_map(Self::new)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns `forerun run` with these options, the programs of the system, and a command.
    pub fn command(&self, options: &[&str], words: &[&str]) -> Command {
        let program = command(&["x"]);
        let program = program.get_program().to_str().unwrap();
        let mut all = vec![
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--",
        ];
        if self.is_root {
            all.clear();
        }
        all.extend([program, "run"]);
        all.extend(options);
        for dir in PROGRAMS.into_iter().filter(|dir| Path::new(dir).exists()) {
            all.extend(["--bind", dir]);
        }
        all.push("--");
        all.extend(words);
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).stdin(Stdio::null());
        command.current_dir(self.path("work"));
        command
    }

    pub fn run(&self, options: &[&str], words: &[&str]) -> Ran {
        ran(children::output(&mut self.command(options, words)).unwrap())
    }

    pub fn sh(&self, options: &[&str], script: &str) -> Ran {
        self.run(options, &["sh", "-c", script])
    }

    /// Asserts that no process works in the directory, and that no mount comes from it.
    fn is_left_alone(&self) {
        let dir = self.dir.path();
        eventually("all processes have ended", || {
            let processes = fs::read_dir("/proc").unwrap().flatten();
            !processes.into_iter().any(|process| {
                fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(dir))
            })
        });
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains("a.sqsh"), "{mounts}");
    }
}

#[test]
fn forerun_needs_no_library_of_the_image() {
    let (Some(busybox), Some(place)) = (require::program("busybox"), Place::new(true)) else {
        return;
    };
    fs::copy(busybox, place.path("tree/busybox")).unwrap();
    let packed = command(&["pack", "-q", "tree", "static.sqsh"])
        .current_dir(place.dir.path())
        .output();
    ran(packed.unwrap()).ok();
    // The loader searches each of these directories first, so it is still working when the root
    // directory changes.
    let slow: String = (0..3000).map(|number| format!("/{number}:")).collect();
    let ran_there = command(&["run", "static.sqsh", "--", "/busybox", "true"])
        .current_dir(place.dir.path())
        .env("LD_LIBRARY_PATH", slow)
        .output();
    ran(ran_there.unwrap()).ok();
}

#[test]
fn a_command_sees_the_image_and_what_every_command_expects() {
    for place in Place::of_each() {
        let script = "id -u; echo *; cat /data/file; echo $$; ls /dev/null /dev/pts/ptmx /proc/self/exe; \
                      ls /tmp /sys | head -n 2; pwd";
        let told = place.sh(&["../a.sqsh"], script).ok();
        let lines: Vec<_> = told.text().lines().collect();
        let (user, names) = (lines[0], lines[1]);
        assert_eq!(user, "0");
        for name in [
            "alias", "bin", "data", "dev", "etc", "proc", "real", "sys", "tmp", "usr",
        ] {
            assert!(names.split(' ').any(|word| word == name), "{name}: {names}");
        }
        assert_eq!((lines[2], lines[3]), ("of the image", "2"));
        assert_eq!(
            lines[4..8],
            ["/dev/null", "/dev/pts/ptmx", "/proc/self/exe", "/sys:"]
        );
        assert_eq!(lines.last(), Some(&"/"));
        if let Ok(servers) = fs::read_to_string("/etc/resolv.conf") {
            let told = place.run(&["../a.sqsh"], &["cat", "/etc/resolv.conf"]).ok();
            assert_eq!(told.text(), servers);
        }
        place.is_left_alone();
    }
}

#[test]
fn the_exit_status_is_that_of_the_command() {
    let Some(place) = Place::new(false) else {
        return;
    };
    for (script, code) in [
        ("exit 0", 0),
        ("exit 9", 9),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        assert_eq!(
            place.sh(&["../a.sqsh"], script).code,
            Some(code),
            "{script}"
        );
    }
    let image = "../a.sqsh";
    for (options, word, code, expected) in [
        (
            &[image][..],
            "/nosuch",
            127,
            "forerun: /nosuch: No such file or directory",
        ),
        (
            &[image],
            "/data/file",
            126,
            "forerun: /data/file: Permission denied",
        ),
        (
            &["no.sqsh"],
            "true",
            4,
            "forerun: no.sqsh: No such file or directory",
        ),
        (
            &[image, "--bind", "/no"],
            "true",
            4,
            "forerun: /no: No such file or directory",
        ),
        (
            &[image, "--bind", "/etc:/data/file"],
            "true",
            7,
            "forerun: --bind /data/file: the image has a file there",
        ),
        (
            &[image, "--chdir", "/no"],
            "true",
            7,
            "forerun: --chdir /no: No such file or directory",
        ),
    ] {
        place.run(options, &[word]).fails(code, expected);
    }
    let told = place.run(&["/bin/sh"], &["true"]);
    assert_eq!(told.code, Some(3), "{}", told.stderr);
    place.is_left_alone();
}

#[test]
fn changes_go_where_the_overlay_is_and_nowhere_else() {
    for place in Place::of_each() {
        let changing =
            "echo changed >> /data/file && rm -r /real && mkdir /real && echo new > /real/file";
        let told = place.sh(&["../a.sqsh"], changing);
        assert_ne!(told.code, Some(0));
        assert!(
            told.stderr.contains("Read-only file system"),
            "{}",
            told.stderr
        );
        place
            .sh(&["--overlay", "tmpfs", "../a.sqsh"], changing)
            .ok();
        assert_eq!(fs::read_dir(place.path("work")).unwrap().count(), 0);
        let kept = ["--overlay", "kept", "../a.sqsh"];
        place.sh(&kept, changing).ok();
        let told = place.sh(&kept, "cat /data/file /alias/file").ok();
        assert_eq!(told.text(), "of the image\nchanged\nnew\n");
        let names = |dir: &str| {
            let entries = fs::read_dir(place.path("work").join(dir))
                .unwrap()
                .flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort();
            names.join(" ")
        };
        // Mount points are not recorded as changes.
        assert_eq!(
            (names("kept"), names("kept/upper")),
            ("upper".into(), "data real".into())
        );
        place.is_left_alone();
    }
}

#[test]
fn two_commands_do_not_share_an_overlay() {
    let Some(place) = Place::new(false) else {
        return;
    };
    let options = ["--overlay", "kept", "../a.sqsh"];
    let (mut child, _) = started(&place, &options, "echo started; sleep 1000");
    place
        .run(&options, &["true"])
        .fails(5, "forerun: kept: another forerun run uses this directory");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
}

#[test]
fn images_are_merged_and_files_of_the_system_are_shown() {
    for place in Place::of_each() {
        let told = place
            .sh(&["../a.sqsh:../b.sqsh"], "cat /added /data/file")
            .ok();
        assert_eq!(told.text(), "above\nof the image\n");
        fs::write(place.path("work/mine"), "mine\n").unwrap();
        let options = [
            "../a.sqsh",
            "--bind",
            "mine:/data/mine",
            "--bind",
            ".:/alias/deep",
            "--bind",
            ".:/tmp/x:ro",
        ];
        let script = "cat /data/mine /real/deep/mine /tmp/x/mine; echo more > /real/deep/more; echo no > /tmp/x/no";
        let told = place.sh(&options, script);
        assert_eq!((told.code, told.text()), (Some(2), "mine\nmine\nmine\n"));
        assert!(
            told.stderr.contains("Read-only file system"),
            "{}",
            told.stderr
        );
        assert_eq!(
            fs::read_to_string(place.path("work/more")).unwrap(),
            "more\n"
        );
        for name in ["mine", "more"] {
            fs::remove_file(place.path("work").join(name)).unwrap();
        }
        let settings = place.sh(&["../a.sqsh"], "echo 1 > /proc/sys/vm/swappiness");
        assert_ne!(settings.code, Some(0));
    }
}

#[test]
fn standard_input_and_signals_reach_the_command() {
    let Some(place) = Place::new(false) else {
        return;
    };
    let file = fs::File::open(place.path("tree/data/file")).unwrap();
    let mut cat = place.command(&["../a.sqsh"], &["cat"]);
    let cat = children::spawn(cat.stdin(file).stdout(Stdio::piped())).unwrap();
    assert_eq!(cat.wait_with_output().unwrap().stdout, b"of the image\n");
    let script = "trap 'echo got; exit 3' USR1; echo started; while :; do sleep 0.05; done";
    let (mut child, mut output) = started(&place, &["../a.sqsh"], script);
    kill_process(Pid::from_child(&child), Signal::USR1).unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(
        (line.as_str(), child.wait().unwrap().code()),
        ("got\n", Some(3))
    );
    place.is_left_alone();
}

#[test]
fn all_that_a_command_left_running_ends_with_it_or_with_forerun() {
    for place in Place::of_each() {
        let told = place.sh(
            &["../a.sqsh", "--bind", ".:/data"],
            "cd /data; setsid sleep 1000 & exit 4",
        );
        assert_eq!(told.code, Some(4));
        place.is_left_alone();
        let script = "cd /data; setsid sleep 1000 & echo started; wait";
        let options = ["../a.sqsh", "--bind", ".:/data", "--overlay", "tmpfs"];
        let (mut child, _) = started(&place, &options, script);
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        place.is_left_alone();
    }
}

/// Starts a script that prints a line when it has begun.
fn started(
    place: &Place,
    options: &[&str],
    script: &str,
) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = place.command(options, &["sh", "-c", script]);
    let mut child = children::spawn(command.stdout(Stdio::piped())).unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "started\n");
    (child, output)
}
