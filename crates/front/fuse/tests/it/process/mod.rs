//! The serving process from outside: started, killed, stopped by signals.

mod helper;
mod scene;
mod unprivileged;

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_testkit::{children, eventually, require};
use rustix::process::Signal;

use self::scene::{BIG, Scene};
use crate::common::{as_nobody, is_mounted, run};

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
        (
            &["mount", "image.romfs", "nowhere"][..],
            "hint: make it first: mkdir /",
            7,
        ),
        (&["mount", "nowhere", "mnt"], "nowhere: No such file", 4),
        (
            &["mount", "tree/big", "mnt"],
            "not an image of a known format",
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
        let output = children::output(&mut scene.forerun(words)).unwrap();
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
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let server = children::spawn(&mut command).unwrap();
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
    // Before the file is closed: a server whose last file is closed exits at once.
    let log = scene.place.dir().join("log");
    eventually("the log says why it goes on", || {
        fs::read_to_string(&log).unwrap().contains("in use")
    });
    drop(file);
    scene.is_gone();

    // The second signal does not wait.
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
        // A dead mount looks alive if everything is in the kernel's caches.
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
    // A mount unmounted by another process ends normally.
    assert!(scene.mount("auto_unmount").0);
    assert!(run(Command::new("umount").arg(scene.mnt())).0);
    scene.is_gone();
}

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
        let before = is_mounted(&inner);
        mount_tmpfs(&inner);
        scene.signal(Signal::KILL);
        eventually("the watchdog has ended", || scene.helpers().is_empty());
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

/// Returns the IDs of the processes that have a file open.
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
    // The image is named by a descriptor, which the background process must open first.
    let script = r#"exec "$0" mount -o auto_unmount /dev/fd/8 mnt 7<secret 8<image.romfs"#;
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(&scene.program);
    let (ok, text) = run(shell.current_dir(scene.place.dir()));
    assert!(ok, "{text}");
    scene.answers();
    assert!(holders(&secret).is_empty());
    let processes = scene.processes();
    let holding = holders(&scene.image);
    // The supervisor, the server, and the helper, which is also the watchdog.
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
