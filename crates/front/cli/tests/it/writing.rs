//! extract, tar and pack: what they write, and what they refuse.

use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use forerun_testkit::{eventually, require};
use serde_json::json;

use crate::common::{BIG, Fixture, big, command, ran};

fn tree(dir: &Path) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut pending = vec![PathBuf::from(dir)];
    while let Some(at) = pending.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                pending.push(path.clone());
            }
            found.push(
                path.strip_prefix(dir)
                    .unwrap()
                    .as_os_str()
                    .as_bytes()
                    .to_vec(),
            );
        }
    }
    found.sort();
    found
}

#[test]
fn extract_gives_back_the_tree() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.run(&["extract", "-C", "out", "a.img"]).ok();
    assert_eq!(tree(&fixture.path("out")), tree(&fixture.path("tree")));
    assert!(fs::read(fixture.path("out/hard")).unwrap() == big());
    let link = fs::read_link(fixture.path("out/link")).unwrap();
    assert_eq!(link, Path::new("etc/passwd"));
}

/// Uses a filesystem inside a file: the file's contents are what was written to its disk.
#[test]
fn extract_with_sync_has_all_on_disk_at_the_end() {
    const SCRIPT: &str = r#"set -e
        truncate --size=64M disk
        "$1" -q -F -b 4096 disk
        mkdir mnt
        mount -o loop disk mnt
        "$0" extract --sync -C mnt/out a.img
        cp disk at-end
        umount mnt"#;
    let (Some(fixture), true) = (Fixture::new(), require::root()) else {
        return;
    };
    let Some(mkfs) = require::program("mkfs.ext4") else {
        return;
    };
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", SCRIPT]);
    unshare.arg(command(&["--version"]).get_program()).arg(mkfs);
    let output = unshare.current_dir(fixture.dir.path()).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let (disk, big) = (fs::read(fixture.path("at-end")).unwrap(), big());
    let pages: HashSet<&[u8]> = disk.chunks(4096).collect();
    let missing = big.chunks_exact(4096).filter(|page| !pages.contains(page));
    assert_eq!(missing.count(), 0);
}

#[test]
fn extract_takes_what_was_asked_for() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for (args, expected) in [
        (&["/etc"][..], &["etc", "etc/empty", "etc/passwd"][..]),
        (&["--include", "pass*"], &["etc", "etc/passwd"]),
        (&["--exclude", "/etc", "--exclude", "[bho]*"], &["link"]),
        (&["etc", "--strip-components", "1"], &["empty", "passwd"]),
    ] {
        let args = [&["extract", "-C", "out", "a.img"], args].concat();
        fixture.run(&args).ok();
        let found = tree(&fixture.path("out"));
        let expected: Vec<_> = expected
            .iter()
            .map(|path| path.as_bytes().to_vec())
            .collect();
        assert_eq!(found, expected, "{args:?}");
        fs::remove_dir_all(fixture.path("out")).unwrap();
    }
}

#[test]
fn extract_overwrites_only_when_told() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fs::create_dir_all(fixture.path("out/etc")).unwrap();
    fs::write(fixture.path("out/etc/passwd"), "mine").unwrap();
    let args = ["extract", "-C", "out", "a.img", "etc"];
    fixture.run(&args).fails(
        6,
        "forerun: a.img: /etc/passwd: cannot create: File exists\n  hint: --force replaces it",
    );
    assert_eq!(fs::read(fixture.path("out/etc/passwd")).unwrap(), b"mine");
    assert!(fixture.path("out/etc/empty").is_dir());
    let report = fixture.run(&["extract", "--json", "-C", "out", "a.img", "etc"]);
    assert_eq!(report.code, Some(6));
    let report = report.json();
    assert_eq!(report["image"], "a.img");
    assert_eq!(report["files"], 0);
    for field in ["directories", "bytes", "hard_links", "symlinks", "specials"] {
        assert!(report[field].is_u64(), "{field}");
    }
    let failures = json!([{
        "kind": "output",
        "subject": "a.img",
        "path": "/etc/passwd",
        "message": "cannot create: File exists",
        "hint": "--force replaces it",
    }]);
    assert_eq!(report["failures"], failures);
    fixture.run(&[&args[..], &["--force"]].concat()).ok();
    assert_eq!(
        fs::read(fixture.path("out/etc/passwd")).unwrap(),
        b"root:x:0:0\n"
    );
}

