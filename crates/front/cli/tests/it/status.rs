//! `forerun status` of processes with equal ids, or with reused ids.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command};

use forerun_testkit::{TempDir, eventually, require, temp_dir};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::{Ran, command, ran};
use crate::restarting::Scene;

struct Place {
    dir: TempDir,
}

impl Place {
    /// Creates a place. Returns `None` if this machine lacks something.
    fn new() -> Option<Self> {
        if !require::root() || !require::fuse() {
            return None;
        }
        let place = Self {
            dir: temp_dir("status"),
        };
        for name in ["tree", "run", "one", "two"] {
            fs::create_dir(place.path(name)).unwrap();
        }
        fs::write(place.path("tree/file"), "file\n").unwrap();
        let words = ["pack", "-q", "--format", "squashfs", "tree", "image"];
        place.run(&words).ok();
        Some(place)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn with(&self, mut command: Command) -> Command {
        command
            .current_dir(self.path("."))
            .env("XDG_RUNTIME_DIR", self.path("run"));
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        ran(self.with(command(args)).output().unwrap())
    }

    fn status(&self) -> Vec<Value> {
        let mounts = self.run(&["status", "--json"]).ok().json();
        let mut mounts = mounts.as_array().unwrap().clone();
        // Other tests may have dead mounts.
        let here = self.path("");
        mounts.retain(|mount| {
            mount["dir"]
                .as_str()
                .unwrap()
                .starts_with(here.to_str().unwrap())
        });
        mounts
    }

    fn sockets(&self) -> Vec<String> {
        let names = fs::read_dir(self.path("run/forerun")).unwrap();
        let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name();
        names
            .map(|entry| name(entry).into_string().unwrap())
            .collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for dir in ["one", "two"] {
            let _is_unmounted = self.run(&["umount", "--lazy", dir]);
        }
    }
}

#[test]
fn processes_with_the_same_number() {
    let Some(place) = Place::new() else { return };
    if require::program("unshare").is_none() {
        return;
    }
    let mount = |dir: &str| -> Child {
        let forerun = command(&["mount", "-f", "image", dir]);
        let mut unshare = Command::new("unshare");
        // Each process has id 1 in its namespace.
        unshare
            .args(["--pid", "--fork"])
            .arg(forerun.get_program())
            .args(forerun.get_args());
        place.with(unshare).spawn().unwrap()
    };
    let mut served = ["one", "two"].map(mount);
    eventually("both are told of", || place.status().len() == 2);
    let told = place.status();
    for (mount, dir) in told.iter().zip(["one", "two"]) {
        assert_eq!(mount["pid"], 1);
        assert_eq!(mount["dir"], place.path(dir).to_str().unwrap());
        assert!(place.path(dir).join("file").exists());
    }
    assert_ne!(told[0]["device"], told[1]["device"]);
    for (child, dir) in served.iter_mut().zip(["one", "two"]) {
        place.run(&["umount", dir]).ok();
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(place.status(), Vec::<Value>::new());
    assert_eq!(place.sockets(), Vec::<String>::new());
}

#[test]
fn directories_that_other_users_can_change_are_ignored() {
    let Some(place) = Place::new() else { return };
    let dir = place.path("run/forerun");
    fs::create_dir(&dir).unwrap();
    let listener = UnixListener::bind(dir.join("1-00000000.sock")).unwrap();
    std::thread::spawn(move || {
        for asker in listener.incoming() {
            let _gone = asker.unwrap().write_all(b"{\"pid\":1,\"dir\":\"/told\"}\n");
        }
    });
    let nobody = 65534;
    for (owner, mode, is_ignored) in [
        (0, 0o700, false),
        (nobody, 0o755, true),
        (nobody, 0o700, true),
        (0, 0o777, true),
        (0, 0o1777, true),
    ] {
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&dir, Some(owner), None).unwrap();
        let told = place.run(&["status"]);
        assert_eq!(
            told.text().contains("/told"),
            !is_ignored,
            "{owner} {mode:o}"
        );
        assert_eq!(
            told.stderr.contains("is ignored"),
            is_ignored,
            "{}",
            told.stderr
        );
    }
    fs::remove_file(dir.join("1-00000000.sock")).unwrap();
    fs::remove_dir(&dir).unwrap();
    std::os::unix::fs::symlink(place.path("two"), &dir).unwrap();
    let told = place.run(&["status"]);
    assert!(told.stderr.contains("is ignored"), "{}", told.stderr);
}

#[test]
fn roots_of_two_users_namespaces_share_no_directory() {
    let Some(place) = Place::new() else { return };
    let programs = ["setpriv", "unshare"].map(require::program);
    if !require::fuse_for_users() || programs.contains(&None) {
        return;
    }
    let shared = place.path("tmp");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    let program = command(&["status"]);
    for uid in ["65533", "65534"] {
        let mut setpriv = Command::new("setpriv");
        setpriv
            .args(["--reuid", uid, "--regid", uid, "--clear-groups", "--"])
            .args(["unshare", "--user", "--map-root-user", "--mount"])
            .args(["sh", "-ec", "mkdir $TMPDIR/at-$1; $0 mount image $TMPDIR/at-$1; $0 status --json; $0 umount $TMPDIR/at-$1"])
            .arg(program.get_program())
            .arg(uid)
            .env_remove("XDG_RUNTIME_DIR")
            .env("TMPDIR", &shared)
            .env("HOME", &shared)
            .current_dir(place.path("."));
        let told = ran(setpriv.output().unwrap()).ok();
        assert!(!told.stderr.contains("is ignored"), "{}", told.stderr);
        let mounts = told.json();
        assert_eq!(mounts.as_array().unwrap().len(), 1, "{mounts}");
        assert!(shared.join(format!("forerun-{uid}")).is_dir());
    }
}

#[test]
fn sockets_of_processes_that_are_gone() {
    let Some(place) = Place::new() else { return };
    place
        .run(&["mount", "-o", "restarts=0", "image", "one"])
        .ok();
    let gone = place.sockets();
    let old = place.status()[0]["pid"].as_i64().unwrap();
    let old = Pid::from_raw(old.try_into().unwrap()).unwrap();
    let device = place.status()[0]["device"].clone();
    kill_process(old, Signal::KILL).unwrap();
    eventually("no process serves", || {
        fs::read_dir(place.path("one")).is_err_and(|error| error.kind() == ErrorKind::NotConnected)
    });
    let told = place.run(&["status"]);
    let number = old.as_raw_nonzero();
    let note =
        format!("process {number}, which served a mount, was killed; its socket was removed");
    assert!(told.stderr.contains(&note), "{}", told.stderr);
    let line = format!(
        "{}  {}  dead: ",
        place.path("one").display(),
        place.path("image").display()
    );
    // Lines are wrapped at 80 columns.
    let unfolded = told.text().replace("\n    ", "  ");
    assert!(unfolded.contains(&line), "{}", told.text());
    let told = place.status();
    assert_eq!(
        (told.len(), &told[0]["dead"], &told[0]["device"]),
        (1, &true.into(), &device)
    );
    assert_eq!(place.sockets(), Vec::<String>::new());
    place.run(&["umount", "one"]).ok();

    place.run(&["mount", "image", "one"]).ok();
    let pid = place.status()[0]["pid"].clone();
    let own = place.sockets();
    assert_ne!(own, gone);
    // Sockets of a process that had the same id, and of an older version of the program.
    for name in [format!("{pid}-00000000.sock"), format!("{pid}.sock")] {
        drop(UnixListener::bind(place.path("run/forerun").join(name)).unwrap());
    }
    let told = place.status();
    assert_eq!((told.len(), &told[0]["pid"]), (1, &pid));
    assert_eq!(place.sockets(), own);
    place.run(&["-q", "restart", "one"]).ok();
    let told = place.status();
    assert_eq!(told.len(), 1);
    assert_ne!(told[0]["pid"], pid);
    assert_ne!(place.sockets(), own);
    place.run(&["umount", "one"]).ok();
}

#[test]
fn dead_mounts_are_cleared_and_no_others() {
    let Some(place) = Place::new() else { return };
    for dir in ["one", "two"] {
        place.run(&["mount", "-o", "restarts=0", "image", dir]).ok();
    }
    let told = place.status();
    let pid = told[0]["pid"].as_i64().unwrap().try_into().unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    eventually("its mount is dead", || place.status()[0]["dead"] == true);
    assert_eq!(place.status().len(), 2);
    // In a separate namespace, where dead mounts of other tests may be removed.
    let script = r#""$0" umount --dead && cat two/file && ! ls one/file"#;
    let program = command(&["umount"]);
    let mut apart = Command::new("unshare");
    apart
        .args(["--mount", "--propagation", "slave", "sh", "-c", script])
        .arg(program.get_program());
    let told = ran(place.with(apart).output().unwrap());
    assert_eq!(
        (told.code, told.text()),
        (Some(0), "file\n"),
        "{}",
        told.stderr
    );
    assert!(told.stderr.contains("No such file"), "{}", told.stderr);
    for dir in ["one", "two"] {
        place.run(&["umount", dir]).ok();
    }
    assert_eq!(place.run(&["umount", "--dead", "one"]).code, Some(2));
    assert_eq!(place.run(&["umount"]).code, Some(2));
}

#[test]
fn a_dead_mount_under_another_one_is_cleared_too() {
    let Some(place) = Place::new() else { return };
    for dir in ["one", "two"] {
        place.run(&["mount", "-o", "restarts=0", "image", dir]).ok();
    }
    let pids: Vec<_> = place
        .status()
        .iter()
        .map(|mount| mount["pid"].to_string())
        .collect();
    assert_eq!(pids.len(), 2);
    let script = format!(
        r#"mount --bind two one && kill -9 {} &&
        while ls two 2>/dev/null; do sleep 0.01; done &&
        "$0" umount --dead && ls -A one two && ! mountpoint -q one"#,
        pids.join(" ")
    );
    let program = command(&["umount"]);
    let mut apart = Command::new("unshare");
    apart
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .arg(program.get_program());
    let told = ran(place.with(apart).output().unwrap());
    for dir in ["one", "two"] {
        place.run(&["umount", dir]).ok();
    }
    assert_eq!(
        (told.code, told.text()),
        (Some(0), "one:\n\ntwo:\n"),
        "{}",
        told.stderr
    );
}

#[test]
fn the_list_of_processes_shows_what_each_process_of_a_mount_is_for() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&[]);
    for (pid, title) in [
        (scene.server(), "forerun: serves mnt\0"),
        (scene.supervisor(), "forerun: supervisor of mnt\0"),
    ] {
        let line = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
        let line = fs::read_to_string(line).unwrap();
        assert!(line.starts_with(title), "{line}");
    }
    let children = format!(
        "/proc/{0}/task/{0}/children",
        scene.server().as_raw_nonzero()
    );
    let children = fs::read_to_string(children).unwrap();
    let beside = fs::read_to_string(format!("/proc/{}/cmdline", children.trim())).unwrap();
    assert!(
        beside.starts_with("forerun: mounts for the server of mnt\0"),
        "{beside}"
    );
    scene.run(&["umount", "mnt"]).ok();
}

