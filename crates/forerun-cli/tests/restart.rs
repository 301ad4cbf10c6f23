//! Another process goes on serving a mount, and who uses it notices nothing.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

mod common;

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{Ran, command, in_namespace, ran};
use forerun_testkit::fault_proxy::{FaultProxy, Link};
use forerun_testkit::servers::Nginx;
use forerun_testkit::{TempDir, generate, require, temp_dir};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};

const NOBODY: u32 = 65534;
/// Length of the largest file of the tree.
const BIG: usize = 12 * 1024 * 1024 + 777;

/// A directory with a tree, an image of it, a mountpoint, and a place for sockets.
struct Scene {
    dir: TempDir,
    nobody: bool,
}

impl Scene {
    /// Nothing where this machine lacks what it takes.
    fn new(format: &str) -> Option<Self> {
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
        let free = ["--free", "1M"];
        let free = if format == "exfat" { &free[..] } else { &[] };
        let words = ["pack", "-q", "--format", format, "tree", "image"];
        scene.run(&[&words, free].concat()).ok();
        Some(scene)
    }

    /// All that follows is done by a user without privileges.
    fn given_to_nobody(mut self) -> Option<Self> {
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

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let forerun = command(args);
        let mut command = match self.nobody {
            false => forerun,
            true => {
                let mut command = Command::new("setpriv");
                command
                    .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
                    .arg(forerun.get_program())
                    .args(forerun.get_args());
                command
            }
        };
        command
            .current_dir(self.path("."))
            .env("XDG_RUNTIME_DIR", self.path("run"));
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        ran(self.command(args).output().unwrap())
    }

    fn mount(&self, args: &[&str]) {
        let words = [&["mount"], args, &["image", "mnt"]].concat();
        self.run(&words).ok();
    }

    /// The process that serves, as it says itself.
    fn server(&self) -> Pid {
        let mounts = self.run(&["status", "--json"]).ok().json();
        let mounts = mounts.as_array().unwrap();
        assert_eq!(mounts.len(), 1, "{mounts:?}");
        Pid::from_raw(mounts[0]["pid"].as_i64().unwrap().try_into().unwrap()).unwrap()
    }

    fn restart(&self) -> Ran {
        self.run(&["-q", "restart", "mnt"])
    }

    #[track_caller]
    fn refused(&self, expected: &str) {
        let told = self.restart();
        assert_eq!(told.code, Some(7), "{}", told.stderr);
        assert!(told.stderr.contains(expected), "{}", told.stderr);
    }

    fn answers(&self) {
        let words = format!("missing-{}", fastrand());
        assert!(!self.path("mnt").join(words).exists());
        assert!(same(&self.path("mnt/d3/3"), &self.path("tree/d3/3")));
    }

