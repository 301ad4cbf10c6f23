//! `mount IMAGE DIR -- CMD`, and `mount --partition`.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_testkit::{eventually, require};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::common::Fixture;
use crate::common::volume::{Volume, unmount};

/// Creates a tree, an image of it, and a directory to mount it on. Returns `None` without root or
/// FUSE.
fn fixture() -> Option<Fixture> {
    if !require::root() || !require::fuse() {
        return None;
    }
    let fixture = Fixture::tree();
    fixture.run(&["pack", "tree", "a.sqsh"]).ok();
    fs::create_dir(fixture.path("mnt")).unwrap();
    Some(fixture)
}

fn is_mounted(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let dir = dir.canonicalize().unwrap();
    mounts.contains(&format!(" {} ", dir.display()))
}

#[test]
fn a_mount_lasts_as_long_as_its_command() {
    let Some(fixture) = fixture() else {
        return;
    };
    let run =
        |command: &[&str]| fixture.run(&[&["mount", "a.sqsh", "mnt", "--"], command].concat());
    let mnt = fixture.path("mnt");
    let told = run(&["cat", "mnt/etc/passwd"]).ok();
    assert_eq!(told.text(), "root:x:0:0\n");
    assert!(!is_mounted(&mnt));
    for (script, code) in [
        ("exit 7", 7),
        ("kill -KILL $$", 137),
        ("cd mnt; sleep 300 & exit 3", 3),
    ] {
        let script = format!("{script}\n");
        let told = fixture
            .command(&["mount", "a.sqsh", "mnt", "--", "sh", "-c", &script])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(told.code(), Some(code), "{script}");
        assert!(!is_mounted(&mnt), "{script}");
    }
    let missing = run(&["./no-such-program", "a"]);
    let message = "forerun: ./no-such-program: No such file or directory";
    missing.fails(127, message);
    assert!(!is_mounted(&mnt));
    // The command does not run if the mount fails.
    let failed = fixture.run(&["mount", "none.sqsh", "mnt", "--", "touch", "ran"]);
    assert_eq!(failed.code, Some(4), "{}", failed.stderr);
    assert!(!fixture.path("ran").exists());
}

#[test]
fn signals_go_to_the_command_of_a_mount() {
    let Some(fixture) = fixture() else {
        return;
    };
    for (signal, trap, code) in [
        ("TERM", "exit 9", 9),
        ("INT", "exit 8", 8),
        ("TERM", "trap - TERM; kill $$", 143),
    ] {
        let script = format!("trap '{trap}' {signal}; touch started; while :; do sleep 0.05; done");
        let mut child = fixture
            .command(&["mount", "a.sqsh", "mnt", "--", "sh", "-c", &script])
            .spawn()
            .unwrap();
        let started = fixture.path("started");
        eventually("the command runs", || started.exists());
        let sent = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        let status = child.wait().unwrap();
        assert_eq!(
            (status.code(), status.signal()),
            (Some(code), None),
            "{signal}"
        );
        assert!(!is_mounted(&fixture.path("mnt")));
        fs::remove_file(started).unwrap();
    }
}

/// Kills the process that has made the mount and waits for the command. The command continues.
#[test]
fn a_mount_ends_with_its_launcher_when_that_is_killed() {
    let Some(fixture) = fixture() else {
        return;
    };
    let mnt = fixture.path("mnt");
    for options in [&[][..], &["-o", "restarts=0"]] {
        let script = "cd mnt && echo $$ > ../pid && exec sleep 1000";
        let words = [
            &["mount"],
            options,
            &["a.sqsh", "mnt", "--", "sh", "-c", script],
        ]
        .concat();
        let mut launcher = fixture.command(&words).spawn().unwrap();
        let pid = || {
            fs::read_to_string(fixture.path("pid"))
                .ok()?
                .trim()
                .parse::<i32>()
                .ok()
        };
        eventually("the command runs", || pid().is_some());
        assert!(is_mounted(&mnt));
        launcher.kill().unwrap();
        launcher.wait().unwrap();
        eventually("it is unmounted", || !is_mounted(&mnt));
        let command = pid().unwrap();
        // The command's working directory is served as long as it is used.
        let file = format!("/proc/{command}/cwd/etc/passwd");
        assert_eq!(fs::read_to_string(file).unwrap(), "root:x:0:0\n");
        kill_process(Pid::from_raw(command).unwrap(), Signal::KILL).unwrap();
        eventually("no process serves it", || {
            let told = fixture.run(&["status", "--json"]).ok().mounts();
            let dir = mnt.canonicalize().unwrap();
            let mut all = told.as_array().unwrap().iter();
            !all.any(|mount| mount["dir"].as_str() == dir.to_str())
        });
        fs::remove_file(fixture.path("pid")).unwrap();
    }
}