#[test]
fn a_file_that_holds_something_is_not_replaced_by_a_trace() {
    let Some(place) = Place::new() else { return };
    fs::write(place.path("trace"), "a list of years\n").unwrap();
    let refused = place.run(&["mount", "--trace", "trace", "image", "one"]);
    assert_eq!(refused.code, Some(5));
    assert!(
        refused.stderr.contains("trace: exists already"),
        "{}",
        refused.stderr
    );
    assert_eq!(
        fs::read_to_string(place.path("trace")).unwrap(),
        "a list of years\n"
    );
    assert!(place.status().is_empty());
}

#[test]
fn status_is_told_at_the_limit_of_processes() {
    let Some(place) = Place::new() else { return };
    if [require::program("setpriv"), require::program("prlimit")].contains(&None) {
        return;
    }
    // A user id that no process has.
    let user = 61_234;
    let dir = place.path("run/forerun");
    fs::create_dir(&dir).unwrap();
    let listener = UnixListener::bind(dir.join("7-00000000.sock")).unwrap();
    fs::set_permissions(place.path("."), fs::Permissions::from_mode(0o755)).unwrap();
    for path in [place.path("run"), dir.clone()] {
        std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
    }
    let socket = dir.join("7-00000000.sock");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let program = command(&["status"]);
    let user = user.to_string();
    let mut limited = Command::new("setpriv");
    limited
        .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--"])
        .args(["prlimit", "--nproc=1:1"])
        .arg(program.get_program())
        .arg("status");
    let told = ran(place.with(limited).output().unwrap());
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    // The process was asked all the same.
    assert!(
        told.stderr
            .contains("a process of another user listens there"),
        "{}",
        told.stderr
    );
    drop(listener);
}

#[test]
fn a_stopped_server_is_told_of_and_force_fails_what_waits_for_it() {
    let Some(place) = Place::new() else { return };
    place
        .run(&["mount", "-o", "restarts=0", "image", "one"])
        .ok();
    let told = place.status();
    let pid: i32 = told[0]["pid"].as_i64().unwrap().try_into().unwrap();
    let pid = Pid::from_raw(pid).unwrap();
    let opened = fs::File::open(place.path("one")).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let busy = place.run(&["umount", "one"]);
    let missing = place.path("one/missing");
    let waiting = std::thread::spawn(move || fs::metadata(missing));
    let forced = place.run(&["umount", "--force", "one"]);
    let answer = waiting.join().unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    drop(opened);
    assert_eq!(busy.code, Some(7), "{}", busy.stderr);
    assert!(
        busy.stderr.contains("no process serves it"),
        "{}",
        busy.stderr
    );
    assert_eq!(forced.code, Some(0), "{}", forced.stderr);
    assert_ne!(answer.unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!place.path("one/file").exists());
    eventually("its process has ended", || place.status().is_empty());
}