    fn is_mounted(&self) -> bool {
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

/// A number that was not given before.
fn fastrand() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Compares, past the page cache.
fn same(left: &Path, right: &Path) -> bool {
    let file = File::open(left).unwrap();
    fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    drop(file);
    fs::read(left).unwrap() == fs::read(right).unwrap()
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < patience, "still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_running(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// A process started by that one.
fn child_of(pid: Pid) -> Option<Pid> {
    let parent = format!("PPid:\t{}\n", pid.as_raw_nonzero());
    let all = fs::read_dir("/proc").unwrap().flatten();
    let child = all
        .filter(|entry| {
            let status = fs::read_to_string(entry.path().join("status"));
            status.is_ok_and(|status| status.contains(&parent) && status.contains("forerun"))
        })
        .find_map(|entry| entry.file_name().to_str()?.parse().ok());
    child.and_then(Pid::from_raw)
}

/// What the readers have met so far.
#[derive(Default)]
struct Met {
    stop: AtomicBool,
    rounds: [AtomicU64; 4],
    wrong: Mutex<Vec<String>>,
}

impl Met {
    /// Does it until it is to stop or has gone wrong.
    fn repeat(&self, which: usize, mut work: impl FnMut() -> Result<(), String>) {
        while !self.stop.load(Ordering::Relaxed) {
            if let Err(what) = work() {
                let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
                wrong.push(format!("reader {which}: {what}"));
                return;
            }
            self.rounds[which].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Every reader has come further, or what is wrong.
    fn all_go_on(&self) {
        let before = self.rounds.each_ref().map(|n| n.load(Ordering::Relaxed));
        eventually("all readers go on", || {
            assert_eq!(*self.wrong.lock().unwrap(), Vec::<String>::new());
            let now = self.rounds.each_ref().map(|n| n.load(Ordering::Relaxed));
            now.iter()
                .zip(before)
                .all(|(now, before)| *now > before + 1)
        });
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Whole files, past the page cache.
fn read_small(scene: &Scene, n: u64) -> Result<(), String> {
    let name = format!("d{}/{n}", n % 6);
    let file = File::open(scene.path("mnt").join(&name)).map_err(text)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(text)?;
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut &file, &mut bytes).map_err(text)?;
    let expected = fs::read(scene.path("tree").join(&name)).map_err(text)?;
    if bytes != expected {
        return Err(format!("wrong bytes in {name}"));
    }
    Ok(())
}

/// Names: of directories, and one that is nowhere and that nobody has asked for yet.
fn look_around(scene: &Scene) -> Result<(), String> {
    let mut count = 0;
    for entry in fs::read_dir(scene.path("mnt")).map_err(text)? {
        let path = entry.map_err(text)?.path();
        if path.is_dir() {
            count += fs::read_dir(&path).map_err(text)?.count();
            let missing = path.join(format!("missing-{}", fastrand()));
            match missing.symlink_metadata() {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                other => return Err(format!("{other:?}")),
            }
        }
    }
    match count {
        24 => Ok(()),
        count => Err(format!("{count} files")),
    }
}

/// Restarts while all kinds of readers are at work.
fn ten_times_under_load(format: &str) {
    let Some(scene) = Scene::new(format) else {
        return;
    };
    scene.mount(&[]);
    let big = generate::bytes(1, BIG);
    let open = File::open(scene.path("mnt/big")).unwrap();
    let met = Met::default();
    std::thread::scope(|threads| {
        for which in [0, 1] {
            let (met, scene) = (&met, &scene);
            threads.spawn(move || {
                let mut n = 11 * which as u64;
                met.repeat(which, || {
                    n = (n + 1) % 24;
                    read_small(scene, n)
                });
            });
        }
        threads.spawn(|| {
            // Opened once, before all restarts.
            let (mut at, mut piece) = (0, vec![0; 300_000]);
            met.repeat(2, || {
                let count = open.read_at(&mut piece, at as u64).map_err(text)?;
                if piece[..count] != big[at..at + count] {
                    return Err(format!("wrong bytes at {at}"));
                }
                at += count;
                if count == 0 {
                    at = 0;
                    fadvise(&open, 0, None, Advice::DontNeed).map_err(text)?;
                }
                Ok(())
            });
        });
        threads.spawn(|| met.repeat(3, || look_around(&scene)));
        let work = || {
            let mut servers = vec![scene.server()];
            for _ in 0..10 {
                met.all_go_on();
                scene.restart().ok();
                let server = scene.server();
                assert!(!servers.contains(&server));
                servers.push(server);
            }
            met.all_go_on();
            for old in servers.split_last().unwrap().1 {
                assert!(!is_running(*old), "{old:?} has ended");
            }
        };
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        met.stop.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            // Readers that hang would be waited for in vain.
            drop(scene.run(&["umount", "--lazy", "mnt"]));
            let _ended = kill_process(scene.server(), Signal::KILL);
            std::panic::resume_unwind(panic);
        }
    });
    drop(open);
    let server = scene.server();
    scene.run(&["umount", "mnt"]).ok();
    eventually("the last process has ended", || !is_running(server));
    assert!(!scene.is_mounted());
}

#[test]
fn nobody_notices_squashfs() {
    ten_times_under_load("squashfs");
}

#[test]
fn nobody_notices_erofs() {
    ten_times_under_load("erofs");
}

#[test]
fn without_root() {
    let Some(scene) = Scene::new("squashfs").and_then(Scene::given_to_nobody) else {
        return;
    };
    scene.mount(&[]);
    let script = "while [ ! -e run/stop ]; do \
        dd if=mnt/big bs=64k iflag=nocache 2>/dev/null | cmp - tree/big || exit 1; \
        stat mnt/missing-$((n += 1)) 2>/dev/null && exit 2; done; exit 0";
    let mut reader = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .args(["sh", "-c", script])
        .current_dir(scene.path("."))
        .spawn()
        .unwrap();
    let mut last = scene.server();
    for _ in 0..5 {
        scene.restart().ok();
        let server = scene.server();
        assert_ne!(server, last);
        last = server;
    }
    fs::write(scene.path("run/stop"), "").unwrap();
    assert!(reader.wait().unwrap().success());
    scene.run(&["umount", "mnt"]).ok();
    eventually("the last process has ended", || !is_running(last));
}

#[test]
fn in_a_user_namespace() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    if require::program("unshare").is_none() {
        return;
    }
    fs::remove_dir(scene.path("mnt")).unwrap();
    std::os::unix::fs::chown(scene.path("run"), Some(NOBODY), Some(NOBODY)).unwrap();
    let script = r#"
        export XDG_RUNTIME_DIR=$PWD/run
        "$0" mount image mnt || exit 1
        exec 3< mnt/big
        head -c 100000 <&3 | cmp - -n 100000 tree/big || exit 2
        for _ in 1 2 3; do "$0" -q restart mnt || exit 3; done
        cmp mnt/d3/3 tree/d3/3 && cmp mnt/big tree/big || exit 4
        exec 3<&-
        "$0" umount mnt || exit 5"#;
    in_namespace(scene.dir.path(), script);
}

/// The log is a pipe without a reader: a new process waits for one before it has opened the image.
fn with_a_slow_start() -> Option<(Scene, Child, Pid)> {
    let scene = Scene::new("squashfs")?;
    let pipe = scene.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let reader = File::options().read(true).write(true).open(&pipe).unwrap();
    scene.mount(&["--log", "pipe"]);
    drop(reader);
    let old = scene.server();
    let mut restart = scene.command(&["-q", "restart", "mnt"]);
    let restart = restart
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    eventually("a new process is there", || child_of(old).is_some());
    Some((scene, restart, old))
}

#[test]
fn if_the_new_process_is_killed_the_old_one_goes_on() {
    let Some((scene, restart, old)) = with_a_slow_start() else {
        return;
    };
    scene.answers();
    scene.refused("a restart is under way already");
    kill_process(child_of(old).unwrap(), Signal::KILL).unwrap();
    let told = ran(restart.wait_with_output().unwrap());
    told.fails(7, "forerun: mnt: the new process ended before it was ready");
    assert_eq!(scene.server(), old);
    scene.answers();
    let reader = File::options()
        .read(true)
        .write(true)
        .open(scene.path("pipe"));
    scene.restart().ok();
    scene.answers();
    drop(reader);
}

#[test]
fn if_the_old_process_is_killed_meanwhile_the_new_one_takes_over() {
    let Some((scene, restart, old)) = with_a_slow_start() else {
        return;
    };
    kill_process(old, Signal::KILL).unwrap();
    eventually("it is gone", || !is_running(old));
    let reader = File::options()
        .read(true)
        .write(true)
        .open(scene.path("pipe"));
    let told = ran(restart.wait_with_output().unwrap());
    assert_eq!(told.stderr, "");
    assert_ne!(scene.server(), old);
    scene.answers();
    drop(reader);
}

#[test]
fn who_asked_for_it_may_go_away() {
    let Some((scene, mut restart, old)) = with_a_slow_start() else {
        return;
    };
    restart.kill().unwrap();
    restart.wait().unwrap();
    let reader = File::options()
        .read(true)
        .write(true)
        .open(scene.path("pipe"));
    eventually("the old process has ended", || !is_running(old));
    eventually("the new one serves", || {
        scene.run(&["status", "--json"]).json()[0]["pid"].is_u64()
    });
    scene.answers();
    drop(reader);
}

#[test]
fn if_it_is_unmounted_meanwhile_it_is_unmounted() {
    let Some((scene, restart, old)) = with_a_slow_start() else {
        return;
    };
    let new = child_of(old).unwrap();
    scene.run(&["umount", "mnt"]).ok();
    eventually("the old process has ended", || !is_running(old));
    let reader = File::options()
        .read(true)
        .write(true)
        .open(scene.path("pipe"));
    let told = ran(restart.wait_with_output().unwrap());
    assert_eq!(told.code, Some(7), "{}", told.stderr);
    eventually("the new process has ended", || !is_running(new));
    assert!(!scene.is_mounted());
    drop(reader);
}

#[test]
fn the_guardian_stays() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&["-o", "auto_unmount"]);
    for _ in 0..3 {
        scene.restart().ok();
        scene.answers();
    }
    kill_process(scene.server(), Signal::KILL).unwrap();
    eventually("it is unmounted", || !scene.is_mounted());
    scene.mount(&["-o", "auto_unmount"]);
    scene.restart().ok();
    scene.run(&["umount", "mnt"]).ok();
}

#[test]
fn the_program_that_is_installed_now() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    let program = scene.path("forerun");
    let copy = |to: &Path| {
        let mut cp = Command::new("cp");
        cp.arg(command(&["x"]).get_program()).arg(to);
        assert!(cp.status().unwrap().success());
    };
    copy(&program);
    let mounted = Command::new(&program)
        .args(["mount", "image", "mnt"])
        .current_dir(scene.path("."))
        .env("XDG_RUNTIME_DIR", scene.path("run"))
        .output();
    ran(mounted.unwrap()).ok();
    copy(&scene.path("forerun.new"));
    fs::rename(scene.path("forerun.new"), &program).unwrap();
    let exe = |pid: Pid| fs::read_link(format!("/proc/{}/exe", pid.as_raw_nonzero())).unwrap();
    assert!(
        exe(scene.server())
            .to_str()
            .unwrap()
            .ends_with(" (deleted)")
    );
    scene.restart().ok();
    assert_eq!(exe(scene.server()), program);
    scene.answers();
}

#[test]
fn an_image_that_was_replaced_is_not_served() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&[]);
    let old = scene.server();
    fs::copy(scene.path("image"), scene.path("other")).unwrap();
    fs::rename(scene.path("other"), scene.path("image")).unwrap();
    scene.refused("is not the one that is mounted on");
    assert_eq!(scene.server(), old);
    fs::remove_file(scene.path("image")).unwrap();
    scene.refused("No such file");
    assert_eq!(scene.server(), old);
    scene.answers();
}

