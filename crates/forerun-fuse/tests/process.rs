//! The serving process from outside: started, killed, told to go; without root, in a user namespace,
//! through mount(8).
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{Place, as_nobody, can_mount, is_mounted, romfs, run};
use forerun_testkit::{eventually, forerun_binary, require};
use rustix::process::{Pid, Signal, kill_process};

/// Length of the file `big` of the image.
const BIG: usize = 20 * 1024 * 1024 + 777;

/// A place with the program, an image, and a mountpoint.
struct Scene {
    place: Place,
    program: PathBuf,
    image: PathBuf,
}

impl Scene {
    /// Nothing where this machine lacks what it takes.
    fn new(name: &str) -> Option<Self> {
        let place = Place::new(name);
        let (tree, image) = (place.dir().join("tree"), place.dir().join("image.romfs"));
        fs::create_dir_all(tree.join("dir")).unwrap();
        fs::write(tree.join("dir/hello"), "hello\n").unwrap();
        let bytes = forerun_testkit::generate::bytes(5, BIG);
        fs::write(tree.join("big"), bytes).unwrap();
        if !can_mount() || !romfs(&tree, &image, &["-V", name]) {
            return None;
        }
        // A copy, because other users may have no way to where it was built; by another process,
        // because what this one has open for writing a fork in another test may keep open, and then
        // it cannot be run.
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

    fn mnt(&self) -> PathBuf {
        self.place.mnt()
    }

    fn forerun(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(words).current_dir(self.place.dir());
        command
    }

    fn mount(&self, options: &str) -> (bool, String) {
        run(self
            .forerun(&["mount", "-o", options, "image.romfs", "mnt"])
            .arg("--log=log"))
    }

    fn mount_as_nobody(&self, options: &str) -> (bool, String) {
        let mut command = as_nobody(&self.program);
        command.args(["mount", "-o", options, "image.romfs", "mnt"]);
        run(command.current_dir(self.place.dir()))
    }

    /// The processes that keep and serve the mount; the program's copy here runs nowhere else.
    fn processes(&self) -> Vec<Pid> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let of_scene = processes.filter(|entry| {
            let exe = fs::read_link(entry.path().join("exe"));
            // A process that has ended, and that its parent has not waited for, has no exe.
            exe.is_ok_and(|exe| exe == self.program)
        });
        let pids = of_scene.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(Pid::from_raw).collect()
    }

    /// One of them.
    fn server(&self) -> Option<Pid> {
        self.processes().into_iter().next()
    }

    /// Sends a signal to one of the processes; SIGKILL to all, until there are none.
    fn signal(&self, signal: Signal) {
        assert!(self.server().is_some());
        if signal != Signal::KILL {
            return kill_process(self.server().unwrap(), signal).unwrap();
        }
        eventually("all have ended", || {
            for pid in self.processes() {
                // It may have ended meanwhile.
                let _ended = kill_process(pid, Signal::KILL);
            }
            self.server().is_none()
        });
    }

    fn is_gone(&self) {
        eventually("the process has ended", || self.server().is_none());
        assert!(!is_mounted(&self.mnt()));
    }

    fn answers(&self) {
        assert_eq!(fs::read(self.mnt().join("dir/hello")).unwrap(), b"hello\n");
        assert_eq!(fs::read_dir(self.mnt()).unwrap().count(), 2);
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for _ in 0..3 {
            for pid in self.processes() {
                // Whatever the test expected of it. A keeper may start another before it ends.
                let _ended_meanwhile = kill_process(pid, Signal::KILL);
            }
        }
    }
}

#[test]
fn in_the_background_until_unmounted() {
    let Some(scene) = Scene::new("background") else {
        return;
    };
    assert_eq!(scene.mount("ro"), (true, String::new()));
    scene.answers();
    let server = scene.server().unwrap().as_raw_nonzero();
    let cwd = fs::read_link(format!("/proc/{server}/cwd")).unwrap();
    assert_eq!(cwd, Path::new("/"), "nothing is kept busy");
    let (ok, text) = run(&mut scene.forerun(&["umount", "mnt"]));
    assert!(ok, "{text}");
    scene.is_gone();
    let (ok, text) = run(&mut scene.forerun(&["umount", "mnt"]));
    assert!(!ok && text.contains("nothing is mounted on"), "{text}");
}

