//! Failures of a restart: either the old or the new process continues, and the user who asked for
//! the restart is told.

use std::fs::{self, File};
use std::io::Write as _;
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::ran;
use crate::restarting::{Scene, eventually, is_running, successor};

/// Stops a process, and waits until all of its threads have stopped. The signal stops one thread;
/// the others run on until the kernel schedules them next.
fn stop(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    let threads = format!("/proc/{}/task", process.as_raw_nonzero());
    let is_stopped = |thread: fs::DirEntry| {
        // A thread that has ended has no file.
        let stat = fs::read_to_string(thread.path().join("stat"));
        stat.map_or(true, |stat| stat.contains(") T "))
    };
    eventually("the process has stopped", || {
        let mut threads = fs::read_dir(&threads).unwrap();
        threads.all(|thread| is_stopped(thread.unwrap()))
    });
}

/// Starts a restart that cannot continue. The log is a pipe without a reader: a new process waits
/// for one before it has opened the image.
fn with_a_slow_start() -> Option<(Scene, Child, Pid, Pid)> {
    let scene = Scene::new("squashfs")?;
    let pipe = scene.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let reader = File::options().read(true).write(true).open(&pipe).unwrap();
    scene.mount(&["--log", "pipe"]);
    drop(reader);
    let (supervisor, old) = (scene.supervisor(), scene.server());
    let mut restart = scene.command(&["-q", "restart", "mnt"]);
    let restart = restart
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut new = None;
    eventually("a new process is there", || {
        new = successor(supervisor, old);
        new.is_some()
    });
    Some((scene, restart, old, new?))
}

#[test]
fn if_the_new_process_is_killed_the_old_one_goes_on() {
    let Some((scene, restart, old, new)) = with_a_slow_start() else {
        return;
    };
    scene.answers();
    scene.refused("another restart is in progress");
    kill_process(new, Signal::KILL).unwrap();
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
    let Some((scene, restart, old, _)) = with_a_slow_start() else {
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
fn the_requester_may_go_away() {
    let Some((scene, mut restart, old, _)) = with_a_slow_start() else {
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
        scene.run(&["status", "--json"]).mounts()[0]["pid"].is_u64()
    });
    scene.answers();
    drop(reader);
}

#[test]
fn if_it_is_unmounted_meanwhile_it_is_unmounted() {
    let Some((scene, restart, old, new)) = with_a_slow_start() else {
        return;
    };
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
        scene.run(&["status", "--json"]).mounts()[0]["pid"].is_u64()
    });
    scene.refused("runs in the foreground");
    scene.run(&["umount", "mnt"]).ok();
    assert!(served.wait().unwrap().success());

    scene.mount(&["--trace", "trace"]);
    scene.refused("records a trace");
    scene.run(&["umount", "mnt"]).ok();

    scene.mount(&["-o", "restarts=0"]);
    scene.refused("it was mounted with restarts=0, so it has no supervisor");
    scene.run(&["umount", "mnt"]).ok();

    scene.mount(&[]);
    scene.kill_all();
    assert!(fs::read_dir(scene.path("mnt/d1")).is_err());
    scene.refused("no process of yours serves it");
    scene.run(&["umount", "mnt"]).ok();
    assert!(!scene.is_mounted());
}

#[test]
fn a_volume_with_open_files_that_were_removed_is_not_handed_over() {
    let Some(scene) = Scene::new("exfat") else {
        return;
    };
    scene.mount(&[]);
    let old = scene.server();
    let mut file = File::create(scene.path("mnt/new")).unwrap();
    fs::rename(scene.path("mnt/new"), scene.path("mnt/other")).unwrap();
    fs::remove_file(scene.path("mnt/other")).unwrap();
    scene.refused("1 removed files are still open");
    file.write_all(b"it goes on").unwrap();
    drop(file);
    assert_eq!(scene.server(), old);
    fs::write(scene.path("mnt/new"), "it goes on").unwrap();
    eventually("the file is closed", || scene.restart().code == Some(0));
    assert_ne!(scene.server(), old);
    assert_eq!(fs::read(scene.path("mnt/new")).unwrap(), b"it goes on");
    scene.run(&["umount", "mnt"]).ok();
    scene.mount(&["-o", "ro"]);
    scene.restart().ok();
    assert_eq!(fs::read(scene.path("mnt/new")).unwrap(), b"it goes on");
    scene.answers();
}

#[test]
fn a_server_that_is_stopped_is_told_of_as_not_answering() {
    let Some(scene) = Scene::new("squashfs") else {
        return;
    };
    scene.mount(&[]);
    let server = scene.server();
    let number = server.as_raw_nonzero().to_string();
    stop(server);
    // In parallel, because each waits as long as a process may take to answer.
    let spawn = |args: &[&str]| {
        let mut command = scene.command(args);
        command.stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let asked = [
        &["-q", "status"][..],
        &["-q", "status", "--json"],
        &["-q", "restart", "mnt"],
    ]
    .map(spawn);
    let [shown, rows, restart] = asked.map(|child| ran(child.wait_with_output().unwrap()));
    kill_process(server, Signal::CONT).unwrap();

    let shown = shown.ok();
    let line = String::from_utf8(shown.stdout).unwrap();
    // A long line is wrapped.
    let words: Vec<_> = line.split_whitespace().collect();
    let end = format!("pid {number} not answering for 10 s");
    assert!(words.join(" ").ends_with(&end), "{line}");
    let rows = rows.ok().mounts();
    assert_eq!(rows[0]["answering"], false);
    assert_eq!(rows[0]["pid"].to_string(), number);
    let told = format!(
        "forerun: mnt: process {number}, which serves it, has not answered for 10 s\n  hint: if the process is stopped, continue it with kill -CONT; on a busy machine, try again"
    );
    if restart.stderr.contains("which serves it") {
        restart.fails(7, &told);
    } else {
        // Older kernels do not report which process serves which mount.
        let text = format!("process {number} has not answered for 10 s, and may");
        assert!(restart.stderr.contains(&text), "{}", restart.stderr);
    }

    scene.restart().ok();
    scene.answers();
    scene.run(&["umount", "mnt"]).ok();
}