#[test]
fn an_image_whose_root_cannot_be_read_is_not_mounted() {
    let Some(fixture) = fixture() else {
        return;
    };
    fixture
        .run(&["pack", "--format", "erofs", "tree", "a.erofs"])
        .ok();
    // The location of the root in the superblock.
    for (image, at, place) in [
        ("a.sqsh", 32, &[0, 0, 0xff, 0xff, 0, 0, 0, 0][..]),
        ("a.erofs", 1024 + 14, &[0xff, 0x7f]),
    ] {
        let mut bytes = fs::read(fixture.path(image)).unwrap();
        bytes[at..at + place.len()].copy_from_slice(place);
        fs::write(fixture.path(image), bytes).unwrap();
        let told = fixture.run(&["mount", image, "mnt"]);
        assert_ne!(told.code, Some(0), "{image}");
        assert!(
            !is_mounted(&fixture.path("mnt")),
            "{image}: {}",
            told.stderr
        );
    }
}

#[test]
fn what_a_command_writes_to_a_volume_is_there_when_its_mount_is_gone() {
    let Some(volume) = Volume::new("mount-command") else {
        return;
    };
    let file = volume.mnt().join("file");
    let script = format!("echo text > {}", file.display());
    let mnt = volume.mnt();
    let after = [mnt.to_str().unwrap(), "--", "sh", "-c", &script];
    volume.forerun(&["mount"], &after).ok();
    volume.tool("fsck.exfat", &["-n"]);
    assert_eq!(volume.forerun(&["cat"], &["/file"]).ok().text(), "text\n");
}

fn disk(fixture: &Fixture) {
    let image = fs::read(fixture.path("a.sqsh")).unwrap();
    let sectors = u32::try_from(image.len().div_ceil(512)).unwrap();
    let mut disk = vec![0; 1 << 20];
    for (entry, start, len) in [(0x1be, 1_u32, 8_u32), (0x1ce, 2048, sectors)] {
        disk[entry + 4] = 0x83;
        disk[entry + 8..entry + 12].copy_from_slice(&start.to_le_bytes());
        disk[entry + 12..entry + 16].copy_from_slice(&len.to_le_bytes());
    }
    disk[0x1fe..0x200].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(image);
    disk.resize(disk.len().next_multiple_of(512), 0);
    fs::write(fixture.path("disk.img"), disk).unwrap();
}

#[test]
fn a_partition_is_mounted_by_its_number() {
    let Some(fixture) = fixture() else {
        return;
    };
    disk(&fixture);
    let mount =
        |options: &[&str]| fixture.run(&[&["mount"], options, &["disk.img", "mnt"]].concat());
    for options in [["--partition", "2"], ["-o", "ro,partition=2"]] {
        mount(&options).ok();
        let text = fs::read_to_string(fixture.path("mnt/etc/passwd")).unwrap();
        assert_eq!(text, "root:x:0:0\n");
        unmount(&fixture.path("mnt"));
    }
    let told = mount(&["--partition", "3"]);
    assert_eq!(told.code, Some(1));
    assert!(
        told.stderr
            .contains("disk.img: has no partition 3; it has these: 1 ("),
        "{}",
        told.stderr
    );
    mount(&["--partition", "2", "-o", "offset=1M"]).fails(
        2,
        "forerun: a partition has its own offset and size: leave one of them out",
    );
    mount(&["-o", "partition=x"]).fails(2, "forerun: mount option partition=x: not a number");
}

