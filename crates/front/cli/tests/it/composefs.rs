//! composefs on the command line: made, read, converted, mounted without privileges, collected.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use forerun::composefs::digest_of;
use forerun_testkit::{TempDir, require, temp_dir};

use crate::common::{Ran, command, in_namespace, ran};

/// Creates a directory with `tree`, and `image` and `store` made of it.
fn made() -> TempDir {
    let dir = temp_dir("composefs-cli");
    fs::create_dir_all(dir.path().join("tree/sub")).unwrap();
    for (name, len) in [("small", 10), ("large", 10_000), ("sub/twin", 10_000)] {
        fs::write(dir.path().join("tree").join(name), vec![b'x'; len]).unwrap();
    }
    let args = [
        "pack",
        "--format",
        "composefs",
        "--objects",
        "store",
        "tree",
        "image",
    ];
    forerun(dir.path(), &args).ok();
    dir
}

fn forerun(dir: &Path, args: &[&str]) -> Ran {
    ran(command(args).current_dir(dir).output().unwrap())
}

#[test]
fn images_are_read_with_their_store_and_not_without() {
    let dir = made();
    let at = dir.path();
    let with = ["--objects", "store", "--verity", "require"];
    let cat = [&["cat"], &with[..], &["image", "/sub/twin"]].concat();
    assert_eq!(forerun(at, &cat).ok().stdout, vec![b'x'; 10_000]);
    forerun(at, &[&["check"], &with[..], &["image"]].concat()).ok();
    forerun(
        at,
        &[&["extract", "-C", "out"], &with[..], &["image"]].concat(),
    )
    .ok();
    assert_eq!(fs::read(at.join("out/large")).unwrap(), vec![b'x'; 10_000]);
    assert_eq!(
        forerun(at, &["cat", "image", "/small"]).ok().stdout,
        vec![b'x'; 10]
    );
    assert_ne!(forerun(at, &["cat", "image", "/large"]).code, Some(0));
    let args = [
        "convert",
        "--format",
        "squashfs",
        "--from-objects",
        "store",
        "image",
        "sqsh",
    ];
    forerun(at, &args).ok();
    assert_eq!(
        forerun(at, &["cat", "sqsh", "/large"]).ok().stdout,
        vec![b'x'; 10_000]
    );
    let refused = forerun(at, &["pack", "--format", "composefs", "tree", "other"]);
    assert_eq!(refused.code, Some(2));
}