#[test]
fn mistakes_are_told_by_the_caller_s_process() {
    let Some(scene) = Scene::new("mistakes") else {
        return;
    };
    for (words, expected, status) in [
        (&["mount", "image.romfs", "nowhere"][..], "mkdir nowhere", 7),
        (&["mount", "nowhere", "mnt"], "nowhere: No such file", 4),
        (
            &["mount", "tree/big", "mnt"],
            "not a romfs or squashfs or composefs or erofs or exfat image",
            3,
        ),
        (
            &["mount", "image.romfs", "image.romfs"],
            "not a directory",
            7,
        ),
        (
            &["mount", "-o", "umsak=7", "image.romfs", "mnt"],
            "unknown mount option \"umsak=7\"",
            2,
        ),
        (
            &["mount", "-o", "offset=1T", "image.romfs", "mnt"],
            "past the end",
            2,
        ),
        (&["umount", "/proc"], "is a mount of type proc", 7),
    ] {
        let output = scene.forerun(words).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{words:?}: {text}");
        assert_eq!(output.status.code(), Some(status), "{words:?}: {text}");
        assert!(scene.server().is_none(), "{words:?}");
    }
    assert!(scene.mount("ro").0);
    let (ok, text) = scene.mount("ro");
    assert!(!ok && text.contains("already mounted on"), "{text}");
    scene.signal(Signal::TERM);
    scene.is_gone();
}

#[test]
fn signals_unmount() {
    let Some(scene) = Scene::new("signals") else {
        return;
    };
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let (ok, text) = scene.mount("ro");
        assert!(ok, "{text}");
        scene.answers();
        scene.signal(signal);
        scene.is_gone();
    }
}

#[test]
fn in_the_foreground_with_counters_at_the_end() {
    let Some(scene) = Scene::new("foreground") else {
        return;
    };
    let words = ["--stats", "mount", "-f", "image.romfs", "mnt"];
    let mut command = scene.forerun(&words);
    let server = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it is mounted", || is_mounted(&scene.mnt()));
    assert_eq!(fs::read(scene.mnt().join("big")).unwrap().len(), BIG);
    scene.signal(Signal::INT);
    let output = server.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains("fuse_read ") && text.contains("source_requests "),
        "{text}"
    );
    scene.is_gone();
}

#[test]
fn in_use_it_is_served_to_the_end_and_no_longer() {
    let Some(scene) = Scene::new("inuse") else {
        return;
    };
    assert!(scene.mount("ro").0);
    let mut file = File::open(scene.mnt().join("big")).unwrap();
    scene.signal(Signal::TERM);
    eventually("it is detached", || !is_mounted(&scene.mnt()));
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), BIG);
    assert!(scene.server().is_some());
    drop(file);
    scene.is_gone();
    let log = fs::read_to_string(scene.place.dir().join("log")).unwrap();
    assert!(log.contains("in use"), "{log}");

    // Impatience: the second signal does not wait.
    assert!(scene.mount("ro").0);
    let file = File::open(scene.mnt().join("big")).unwrap();
    scene.signal(Signal::TERM);
    eventually("it is detached", || !is_mounted(&scene.mnt()));
    scene.signal(Signal::TERM);
    scene.is_gone();
    drop(file);
}

#[test]
fn killed_it_is_cleaned_up_by_umount_and_by_the_next_mount() {
    let Some(scene) = Scene::new("killed") else {
        return;
    };
    let kill = || {
        let (ok, text) = scene.mount("ro");
        assert!(ok, "{text}");
        // With all of it in the kernel's caches a dead mount looks alive.
        scene.answers();
        scene.signal(Signal::KILL);
        eventually("it has ended", || scene.server().is_none());
        assert!(is_mounted(&scene.mnt()), "left behind");
    };
    kill();
    let (ok, text) = run(&mut scene.forerun(&["umount", "mnt"]));
    assert!(ok && !is_mounted(&scene.mnt()), "{text}");
    kill();
    let (ok, text) = scene.mount("ro");
    assert!(ok, "{text}");
    scene.answers();
    let below = run(Command::new("grep")
        .arg("-c")
        .arg(scene.mnt())
        .arg("/proc/self/mountinfo"));
    assert_eq!(below.1.trim(), "1", "the dead one is gone, not covered");
    // Dead and still in use.
    let file = File::open(scene.mnt().join("big")).unwrap();
    scene.signal(Signal::KILL);
    eventually("it has ended", || scene.server().is_none());
    let (ok, text) = run(&mut scene.forerun(&["umount", "mnt"]));
    assert!(ok && !is_mounted(&scene.mnt()), "{text}");
    drop(file);
}