#[test]
fn the_command_gets_the_descriptors_of_the_caller() {
    let Some(fixture) = fixture() else {
        return;
    };
    let program = fixture.command(&["x"]);
    let script = "exec 5< tree/etc/passwd 6> written; \
                  \"$0\" mount a.sqsh mnt -- sh -c 'cat <&5 >&6'; echo after >&6";
    let told = Command::new("sh")
        .args(["-c", script])
        .arg(program.get_program())
        .current_dir(fixture.path("."))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success() && errors.is_empty(), "{errors}");
    let written = fs::read_to_string(fixture.path("written")).unwrap();
    assert_eq!(written, "root:x:0:0\nafter\n");
}

/// Creates a [`fixture`]. Returns `None` also if no terminal can be made.
fn fixture_for_terminals() -> Option<Fixture> {
    require::program("script")?;
    fixture()
}

/// Runs a script on a pseudo-terminal with `stty tostop`, which stops background processes that
/// write to it, and closes the terminal.
fn on_a_terminal(fixture: &Fixture, script: &str) -> String {
    let line = format!("stty tostop; {script}");
    let output = Command::new("script")
        .args(["--quiet", "--command", &line, "/dev/null"])
        .stdin(Stdio::null())
        .current_dir(fixture.dir.path())
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_mount_outlives_its_terminal_in_the_session_of_its_caller() {
    let Some(fixture) = fixture_for_terminals() else {
        return;
    };
    let program = env!("CARGO_BIN_EXE_forerun");
    for options in ["", "-o restarts=0"] {
        let script = format!("echo $$; {program} mount {options} a.sqsh mnt");
        let session = on_a_terminal(&fixture, &script);
        let passwd = fs::read_to_string(fixture.path("mnt/etc/passwd")).unwrap();
        assert_eq!(passwd, "root:x:0:0\n");
        let of_mount = |mount: &Value| mount["dir"].as_str() == fixture.path("mnt").to_str();
        let mounts = fixture.run(&["status", "--json"]).ok().mounts();
        let mount = mounts.as_array().unwrap().iter().find(|at| of_mount(at));
        let pid = mount.unwrap()["pid"].to_string();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let fields: Vec<_> = stat.split(' ').collect();
        // Group, session and terminal: proc_pid_stat(5).
        assert_eq!(fields[4..7], [&pid, session.trim(), "0"], "{options}");
        unmount(&fixture.path("mnt"));
    }
}

#[test]
fn a_terminal_that_stops_the_background_gets_the_errors_of_a_mount() {
    let Some(fixture) = fixture_for_terminals() else {
        return;
    };
    fs::write(fixture.path("bad.sqsh"), "hsqs").unwrap();
    let program = env!("CARGO_BIN_EXE_forerun");
    let script = format!("timeout 60 {program} mount bad.sqsh mnt; echo $?");
    let told = on_a_terminal(&fixture, &script);
    assert!(
        told.contains("bad.sqsh") && told.ends_with("\n1\r\n"),
        "{told}"
    );
}

#[test]
fn one_of_several_tasks_mounts_if_needed() {
    let Some(fixture) = fixture() else {
        return;
    };
    fixture.run(&["pack", "tree", "b.sqsh"]).ok();
    let mnt = fixture.path("mnt");
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let mut task = fixture.command(&["mount", "--if-needed", "a.sqsh", "mnt"]);
            task.stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let told = tasks.into_iter().map(|task| {
        let output = task.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{text}");
        text
    });
    let notes = told.filter(|text| text.contains("a.sqsh is already mounted on"));
    assert_eq!(notes.count(), 5);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = format!(" {} ", mnt.canonicalize().unwrap().display());
    assert_eq!(mounts.matches(&place).count(), 1);
    let again = fixture.run(&["mount", "a.sqsh", "mnt"]);
    assert_eq!(again.code, Some(9), "{}", again.stderr);
    let other = fixture.run(&["mount", "--if-needed", "b.sqsh", "mnt"]);
    assert_eq!(other.code, Some(7), "{}", other.stderr);
    let part = fixture.run(&["mount", "--if-needed", "-o", "offset=4096", "a.sqsh", "mnt"]);
    assert_eq!(part.code, Some(2), "{}", part.stderr);
    unmount(&mnt);
    assert!(!is_mounted(&mnt));
}