#[test]
fn extract_to_standard_output_writes_contents_and_nothing_to_disk() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let args = ["extract", "-O", "a.img", "/etc", "bin"];
    let out = fixture.run(&args).ok();
    assert_eq!(out.text(), "root:x:0:0\n#!/bin/sh\n");
    let args = ["extract", "--to-stdout", "--include", "tool", "a.img"];
    assert_eq!(fixture.run(&args).ok().text(), "#!/bin/sh\n");
    assert!(!fixture.path("etc").exists() && !fixture.path("bin").exists());
    let both = fixture.run(&["extract", "-O", "-C", "out", "a.img"]);
    assert_eq!(both.code, Some(2), "{}", both.stderr);
}

#[test]
fn maps_of_owners_that_are_none_are_refused() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    for command in ["extract", "tar"] {
        let refused = fixture.run(&[command, "--uid-map", "root:5", "a.img"]);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert!(refused.stderr.contains("--uid-map"), "{}", refused.stderr);
    }
}

#[test]
fn tar_is_read_by_tar() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.run(&["tar", "-o", "a.tar", "a.img"]).ok();
    let to_stdout = fixture.run(&["tar", "a.img"]).ok().stdout;
    assert!(fs::read(fixture.path("a.tar")).unwrap() == to_stdout);
    fs::create_dir(fixture.path("out")).unwrap();
    let status = Command::new("tar")
        .args(["-x", "-C", "out", "-f", "a.tar"])
        .current_dir(fixture.dir.path())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(tree(&fixture.path("out")), tree(&fixture.path("tree")));
    assert!(fs::read(fixture.path("out/big")).unwrap() == big());
}

#[test]
fn pack_makes_what_the_other_commands_read() {
    let fixture = Fixture::tree();
    let args = [
        "pack", "-q", "--format", "romfs", "--align", "4096", "--label", "mine",
    ];
    let made = fixture
        .run(&[&args[..], &["--json", "tree", "a.img"]].concat())
        .ok()
        .json();
    assert_eq!(
        (&made["output"], &made["format"]),
        (&json!("a.img"), &json!("romfs"))
    );
    let len = fs::metadata(fixture.path("a.img")).unwrap().len();
    assert_eq!(made["image_bytes"], len);
    assert!(made["content_bytes"].as_u64().unwrap() > BIG.try_into().unwrap());
    assert!(made["nodes"].is_u64());
    let info = fixture.run(&["info", "--json", "a.img"]).ok().json();
    assert_eq!(info["label"], "mine");
    fixture.run(&["check", "a.img"]).ok();
    fixture.run(&["extract", "-C", "out", "a.img"]).ok();
    assert_eq!(tree(&fixture.path("out")), tree(&fixture.path("tree")));
    // Writes the same again to standard output and with the option.
    let piped = fixture
        .run(&[&args[..], &["tree", "-"]].concat())
        .ok()
        .stdout;
    assert!(piped == fs::read(fixture.path("a.img")).unwrap());
    fixture
        .run(&[&args[..], &["-o", "b.img", "tree"]].concat())
        .ok();
    assert!(piped == fs::read(fixture.path("b.img")).unwrap());
}

#[test]
fn pack_takes_tar_from_a_file_and_from_a_pipe() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.run(&["tar", "-o", "a.tar", "a.img"]).ok();
    let pack = ["pack", "-q", "--format", "romfs"];
    fixture
        .run(&[&pack[..], &["a.tar", "file.img"]].concat())
        .ok();
    let tar = fs::read(fixture.path("a.tar")).unwrap();
    fixture
        .run_piped(&[&pack[..], &["-", "pipe.img"]].concat(), tar)
        .ok();
    // From where the caller has read to.
    let script =
        "{ head -c 512 >/dev/null; \"$0\" pack -q --format romfs - rest.img; } < padded.tar";
    let padded = [&[b'x'; 512][..], &fs::read(fixture.path("a.tar")).unwrap()].concat();
    fs::write(fixture.path("padded.tar"), padded).unwrap();
    let mut shell = Command::new("sh");
    shell.args(["-c", script, env!("CARGO_BIN_EXE_forerun")]);
    ran(shell.current_dir(fixture.path("")).output().unwrap()).ok();
    let made = fs::read(fixture.path("file.img")).unwrap();
    assert!(made == fs::read(fixture.path("rest.img")).unwrap());
    let made = fs::read(fixture.path("file.img")).unwrap();
    assert!(made == fs::read(fixture.path("pipe.img")).unwrap());
    assert!(fixture.run(&["cat", "file.img", "hard"]).ok().stdout == big());
}