/// Checks that an image whose files would all be errors is refused, and one that has no objects is not.
#[test]
fn a_mount_without_the_store_is_refused_with_a_hint() {
    if !require::root() || !require::fuse() {
        return;
    }
    let dir = made();
    let at = dir.path();
    fs::create_dir(at.join("mnt")).unwrap();
    let refused = forerun(at, &["mount", "image", "mnt"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    let expected = "its files are objects of a store, and none was named\n  \
                    hint: -o objects=DIR names the directory with the objects\n";
    assert!(refused.stderr.ends_with(expected), "{}", refused.stderr);
    fs::remove_file(at.join("tree/large")).unwrap();
    fs::remove_file(at.join("tree/sub/twin")).unwrap();
    let pack = ["pack", "-q", "--format", "composefs", "--objects", "store"];
    forerun(at, &[&pack[..], &["tree", "small"]].concat()).ok();
    forerun(at, &["mount", "small", "mnt"]).ok();
    assert_eq!(fs::read(at.join("mnt/small")).unwrap(), vec![b'x'; 10]);
    forerun(at, &["umount", "mnt"]).ok();
}

/// Checks that files which the kernel reads by itself are opened, and named to the disk, ahead of a program that reads
/// the tree.
#[test]
fn objects_are_hinted_ahead_of_a_reader_of_the_tree() {
    if !require::root() || !require::fuse() {
        return;
    }
    const FILES: usize = 600;
    let dir = made();
    let at = dir.path();
    for n in 0..FILES {
        fs::write(at.join(format!("tree/{n}")), vec![b'y'; 4096 + n]).unwrap();
    }
    let pack = ["pack", "-q", "--force", "--format", "composefs"];
    forerun(
        at,
        &[&pack[..], &["--objects", "store", "tree", "image"]].concat(),
    )
    .ok();
    fs::create_dir(at.join("mnt")).unwrap();
    forerun(at, &["mount", "-o", "objects=store", "image", "mnt"]).ok();
    let mnt = at.join("mnt").canonicalize().unwrap();
    let status = || {
        let status = forerun(at, &["status", "--json"]).ok().json();
        let mut mounts = status.as_array().unwrap().iter();
        let found = mounts.find(|mount| mount["dir"].as_str() == mnt.to_str());
        found.unwrap().clone()
    };
    let hinted =
        |status: &serde_json::Value| status["counters"]["hinted_bytes"].as_u64().unwrap_or(0);
    let before = hinted(&status());
    for entry in fs::read_dir(at.join("mnt")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::read(path).unwrap();
        }
    }
    let after = status();
    forerun(at, &["umount", "mnt"]).ok();
    let requests = |name: &str| after["fuse_requests"][name].as_u64().unwrap_or(0);
    // The smallest file is in the image itself. A few may be stored before the first file is opened.
    assert!(requests("read") <= 1 && requests("store") < 20, "{after}");
    let hinted = hinted(&after) - before;
    let bytes = u64::try_from(FILES * (4096 + FILES / 2)).unwrap();
    assert!(hinted > bytes / 2, "{hinted} of {bytes}");
}

#[test]
fn objects_that_no_image_needs_are_removed() {
    let dir = made();
    let at = dir.path();
    let note = forerun(at, &["gc", "-n", "--objects", "store", "image"]).stderr;
    assert!(
        note.contains("1 object needed by 1 image; 0 files, "),
        "{note}"
    );
    let object = forerun(at, &["gc", "-q", "-n", "--all", "--objects", "store"]).ok();
    let object = at.join("store").join(object.text().trim());
    assert!(object.is_file(), "twins are one object");
    forerun(at, &["gc", "-q", "--objects", "store", "image"]).ok();
    assert!(object.exists());
    fs::write(at.join("damaged"), "not an image").unwrap();
    let refused = forerun(at, &["gc", "-q", "--objects", "store", "damaged"]);
    assert_ne!(refused.code, Some(0));
    assert!(object.exists());
    forerun(at, &["gc", "-q", "--all", "--objects", "store"]).ok();
    assert!(!object.exists());
}

#[test]
fn a_user_without_privileges_mounts_in_a_namespace_of_his_own() {
    let programs = ["setpriv", "unshare"].map(require::program);
    if !require::root() || !require::fuse_for_users() || programs.contains(&None) {
        return;
    }
    let dir = made();
    let script = "set -e; \"$0\" mount -o objects=store,verity=on image mnt; \
                  ls -lR mnt > listing; cmp mnt/large tree/large; cmp mnt/small tree/small; \
                  \"$0\" umount mnt";
    in_namespace(dir.path(), script);
}

#[test]
fn programs_run_from_a_mount_in_a_sandbox() {
    if !require::root() || !require::fuse() {
        return;
    }
    let dir = made();
    let at = dir.path();
    fs::copy("/bin/sh", at.join("tree/shell")).unwrap();
    let pack = ["pack", "-q", "--force", "--format", "composefs"];
    let pack = [&pack[..], &["--objects", "store", "tree", "image"]].concat();
    forerun(at, &pack).ok();
    fs::create_dir(at.join("mnt")).unwrap();
    forerun(at, &["mount", "-o", "objects=store", "image", "mnt"]).ok();
    let shell = Command::new(at.join("mnt/shell"))
        .args(["-c", "exit 7"])
        .status();
    forerun(at, &["umount", "mnt"]).ok();
    assert_eq!(shell.unwrap().code(), Some(7));
}

#[test]
fn the_digest_of_the_image_is_told() {
    let dir = made();
    let at = dir.path();
    let expected = digest_of(&fs::read(at.join("image")).unwrap()).to_string();
    let pack = |more: &[&str]| {
        let pack = ["pack", "--format", "composefs", "--objects", "store"];
        forerun(at, &[&pack[..], more].concat()).ok()
    };
    assert_eq!(pack(&["tree", "a"]).text(), format!("{expected}\n"));
    assert_eq!(pack(&["--json", "tree", "b"]).json()["digest"], *expected);
    assert_eq!(pack(&["--quiet", "tree", "c"]).text(), "");
    // Standard output is the image.
    assert_eq!(
        pack(&["tree", "-"]).stdout,
        fs::read(at.join("image")).unwrap()
    );
}

/// Offset of `feature_compat` in an image; its first bit says that the superblock has a checksum.
const FEATURE_COMPAT: usize = 1024 + 8;

/// Sets the size of a file that is `from` bytes long to 2^60, and leaves the checksum out.
fn with_absurd_size(image: &Path, from: u64) {
    let mut bytes = fs::read(image).unwrap();
    let size = from.to_le_bytes();
    let at = bytes.windows(8).position(|window| window == size).unwrap();
    bytes[at..at + 8].copy_from_slice(&(1_u64 << 60).to_le_bytes());
    bytes[FEATURE_COMPAT] &= !1;
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_file_of_absurd_size_ends_every_command_at_once() {
    let dir = temp_dir("absurd");
    let at = dir.path();
    fs::create_dir(at.join("tree")).unwrap();
    // A time of its own needs the long form of the inode, which has 64 bits for the size.
    for (name, nanoseconds) in [("large", 9), ("one", 7), ("two", 7), ("three", 7)] {
        let mut file = fs::File::create(at.join("tree").join(name)).unwrap();
        file.write_all(&[b'x'; 54_321][usize::from(nanoseconds == 7)..])
            .unwrap();
        let time = Duration::new(1 << 30, nanoseconds);
        file.set_modified(SystemTime::UNIX_EPOCH + time).unwrap();
    }
    let pack = [
        "pack",
        "--format",
        "composefs",
        "--objects",
        "store",
        "tree",
        "absurd.cfs",
    ];
    forerun(at, &pack).ok();
    let pack = [
        "pack",
        "--format",
        "erofs",
        "--no-inline",
        "tree",
        "absurd.erofs",
    ];
    forerun(at, &pack).ok();
    for image in ["absurd.cfs", "absurd.erofs"] {
        with_absurd_size(&at.join(image), 54_321);
    }
    for (image, objects, file) in [
        ("absurd.cfs", &["--objects", "store"][..], "/large"),
        ("absurd.cfs", &[], "/large"),
        ("absurd.erofs", &[], "/large"),
    ] {
        let listed = forerun(at, &["ls", "-lR", image]).ok();
        assert!(
            listed.text().contains("1152921504606846976"),
            "{}",
            listed.text()
        );
        for args in [
            &["check", image][..],
            &["tar", "--force", "-o", "out.tar", image],
            &["extract", "--force", "-C", "out", image],
            &["cat", image, file],
            &["diff", image, image],
        ] {
            let start = Instant::now();
            let ran = forerun(at, &[args, objects].concat());
            let took = start.elapsed();
            assert!(took < Duration::from_secs(60), "{args:?} took {took:?}");
            assert!(matches!(ran.code, Some(1 | 4 | 6)), "{args:?}: {ran:?}");
        }
    }
}

#[test]
fn info_shows_the_digest_and_a_mount_compares_it() {
    if !require::root() || !require::fuse() {
        return;
    }
    let Some(fsverity) = require::program("fsverity") else {
        return;
    };
    let dir = made();
    let at = dir.path();
    let measured = Command::new(fsverity)
        .args(["digest", "--compact", "image"])
        .current_dir(at)
        .output()
        .unwrap();
    let digest = String::from_utf8(measured.stdout)
        .unwrap()
        .trim()
        .to_string();
    assert_eq!(digest.len(), 64, "{digest}");
    let info = forerun(at, &["info", "image"]).ok();
    assert!(
        info.text().contains(&format!("  {digest}\n")),
        "{}",
        info.text()
    );
    let info = forerun(at, &["info", "--json", "image"]).ok().json();
    assert_eq!(info["digest"], digest);

    fs::create_dir(at.join("mnt")).unwrap();
    let mount = |digest: &str| {
        let options = format!("objects=store,digest={digest}");
        forerun(at, &["mount", "-o", &options, "image", "mnt"])
    };
    mount(&digest.to_uppercase()).ok();
    assert_eq!(fs::read(at.join("mnt/small")).unwrap(), vec![b'x'; 10]);
    forerun(at, &["umount", "mnt"]).ok();
    let other = "0".repeat(64);
    let refused = mount(&other);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    let told = format!("the digest of the image is {digest}, not {other}");
    assert!(refused.stderr.contains(&told), "{}", refused.stderr);
    assert_eq!(mount("12").code, Some(2));

    let by_kernel = |digest: &str| {
        let options = format!("objects=store,digest={digest}");
        let words = ["mount", "--via", "kernel", "-o", &options, "image", "mnt"];
        forerun(at, &words)
    };
    let refused = by_kernel(&other);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains(&told), "{}", refused.stderr);
    assert_eq!(fs::read_dir(at.join("mnt")).unwrap().count(), 0);
    let mounted = by_kernel(&digest);
    if require::that(mounted.code == Some(0), "kernel mounts of composefs") {
        assert_eq!(fs::read(at.join("mnt/small")).unwrap(), vec![b'x'; 10]);
        forerun(at, &["umount", "mnt"]).ok();
    }

    forerun(at, &["pack", "-q", "--format", "squashfs", "tree", "plain"]).ok();
    let options = ["mount", "-o", &format!("digest={digest}"), "plain", "mnt"];
    let refused = forerun(at, &options);
    assert_eq!(refused.code, Some(3), "{}", refused.stderr);
}

#[test]
fn a_push_that_would_leave_the_files_behind_is_refused() {
    let dir = made();
    let at = dir.path();
    // No server listens there.
    let push = [
        "push",
        "-q",
        "--retries",
        "0",
        "image",
        "oci://127.0.0.1:1/a/b:1",
    ];
    let refused = forerun(at, &push);
    refused.fails(
        2,
        "forerun: image: its files are objects of a store, which push does not send\n  hint: forerun \
         convert --format erofs --from-objects DIR image OUTPUT makes an image that has the files; \
         --metadata-only sends the image without them",
    );
    let sent = forerun(at, &[&push[..], &["--metadata-only"]].concat());
    assert_eq!(sent.code, Some(4), "{}", sent.stderr);
    let convert = [
        "convert",
        "-q",
        "--format",
        "erofs",
        "--from-objects",
        "store",
    ];
    forerun(at, &[&convert[..], &["image", "whole"]].concat()).ok();
    let whole = [&push[..4], &["whole", push[5]]].concat();
    assert_eq!(forerun(at, &whole).code, Some(4));
}