#[test]
fn what_cannot_be_restarted_is_told() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.refused("mnt: nothing is mounted there");
    scene.run(&["restart", "/proc"]).fails(
        7,
        "forerun: /proc: is a mount of type proc, not one of forerun's",
    );

    let mut served = scene.command(&["mount", "-f", "image", "mnt"]);
    let mut served = served.spawn().unwrap();
    eventually("it is mounted", || {
        scene.run(&["status", "--json"]).json()[0]["pid"].is_u64()
    });
    scene.refused("runs in the foreground");
    scene.run(&["umount", "mnt"]).ok();
    assert!(served.wait().unwrap().success());

    scene.mount(&["--trace", "trace"]);
    scene.refused("records a trace");
    scene.run(&["umount", "mnt"]).ok();

    scene.mount(&[]);
    let server = scene.server();
    kill_process(server, Signal::KILL).unwrap();
    eventually("it is gone", || !is_running(server));
    assert!(fs::read_dir(scene.path("mnt/d1")).is_err());
    scene.refused("no process of yours serves it");
    scene.run(&["umount", "mnt"]).ok();
    assert!(!scene.is_mounted());
}

#[test]
fn a_volume_mounted_for_writing_is_not_handed_over() {
    let Some(scene) = Scene::new("exfat") else {
        return;
    };
    scene.mount(&[]);
    let old = scene.server();
    let mut file = File::create(scene.path("mnt/new")).unwrap();
    scene.refused("mounted for writing");
    file.write_all(b"it goes on").unwrap();
    drop(file);
    assert_eq!(scene.server(), old);
    assert_eq!(fs::read(scene.path("mnt/new")).unwrap(), b"it goes on");
    scene.run(&["umount", "mnt"]).ok();
    scene.mount(&["-o", "ro"]);
    scene.restart().ok();
    assert_eq!(fs::read(scene.path("mnt/new")).unwrap(), b"it goes on");
    scene.answers();
}