#[test]
fn pack_leaves_out_what_is_excluded_and_its_own_output() {
    let fixture = Fixture::tree();
    let args = [
        "pack",
        "-q",
        "--format",
        "romfs",
        "--exclude",
        "/etc",
        "--exclude",
        "[bho]*",
        "tree",
    ];
    for force in [&[][..], &["--force"]] {
        fixture
            .run(&[&args[..], &["tree/self.img"], force].concat())
            .ok();
        let names = fixture.run(&["ls", "-R", "tree/self.img"]).ok();
        assert_eq!(names.text(), "/:\nlink\n");
    }
}

#[test]
fn no_half_image_is_left_behind() {
    let fixture = Fixture::tree();
    fs::write(fixture.path("old.img"), "old").unwrap();
    let pack = ["pack", "-q", "--format", "romfs"];
    fixture
        .run(&[&pack[..], &["tree", "old.img"]].concat())
        .fails(
            5,
            "forerun: old.img: exists already\n  hint: --force replaces it",
        );
    // A name that is too long for the format fails after the output was opened.
    fs::write(fixture.path("tree").join("n".repeat(200)), "").unwrap();
    let ran = fixture.run(&[&pack[..], &["--force", "tree", "old.img"]].concat());
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    assert_eq!(fs::read(fixture.path("old.img")).unwrap(), b"old");
    assert_eq!(
        tree(fixture.dir.path())
            .iter()
            .filter(|path| !path.starts_with(b"tree"))
            .count(),
        1
    );
}

#[test]
fn an_interrupted_pack_leaves_nothing() {
    let fixture = Fixture::tree();
    let spawn = |args: &[&str]| {
        let mut command = fixture.command(&[&["pack", "-q", "--format", "romfs"], args].concat());
        command.stdin(std::process::Stdio::piped()).spawn().unwrap()
    };
    let partial = || {
        let names = fs::read_dir(fixture.dir.path()).unwrap();
        names
            .filter(|name| {
                let name = name.as_ref().unwrap().file_name();
                name.to_string_lossy().ends_with(".partial")
            })
            .count()
    };
    for (args, writes) in [
        // The manifest is read after the output was created, the archive before.
        (&["--manifest", "-", "new.img"][..], true),
        (&["-", "new.img"], false),
    ] {
        let mut child = spawn(args);
        // The pipe stays open: at the end of its input the program might finish before it is
        // interrupted, and `wait` would close the pipe.
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"#").unwrap();
        eventually("its input is read", || {
            rustix::io::ioctl_fionread(&input).unwrap() == 0
        });
        if writes {
            eventually("a file that is half written", || partial() > 0);
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let status = child.wait().unwrap();
        use std::os::unix::process::ExitStatusExt;
        assert_eq!(status.signal(), Some(2), "{args:?}");
        assert_eq!(partial(), 0, "{args:?}");
        assert!(!fixture.path("new.img").exists());
    }
}

/// A user is told once, with counts, what a format drops.
#[test]
fn what_a_format_does_not_keep_is_told_once() {
    if !require::root() {
        return;
    }
    let fixture = Fixture::tree();
    let at = fixture.path("lossy");
    fs::create_dir(&at).unwrap();
    let dated = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    for (name, mode) in [("a", 0o4755), ("b", 0o600)] {
        let file = fs::File::create(at.join(name)).unwrap();
        file.set_permissions(fs::Permissions::from_mode(mode))
            .unwrap();
        file.set_modified(dated).unwrap();
    }
    chown(at.join("b"), Some(5), None).unwrap();
    let pack = |format: &str, more: &[&str]| {
        let args = [
            &["pack", "--force", "--format", format],
            more,
            &["lossy", "x"],
        ]
        .concat();
        fixture.run(&args)
    };
    let romfs = pack("romfs", &[]);
    let expected = "forerun: x: romfs cannot store everything: 1 entry loses its owner (/b); \
                    1 entry changes its permissions (/b); 1 entry loses its set-id or sticky bit \
                    (/a); 2 entries change their times (/a, ...)\n";
    assert_eq!((romfs.code, &*romfs.stderr), (Some(0), expected));
    let exfat = pack("exfat", &[]);
    let expected = "forerun: x: exfat cannot store everything: 1 entry loses its owner (/b); 1 entry changes its permissions (/b); \
                    1 entry loses its set-id or sticky bit (/a)\n";
    assert_eq!((exfat.code, &*exfat.stderr), (Some(0), expected));
    for (format, more) in [("romfs", &["-q"][..]), ("squashfs", &[]), ("erofs", &[])] {
        let quiet = pack(format, more);
        assert_eq!((quiet.code, &*quiet.stderr), (Some(0), ""), "{format}");
    }
}