#[test]
fn auto_unmount_goes_with_its_process() {
    let Some(scene) = Scene::new("auto") else {
        return;
    };
    if !require::fusermount() {
        return;
    }
    for signal in [Signal::KILL, Signal::TERM] {
        let (ok, text) = scene.mount("auto_unmount");
        assert!(ok, "{text}");
        scene.answers();
        scene.signal(signal);
        eventually("nothing is left behind", || !is_mounted(&scene.mnt()));
        scene.is_gone();
        let (ok, text) = scene.mount_as_nobody("auto_unmount");
        assert!(ok, "{text}");
        assert!(run(as_nobody("ls").arg(scene.mnt())).0);
        scene.signal(signal);
        eventually("nothing is left behind", || !is_mounted(&scene.mnt()));
        scene.is_gone();
    }
    // Unmounted by somebody else it ends like any other.
    assert!(scene.mount("auto_unmount").0);
    assert!(run(Command::new("umount").arg(scene.mnt())).0);
    scene.is_gone();
}

/// Number of processes of `auto_unmount` for a scene, which have its path among their arguments.
fn guards(scene: &Scene) -> usize {
    let dir = scene.place.dir().display().to_string();
    let is_guard = |entry: &fs::DirEntry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words = String::from_utf8_lossy(&words).into_owned();
        words.contains("forerun-auto-unmount") && words.contains(&dir)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes.filter(is_guard).count()
}

/// Mounts an empty tmpfs on the directory.
fn mount_tmpfs(dir: &Path) {
    let flags = rustix::mount::MountFlags::empty();
    rustix::mount::mount("x", dir, "tmpfs", flags, None::<&std::ffi::CStr>).unwrap();
}

#[test]
fn auto_unmount_leaves_other_mounts_on_top_and_inside_alone() {
    let Some(scene) = Scene::new("auto-covered") else {
        return;
    };
    for inner in [scene.mnt(), scene.mnt().join("dir")] {
        let (ok, text) = scene.mount("auto_unmount");
        assert!(ok, "{text}");
        assert_eq!(guards(&scene), 1);
        let before = is_mounted(&inner);
        mount_tmpfs(&inner);
        scene.signal(Signal::KILL);
        eventually("the guard has ended", || guards(&scene) == 0);
        run(Command::new("umount").arg(&inner));
        assert_eq!(is_mounted(&inner), before, "{}", inner.display());
        assert!(is_mounted(&scene.mnt()), "ours is still there, dead");
        let (ok, text) = run(&mut scene.forerun(&["umount", "mnt"]));
        assert!(ok && !is_mounted(&scene.mnt()), "{text}");
    }
}

#[test]
fn a_dead_mount_is_not_removed_with_a_mount_inside() {
    let Some(scene) = Scene::new("dead-inside") else {
        return;
    };
    assert!(scene.mount("ro").0);
    let inner = scene.mnt().join("dir");
    mount_tmpfs(&inner);
    scene.signal(Signal::KILL);
    eventually("it has ended", || scene.server().is_none());
    for words in [&["umount", "mnt"][..], &["mount", "image.romfs", "mnt"]] {
        let (ok, text) = run(&mut scene.forerun(words));
        assert!(!ok && text.contains("dir"), "{text}");
        assert!(is_mounted(&inner), "{words:?}: {text}");
    }
    assert!(run(Command::new("umount").arg(&inner)).0);
}

/// Numbers of the processes that have a file open.
fn holders(path: &Path) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |number: &i32| {
        let open = fs::read_dir(format!("/proc/{number}/fd"));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|one| fs::read_link(one.path()).is_ok_and(|to| to == path))
    };
    numbers.filter(has_it).collect()
}

