//! `cargo xtask report` without measurements.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// All programs that a bench compares with.
const PEERS: [&str; 9] = [
    "erofsfuse",
    "fsck.erofs",
    "fsck.exfat",
    "mkfs.erofs",
    "mkfs.exfat",
    "mksquashfs",
    "mount.exfat-fuse",
    "squashfuse_ll",
    "unsquashfs",
];

fn report(arguments: &[&str]) -> Output {
    let mut report = Command::new(env!("CARGO_BIN_EXE_xtask"));
    report.args(["report", "--kept"]).args(arguments);
    report.output().unwrap()
}

fn stub(path: &Path, version: &str) {
    let log = path.with_file_name("called");
    let name = path.file_name().unwrap().to_str().unwrap();
    let script = format!(
        "#!/bin/sh\necho {name} >> {}\necho {name} {version}\n",
        log.display()
    );
    fs::write(path, script).unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_programs_of_peers_come_before_those_of_the_system() {
    let dir = tempfile::tempdir().unwrap();
    for (turn, place) in ["", "bin", "sbin"].into_iter().enumerate() {
        let home = dir.path().join(place);
        fs::create_dir_all(&home).unwrap();
        for peer in PEERS.iter().skip(turn).step_by(3) {
            stub(&home.join(peer), "99.1");
        }
    }
    let output = report(&["--peers", dir.path().to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let mut called = String::new();
    for place in ["", "bin", "sbin"] {
        called += &fs::read_to_string(dir.path().join(place).join("called")).unwrap();
    }
    let mut called: Vec<&str> = called.lines().collect();
    called.sort_unstable();
    called.dedup();
    assert_eq!(called, PEERS);
    for peer in PEERS {
        assert!(said.contains(&format!("{peer} 99.1\n")), "{peer}: {said}");
    }
}

#[test]
fn an_old_program_is_called_old() {
    let dir = tempfile::tempdir().unwrap();
    stub(&dir.path().join("mksquashfs"), "4.5.1");
    let output = report(&["--peers", dir.path().to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("mksquashfs 4.5.1, older than 4."), "{said}");
}

#[test]
fn the_time_is_told_and_a_wrong_name_refused() {
    let said = String::from_utf8(report(&["--only", "exfat/read,romfs"]).stdout).unwrap();
    assert!(
        said.contains("romfs: about") && said.contains("exfat: about"),
        "{said}"
    );
    assert!(
        said.contains("together about") && !said.contains("squashfs: about"),
        "{said}"
    );
    let wrong = report(&["--only", "nothing"]);
    let error = String::from_utf8(wrong.stderr).unwrap();
    assert!(
        !wrong.status.success() && error.contains("no bench is named"),
        "{error}"
    );
}
