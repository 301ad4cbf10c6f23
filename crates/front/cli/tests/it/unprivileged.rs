//! The rights of unprivileged users, and messages about missing rights.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use forerun_testkit::{require, temp_dir};
use serde_json::json;

use crate::common::{Ran, command, ran};

/// Runs the program without privileges, in a directory that all users may write to.
fn as_nobody(dir: &Path, args: &[&str]) -> Ran {
    let forerun = command(args);
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
        .arg(forerun.get_program())
        .args(forerun.get_args())
        .env("TZ", "UTC")
        .current_dir(dir);
    ran(command.output().unwrap())
}

/// Makes an image with owners, a device and set-id bits, with mksquashfs pseudo files.
fn image(dir: &Path) -> bool {
    let Some(mksquashfs) = require::program("mksquashfs") else {
        return false;
    };
    fs::create_dir_all(dir.join("tree/sub")).unwrap();
    for name in ["one", "two", "sub/three"] {
        fs::write(dir.join("tree").join(name), name).unwrap();
    }
    let locked = fs::Permissions::from_mode(0o555);
    fs::set_permissions(dir.join("tree/sub"), locked).unwrap();
    let made = Command::new(mksquashfs)
        .args(["tree", "a.sqsh", "-quiet", "-no-progress", "-all-root"])
        .args(["-p", "null c 666 0 0 1 3"])
        .args(["-p", "two m 4755 0 0"])
        .current_dir(dir)
        .output()
        .unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let told = String::from_utf8_lossy(&made.stderr);
    assert!(made.status.success(), "{told}");
    true
}

#[test]
fn all_that_is_possible_is_done_and_the_rest_is_listed() {
    if !require::root() || require::program("setpriv").is_none() {
        return;
    }
    let dir = temp_dir("nobody");
    if !image(dir.path()) {
        return;
    }
    let at = |name: &str| fs::symlink_metadata(dir.path().join(name)).unwrap();
    let told = as_nobody(dir.path(), &["extract", "-C", "out", "a.sqsh"]);
    told.fails(
        6,
        "forerun: a.sqsh: 1 device node not made: /null\n  hint: --keep devices makes them (as root), \
         --exclude leaves them out silently\nforerun: a.sqsh: 5 owners not kept: /, /one, /sub, \
         /sub/three, /two (only root can; --owner caller leaves this note out)\nforerun: a.sqsh: 1 \
         entry without its set-id or sticky bit: /two (--keep special-bits keeps them)",
    );
    assert_eq!((at("out/one").uid(), at("out/sub").uid()), (65534, 65534));
    assert_eq!(at("out/sub").mode() & 0o7777, 0o555);
    assert_eq!(
        fs::read(dir.path().join("out/sub/three")).unwrap(),
        b"sub/three"
    );

    let args = [
        "extract",
        "-C",
        "quiet",
        "--owner",
        "caller",
        "--exclude",
        "null",
        "a.sqsh",
        "sub",
    ];
    as_nobody(dir.path(), &args).ok();

    let args = [
        "extract", "-C", "all", "--keep", "devices", "--owner", "image", "--json", "a.sqsh",
    ];
    let report = as_nobody(dir.path(), &args);
    assert_eq!((report.code, report.stderr.as_str()), (Some(6), ""));
    let report = report.json();
    assert_eq!(report["complete"], false);
    assert_eq!(report["files"], 3);
    let shortfalls = report["shortfalls"].as_array().unwrap();
    assert_eq!(shortfalls[0]["what"], "device");
    assert_eq!(shortfalls[0]["message"], "Operation not permitted");
    assert_eq!(shortfalls[1]["what"], "owner");
    assert_eq!(shortfalls[1]["count"], 5);
    assert_eq!(shortfalls[2]["what"], "special_bits");
    assert_eq!(shortfalls[2]["message"], json!(null));

    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let told = as_nobody(dir.path(), &["extract", "-C", "no", "a.sqsh"]);
    told.fails(
        5,
        "forerun: no: Permission denied\n  hint: choose a directory where you may write",
    );
}

#[test]
fn files_that_cannot_be_read_are_named_and_left_out_when_asked() {
    if !require::root() || require::program("setpriv").is_none() {
        return;
    }
    let dir = temp_dir("unreadable");
    let at = |name: &str| dir.path().join(name);
    let set_mode = |name: &str, mode| {
        fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["in/sub", "in/closed"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    for name in ["in/sub/secret", "in/sub/open", "in/closed/inside"] {
        fs::write(at(name), name).unwrap();
    }
    set_mode("in/sub/secret", 0o600);
    set_mode("", 0o777);
    for format in ["squashfs", "erofs", "exfat", "romfs"] {
        let pack = ["pack", "-q", "--format", format, "--force", "in", "image"];
        as_nobody(dir.path(), &pack).fails(4, "forerun: in/sub/secret: Permission denied");
    }
    set_mode("in/closed", 0o700);
    let pack = ["pack", "-q", "--format", "erofs", "--force", "in", "image"];
    as_nobody(dir.path(), &pack).fails(4, "forerun: in/closed: Permission denied");

    let told = as_nobody(dir.path(), &[&pack[..], &["--skip-unreadable"]].concat());
    let mut lines: Vec<_> = told.stderr.lines().collect();
    lines.sort_unstable();
    let expected = [
        "forerun: in/closed: Permission denied",
        "forerun: in/sub/secret: Permission denied",
        "forerun: in: 2 files and directories are left out, as they cannot be read",
    ];
    assert_eq!((told.code, &lines[..]), (Some(6), &expected[..]));
    let listed = as_nobody(dir.path(), &["ls", "-R", "image"]).ok();
    let listed: Vec<_> = listed.text().split_whitespace().collect();
    assert!(
        listed.contains(&"open") && listed.contains(&"closed"),
        "{listed:?}"
    );
    assert!(
        !listed.contains(&"secret") && !listed.contains(&"inside"),
        "{listed:?}"
    );
}

#[test]
fn files_that_go_while_the_image_is_made_are_left_out_when_asked() {
    for format in ["squashfs", "erofs", "exfat", "romfs"] {
        let dir = temp_dir("vanishing");
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("in/sub")).unwrap();
        for name in ["in/first", "in/sub/goes", "in/sub/stays"] {
            fs::write(at(name), name).unwrap();
        }
        let pipe = Command::new("mkfifo").arg(at("manifest")).status();
        assert!(pipe.unwrap().success());
        let words = ["pack", "-q", "--skip-unreadable", "--manifest", "manifest"];
        let words = [&words[..], &["--format", format, "in", "image"]].concat();
        let pack = command(&words)
            .current_dir(dir.path())
            .stderr(Stdio::piped())
            .spawn();
        // The manifest is read after the directory and before the files' contents.
        let manifest = fs::File::options().write(true).open(at("manifest"));
        fs::remove_file(at("in/sub/goes")).unwrap();
        drop(manifest.unwrap());
        ran(pack.unwrap().wait_with_output().unwrap()).fails(
            6,
            "forerun: in/sub/goes: No such file or directory\n\
             forerun: in: 1 file or directory is left out, as it cannot be read",
        );
        let run = |words: &[&str]| ran(command(words).current_dir(dir.path()).output().unwrap());
        let listed = run(&["ls", "-R", "image"]).ok();
        assert!(!listed.text().contains("goes"), "{}", listed.text());
        for name in ["first", "sub/stays"] {
            let read = run(&["cat", "image", name]).ok();
            assert_eq!(read.text(), format!("in/{name}"), "{format}");
        }
        run(&["check", "-q", "image"]).ok();
    }
}