#[test]
fn descriptors_of_the_caller_are_not_kept_open() {
    let Some(scene) = Scene::new("inherited") else {
        return;
    };
    let secret = scene.place.dir().join("secret");
    fs::write(&secret, "").unwrap();
    // The image is named by a descriptor, which the process in the background has to open first.
    let script = r#"exec "$0" mount -o auto_unmount /dev/fd/8 mnt 7<secret 8<image.romfs"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(&scene.program);
    let (ok, text) = run(shell.current_dir(scene.place.dir()));
    assert!(ok, "{text}");
    scene.answers();
    assert_eq!(guards(&scene), 1);
    assert!(holders(&secret).is_empty());
    let processes = scene.processes();
    let holding = holders(&scene.image);
    // The keeper, the server, and the process that mounts for it.
    assert_eq!(
        (processes.len(), holding.len()),
        (3, 1),
        "only the server has it"
    );
    assert!(
        processes
            .iter()
            .any(|pid| pid.as_raw_nonzero().get() == holding[0])
    );
    assert!(run(&mut scene.forerun(&["umount", "mnt"])).0);
}

#[test]
fn logs_and_traces_behind_links_of_other_users_are_refused() {
    let Some(scene) = Scene::new("log-link") else {
        return;
    };
    let (shared, victim) = (
        scene.place.dir().join("shared"),
        scene.place.dir().join("victim"),
    );
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(&victim, "victim").unwrap();
    std::os::unix::fs::symlink(&victim, shared.join("log")).unwrap();
    for option in ["--log", "--trace"] {
        let words = ["mount", option, "shared/log", "image.romfs", "mnt"];
        let (ok, text) = run(&mut scene.forerun(&words));
        assert!(!ok && text.contains("symbolic link"), "{option}: {text}");
        assert!(!is_mounted(&scene.mnt()));
        assert_eq!(fs::read(&victim).unwrap(), b"victim");
    }
    let (ok, text) =
        run(&mut scene.forerun(&["mount", "--log", "/dev/null", "image.romfs", "mnt"]));
    assert!(ok, "{text}");
    assert!(run(&mut scene.forerun(&["umount", "mnt"])).0);
}

#[test]
fn without_root() {
    let Some(scene) = Scene::new("rootless") else {
        return;
    };
    if !require::fusermount() {
        return;
    }
    let here = |program: &str, words: &[&str]| {
        run(as_nobody(program)
            .args(words)
            .current_dir(scene.place.dir()))
    };
    let forerun = scene.program.to_str().unwrap();
    assert_eq!(scene.mount_as_nobody("ro"), (true, String::new()));
    assert_eq!(
        here("cat", &["mnt/dir/hello"]),
        (true, "hello\n".to_string())
    );
    assert_eq!(here("cmp", &["mnt/big", "tree/big"]), (true, String::new()));
    let (_, owner) = here("stat", &["-c", "%u:%g %a", "mnt/dir/hello"]);
    assert_eq!(
        owner.trim(),
        "65534:65534 644",
        "formats without owners: the caller's"
    );
    let (_, size) = here("stat", &["-f", "-c", "%s", "mnt"]);
    assert_eq!(size.trim(), "1024");
    assert_eq!(here(forerun, &["umount", "mnt"]), (true, String::new()));
    scene.is_gone();

    assert!(scene.mount_as_nobody("ro").0);
    scene.signal(Signal::KILL);
    eventually("it has ended", || scene.server().is_none());
    assert_eq!(
        here(forerun, &["umount", "mnt"]),
        (true, String::new()),
        "dead"
    );

    fs::create_dir(scene.place.dir().join("foreign")).unwrap();
    let (ok, text) = here(forerun, &["mount", "image.romfs", "foreign"]);
    assert!(
        !ok && text.contains("no write access to mountpoint"),
        "{text}"
    );
    let (ok, text) = here(forerun, &["mount", "-o", "suid", "image.romfs", "mnt"]);
    assert!(!ok && text.contains("suid needs root"), "{text}");
    assert!(!is_mounted(&scene.mnt()));
}

