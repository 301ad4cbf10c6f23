//! No mount stays behind whichever process is killed, and no mount ends too early.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::common::{Fixture, WAYS};

fn start(command: &mut Command) -> (Child, PathBuf) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(child.stdout.as_mut().unwrap());
    reader.read_line(&mut line).unwrap();
    (child, PathBuf::from(line.trim_end()))
}

/// Kills the runtime processes whose command line contains all `words`.
fn kill_processes(words: &[&str]) -> usize {
    let mut killed = 0;
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.parse::<u32>().is_ok()) else {
            continue;
        };
        let line = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        let has = |word: &&str| line.split('\0').any(|part| part == *word);
        if line.starts_with("forerun-runtime\0") && words.iter().all(has) {
            assert!(
                Command::new("kill")
                    .args(["-9", pid])
                    .status()
                    .unwrap()
                    .success()
            );
            killed += 1;
        }
    }
    killed
}

#[test]
fn a_killed_program_leaves_nothing() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    for (way, is_root) in WAYS {
        let mut command = fixture.command(is_root);
        command.env("FORERUN_RUNTIME_WAYS", way).arg("wait");
        let (mut child, place) = start(&mut command);
        assert!(place.starts_with(fixture.temp.path().join("tmp")), "{way}");
        child.kill().unwrap();
        child.wait().unwrap();
        fixture.becomes_clean(way);
    }
}

#[test]
fn a_killed_server_leaves_nothing() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    // The image's path is unique to this test.
    let target = fixture.image.to_str().unwrap();
    for (way, is_root) in WAYS {
        let mut command = fixture.command_of(crate::common::RUNTIME.as_ref(), is_root);
        command
            .env("FORERUN_RUNTIME_WAYS", way)
            .env("TARGET_APPIMAGE", target)
            .arg("wait");
        let (mut child, _place) = start(&mut command);
        assert_eq!(kill_processes(&[target]), 1, "{way}");
        fixture.becomes_clean(way);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn a_killed_extraction_is_removed_when_its_program_ends() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    let mut command = fixture.command(false);
    command.args(["--appimage-extract-and-run", "wait"]);
    let (mut child, place) = start(&mut command);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(place.join("AppRun").exists(), "the program still runs");
    // Retry: a process's environment is briefly unreadable during exec.
    let wanted = format!("APPDIR={}\0", place.display());
    forerun_testkit::eventually("the program is killed, and its files are removed", || {
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let found = fs::read(entry.path().join("environ")).unwrap_or_default();
            if String::from_utf8_lossy(&found).contains(&wanted) {
                let _it_may_have_ended = Command::new("kill").arg(entry.file_name()).status();
            }
        }
        fixture.is_clean()
    });
}

#[test]
fn a_mount_lasts_until_it_is_killed() {
    let Some(fixture) = Fixture::new("zstd") else {
        return;
    };
    for is_root in [true, false] {
        let (mut child, place) = start(fixture.command(is_root).arg("--appimage-mount"));
        let mut diff = fixture.command_of("diff".as_ref(), is_root);
        diff.args(["-r", "--no-dereference"])
            .args([&fixture.tree, &place]);
        assert!(diff.status().unwrap().success());
        child.kill().unwrap();
        child.wait().unwrap();
        fixture.becomes_clean("mount");
    }
    let mut command = fixture.command(true);
    let (mut child, place) = start(command.arg("--appimage-mount"));
    assert!(
        Command::new("umount")
            .arg(place)
            .status()
            .unwrap()
            .success()
    );
    assert!(child.wait().unwrap().success(), "ends with the mount");
    fixture.becomes_clean("unmounted");
}

#[test]
fn processes_that_the_program_leaves_keep_the_mount() {
    let Some(fixture) = Fixture::new("gzip") else {
        return;
    };
    for (way, is_root) in WAYS {
        let fifo = fixture.temp.path().join(format!("tmp/{way}{is_root}"));
        assert!(
            Command::new("mkfifo")
                .args(["-m", "666"])
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
        let mut command = fixture.command(is_root);
        command
            .env("FORERUN_RUNTIME_WAYS", way)
            .arg("leave")
            .arg(&fifo);
        assert!(command.status().unwrap().success());
        fs::write(&fifo, "go on\n").unwrap();
        let sum = PathBuf::from(format!("{}.sum", fifo.display()));
        let read = || fs::read_to_string(&sum).is_ok_and(|text| text.contains(" -"));
        forerun_testkit::eventually(way, read);
        for path in [fifo, sum] {
            fs::remove_file(path).unwrap();
        }
        fixture.becomes_clean(way);
    }
}