/// Each chunk takes so long that at any time a request of the kernel is unanswered.
#[test]
fn requests_under_way_are_sent_again() {
    let Some(scene) = Scene::new("erofs") else {
        return;
    };
    let Some(nginx) = Nginx::serve(scene.dir.path()) else {
        return;
    };
    let proxy = FaultProxy::start(&nginx.url());
    let link = |millis| Link {
        rtt: Duration::from_millis(millis),
        bytes_per_second: None,
    };
    let url = proxy.url_of("image");
    let cache = ["--cache-dir", "cache", "--fetch-ahead", "off"];
    let words = [&["mount"], &cache[..], &[&url, "mnt"]].concat();
    scene.run(&words).ok();
    proxy.set_link(link(400));
    let expected = fs::read(scene.path("tree/big")).unwrap();
    let mut servers = vec![scene.server()];
    let at = AtomicU64::new(0);
    std::thread::scope(|threads| {
        let reader = threads.spawn(|| {
            let file = File::open(scene.path("mnt/big")).unwrap();
            let mut bytes = vec![0; BIG];
            for piece in bytes.chunks_mut(1 << 20) {
                let offset = at.load(Ordering::Relaxed);
                file.read_exact_at(piece, offset).unwrap();
                at.store(offset + piece.len() as u64, Ordering::Relaxed);
            }
            assert!(bytes == expected);
        });
        eventually("the reader has begun", || at.load(Ordering::Relaxed) > 0);
        while !reader.is_finished() && servers.len() < 4 {
            scene.restart().ok();
            servers.push(scene.server());
        }
        proxy.set_link(link(0));
        reader.join().unwrap();
    });
    let count = servers.len();
    servers.dedup();
    assert!(count == servers.len() && count > 1, "{servers:?}");
    let status = scene.run(&["status", "--json"]).ok().json();
    assert!(status[0]["remote"]["local_bytes"].is_u64(), "{status}");
    scene.run(&["umount", "mnt"]).ok();
}

#[test]
fn files_that_the_kernel_reads_by_itself() {
    let Some(scene) = Scene::new("erofs") else {
        return;
    };
    let words = [
        "pack",
        "-q",
        "--force",
        "--format",
        "composefs",
        "--objects",
    ];
    let packed = scene.run(&[&words[..], &["store", "tree", "image"]].concat());
    assert_eq!(packed.code, Some(0), "{}", packed.stderr);
    scene.mount(&["-o", "objects=store"]);
    let mut file = File::open(scene.path("mnt/big")).unwrap();
    let told = scene.restart();
    if told.code == Some(0) {
        // This kernel does not.
        assert!(!require::in_ci());
    } else {
        let expected = "forerun: mnt: 1 files are open that the kernel reads by itself, which only \
             the process that opened them can keep; try again when they are closed";
        told.fails(7, expected);
    }
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
    assert!(bytes == generate::bytes(1, BIG));
    drop(file);
    // The release of a file comes after close(2) has returned.
    eventually("the file is closed", || scene.restart().code == Some(0));
    scene.answers();
    assert!(same(&scene.path("mnt/big"), &scene.path("tree/big")));
    scene.restart().ok();
    scene.run(&["umount", "mnt"]).ok();
}