#[test]
fn without_root_data_is_pushed_ahead_of_the_reader() {
    let Some(scene) = Scene::new("pushing") else {
        return;
    };
    if !require::fusermount() {
        return;
    }
    let mut command = as_nobody(&scene.program);
    command.args(["--stats", "mount", "-f", "image.romfs", "mnt"]);
    let mut server = Ended(
        command
            .current_dir(scene.place.dir())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    eventually("it answers", || {
        run(as_nobody("test").arg("-e").arg(scene.mnt().join("big"))).0
    });
    let compared = as_nobody("cmp")
        .args(["mnt/big", "tree/big"])
        .current_dir(scene.place.dir())
        .status();
    assert!(compared.unwrap().success());
    scene.signal(Signal::TERM);
    let mut text = String::new();
    server
        .0
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    let stores = text
        .lines()
        .find_map(|line| line.strip_prefix("fuse_store"));
    assert!(
        stores.is_some_and(|n| n.trim().parse::<u64>().unwrap() > 0),
        "{text}"
    );
}

/// A child that is waited for.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ended_meanwhile = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn in_a_user_namespace() {
    let Some(scene) = Scene::new("userns") else {
        return;
    };
    let possible = run(as_nobody("unshare").args(["-Urm", "true"]));
    if !require::that(possible.0, "unprivileged user namespaces") {
        return;
    }
    let program = scene.program.display();
    let script = format!(
        "set -e; {program} mount image.romfs mnt; cat mnt/dir/hello; cmp mnt/big tree/big; \
         stat -c %u:%g mnt/dir/hello; {program} umount mnt; test -z \"$(ls mnt)\""
    );
    let (ok, text) = run(as_nobody("unshare")
        .args(["-Urm", "sh", "-c", &script])
        .current_dir(scene.place.dir()));
    assert!(ok, "{text}");
    assert_eq!(text, "hello\n0:0\n");
    scene.is_gone();
}

#[test]
fn as_the_helper_of_mount() {
    let Some(scene) = Scene::new("helper") else {
        return;
    };
    let helper = scene.place.dir().join("mount.fuse.forerun");
    std::os::unix::fs::symlink(&scene.program, &helper).unwrap();
    let call = |words: &[&str]| {
        let mut command = Command::new(&helper);
        command
            .arg(&scene.image)
            .arg(scene.mnt())
            .args(words)
            .stdin(Stdio::null());
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    assert_eq!(
        call(&["-n", "-o", "rw,nofail,uid=7"]),
        (Some(0), String::new())
    );
    scene.answers();
    assert_eq!(fs::metadata(scene.mnt().join("big")).unwrap().uid(), 7);
    assert_eq!(call(&[]).0, Some(32), "mount(8)'s word for failed");
    scene.signal(Signal::TERM);
    scene.is_gone();
    assert_eq!(call(&["-f"]), (Some(0), String::new()));
    assert!(scene.server().is_none(), "-f is a rehearsal");
    assert_eq!(call(&["-o", "nonsense"]).0, Some(1));
    let (status, text) = call(&["-s", "-o", "nonsense"]);
    assert!(
        status == Some(0) && text.matches("nonsense").count() == 1,
        "{text}"
    );
    scene.signal(Signal::TERM);
    scene.is_gone();
}

#[test]
fn through_mount_and_fstab() {
    let Some(scene) = Scene::new("fstab") else {
        return;
    };
    if require::program("mount.fuse3").is_none() {
        return;
    }
    // Without a link in /sbin it is mount.fuse3 that finds us in the path: in a mount namespace of
    // our own, so that no other process does.
    let (dir, image, mnt) = (scene.place.dir(), scene.image.display(), scene.mnt());
    let (dir, mnt) = (dir.display(), mnt.display());
    let table = scene.place.dir().join("fstab");
    let line =
        format!("{image} {mnt} fuse.forerun defaults,noauto,nofail,allow_other,x-test 0 0\n");
    fs::write(&table, line).unwrap();
    let script = format!(
        "set -e; mount --bind {dir} /usr/local/bin
         mount -t fuse.forerun -o nolargeblocks,uid=7 {image} {mnt}
         cat {mnt}/dir/hello; stat -c %u {mnt}/dir/hello; umount {mnt}
         mount -T {dir}/fstab {mnt}; cat {mnt}/dir/hello
         grep -o '{mnt} ro,nosuid,nodev' /proc/self/mountinfo; umount {mnt}"
    );
    let (ok, text) = run(Command::new("unshare").args(["-m", "sh", "-c", &script]));
    assert!(ok, "{text}");
    assert_eq!(text, format!("hello\n7\nhello\n{mnt} ro,nosuid,nodev\n"));
    scene.is_gone();
}
