//! composefs on the command line: made, read, converted, mounted without privileges,
//! garbage-collected.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use forerun::unstable::composefs::Algorithm;
use forerun_testkit::{TempDir, require, temp_dir};
use rustix::fs::XattrFlags;

use crate::common::{Ran, command, in_namespace, ran};

/// Creates a directory with `tree`, and `image` and `store` made from it.
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

/// An image is refused if every file would be an error without the store. An image without objects
/// is not refused.
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
    let expected = "its files are in an object store, and --objects is missing\n  \
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

/// Objects that the kernel itself reads are opened, and prefetched from disk, ahead of a program
/// that reads the tree.
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
        let status = forerun(at, &["status", "--json"]).ok().mounts();
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
    // The smallest file is inside the image. A few files may be read before the first one is opened
    // by path.
    assert!(requests("read") <= 1 && requests("store") < 20, "{after}");
    let hinted = hinted(&after) - before;
    let bytes = u64::try_from(FILES * (4096 + FILES / 2)).unwrap();
    assert!(hinted > bytes / 2, "{hinted} of {bytes}");
}

#[test]
fn objects_that_no_image_needs_are_listed_and_removed_with_delete() {
    let dir = made();
    let at = dir.path();
    let note = forerun(at, &["gc", "-n", "--objects", "store", "image"]).stderr;
    assert!(
        note.contains("1 object needed by 1 image; 0 files, "),
        "{note}"
    );
    let object = forerun(at, &["gc", "-q", "--all", "--objects", "store"]).ok();
    let object = at.join("store").join(object.text().trim());
    assert!(
        object.is_file(),
        "twins are one object, and it is listed only"
    );
    forerun(at, &["gc", "-q", "--delete", "--objects", "store", "image"]).ok();
    assert!(object.exists());
    let json = ["gc", "--json", "--delete", "--all", "--objects", "store"];
    let removed = forerun(at, &json).ok().json();
    assert_eq!(
        (&removed["dry_run"], &removed["kept_objects"]),
        (&false.into(), &0.into())
    );
    assert!(!object.exists());
}

/// Creates a file with the attributes of a stub for the object at this path.
fn stub(path: &Path, len: usize, redirect: &str, digest: &[u8], algorithm: u8) {
    fs::File::create(path)
        .unwrap()
        .set_len(len.try_into().unwrap())
        .unwrap();
    let head = [0, 4 + u8::try_from(digest.len()).unwrap(), 0, algorithm];
    let set = |name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, XattrFlags::empty()).unwrap();
    };
    set("trusted.overlay.metacopy", &[&head, digest].concat());
    set("trusted.overlay.redirect", redirect.as_bytes());
}

fn plain_erofs(at: &Path, tree: &str, image: &str) {
    forerun(
        at,
        &["pack", "-q", "--force", "--format", "erofs", tree, image],
    )
    .ok();
}

/// Checks that garbage collection fails and removes nothing.
fn stays(at: &Path, store: &str, image: &str, reason: &str) {
    let files = || {
        let found = Command::new("find").arg(at.join(store)).output().unwrap();
        String::from_utf8(found.stdout).unwrap()
    };
    let before = files();
    let refused = forerun(at, &["gc", "--delete", "--objects", store, image]);
    assert!(
        !matches!(refused.code, Some(0) | None),
        "{image}: {refused:?}"
    );
    assert!(
        refused.stderr.contains(reason),
        "{image}: {}",
        refused.stderr
    );
    assert_eq!(files(), before, "{image}");
}

#[test]
fn what_cannot_be_understood_stops_gc_before_anything_is_removed() {
    if !require::root() {
        return;
    }
    let dir = made();
    let at = dir.path();
    fs::write(at.join("damaged"), "not an image").unwrap();
    stays(at, "store", "damaged", "");
    // An EROFS image that is not composefs, named by mistake.
    plain_erofs(at, "tree", "mistake");
    stays(at, "store", "mistake", "refers to no object");
    // The objects of another layout.
    let digest = Algorithm::Sha256.digest(&[b'x'; 10_000]);
    fs::create_dir(at.join("moved")).unwrap();
    let redirect = format!("/objects/{}", digest.object_path());
    stub(&at.join("moved/f"), 10_000, &redirect, digest.bytes(), 1);
    plain_erofs(at, "moved", "redirected");
    stays(at, "store", "redirected", "is not the name of an object");
    // Without metacopy, this driver reads the file from the image; others may follow the redirect.
    rustix::fs::removexattr(at.join("moved/f"), "trusted.overlay.metacopy").unwrap();
    plain_erofs(at, "moved", "halved");
    stays(at, "store", "halved", "is not the name of an object");
    stub(
        &at.join("moved/f"),
        10_000,
        &digest.object_path(),
        digest.bytes(),
        7,
    );
    plain_erofs(at, "moved", "algorithm");
    stays(at, "store", "algorithm", "has an unknown form");
    // An image of another store.
    fs::write(at.join("tree/large"), [b'y'; 20_000]).unwrap();
    fs::remove_file(at.join("tree/sub/twin")).unwrap();
    let pack = [
        "pack",
        "-q",
        "--format",
        "composefs",
        "--objects",
        "elsewhere",
        "tree",
        "foreign",
    ];
    forerun(at, &pack).ok();
    stays(
        at,
        "store",
        "foreign",
        "this store has none of the image's objects",
    );
}

#[test]
fn an_image_that_is_an_object_of_the_store_is_kept() {
    let dir = made();
    let at = dir.path();
    let put = |name: &str| {
        let bytes = fs::read(at.join(name)).unwrap();
        let path = at
            .join("store")
            .join(Algorithm::Sha256.digest(&bytes).object_path());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    };
    let object = put("image");
    // Once under its own name, once as a copy elsewhere.
    for image in [object.to_str().unwrap(), "image"] {
        let gc = ["gc", "--json", "--delete", "--objects", "store", image];
        let collected = forerun(at, &gc).ok().json();
        assert_eq!(collected["kept_objects"], 2, "{image}");
        assert!(object.exists());
    }
    // Under a name other than its digest, only as the file itself.
    let renamed = at.join("store/00").join("1".repeat(62));
    fs::create_dir_all(at.join("store/00")).unwrap();
    fs::rename(&object, &renamed).unwrap();
    let gc = [
        "gc",
        "-q",
        "--delete",
        "--objects",
        "store",
        renamed.to_str().unwrap(),
    ];
    forerun(at, &gc).ok();
    assert!(renamed.exists());
}

#[test]
fn a_repository_whose_streams_are_objects_is_refused() {
    let dir = made();
    let at = dir.path();
    fs::create_dir(at.join("repo")).unwrap();
    fs::rename(at.join("store"), at.join("repo/objects")).unwrap();
    for name in ["meta.json", "images", "streams"] {
        fs::create_dir(at.join("repo").join(name)).unwrap();
        for store in ["repo/objects", "repo"] {
            stays(at, store, "image", "repository of composefs-rs");
        }
        fs::remove_dir(at.join("repo").join(name)).unwrap();
    }
    std::os::unix::fs::symlink("repo/objects", at.join("link")).unwrap();
    fs::create_dir(at.join("repo/streams")).unwrap();
    stays(at, "link", "image", "repository of composefs-rs");
}

/// `check` needs no option to find an object with a wrong byte.
#[test]
fn check_compares_objects_with_their_digests() {
    let dir = made();
    let at = dir.path();
    let mut bytes = vec![b'x'; 10_000];
    let object = at
        .join("store")
        .join(Algorithm::Sha256.digest(&bytes).object_path());
    let check = ["check", "--objects", "store", "image"];
    forerun(at, &check).ok();
    bytes[5000] = b'y';
    fs::write(&object, bytes).unwrap();
    let found = forerun(at, &check);
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.text().contains("its digest is"), "{}", found.text());
    let off = ["check", "--verity", "off", "--objects", "store", "image"];
    forerun(at, &off).ok();
}

/// Reading a file whose contents are stored elsewhere (metacopy) is an error, and does not return
/// zeros.
#[test]
fn a_file_without_its_contents_is_an_error_for_its_readers_in_every_format() {
    if !require::root() {
        return;
    }
    let dir = temp_dir("metacopy");
    let at = dir.path();
    fs::create_dir_all(at.join("tree/moved")).unwrap();
    fs::write(at.join("tree/whole"), "whole\n").unwrap();
    for (name, attribute) in [
        ("f", "trusted.overlay.metacopy"),
        ("u", "user.overlay.metacopy"),
    ] {
        let path = at.join("tree").join(name);
        fs::File::create(&path).unwrap().set_len(10_000).unwrap();
        rustix::fs::setxattr(path, attribute, b"", XattrFlags::empty()).unwrap();
    }
    let redirect = "trusted.overlay.redirect";
    rustix::fs::setxattr(at.join("tree/moved"), redirect, b"old", XattrFlags::empty()).unwrap();
    for format in ["squashfs", "erofs"] {
        forerun(at, &["pack", "-q", "--format", format, "tree", format]).ok();
    }
    let tar = Command::new("tar")
        .args([
            "--xattrs",
            "--xattrs-include=*",
            "-cf",
            "tar",
            "-C",
            "tree",
            ".",
        ])
        .current_dir(at)
        .status();
    assert!(tar.unwrap().success());
    for image in ["squashfs", "erofs", "tar"] {
        assert_eq!(
            forerun(at, &["cat", image, "/whole"]).ok().text(),
            "whole\n"
        );
        for name in ["/f", "/u"] {
            let told = forerun(at, &["cat", image, name]);
            assert_eq!(told.code, Some(1), "{image} {name}: {told:?}");
            let expected = "its contents are in a lower layer of overlayfs";
            assert!(told.stderr.contains(expected), "{image}: {}", told.stderr);
        }
        let listed = forerun(at, &["ls", "-l", image]).ok();
        assert!(
            listed.text().contains(" 10000 "),
            "{image}: {}",
            listed.text()
        );
        for args in [
            &["extract", "--force", "-C", "out", image][..],
            &[
                "convert",
                "--force",
                "--format",
                "squashfs",
                image,
                "converted",
            ],
            &["tar", "--force", "-o", "out.tar", image],
        ] {
            let told = forerun(at, args);
            assert!(!matches!(told.code, Some(0) | None), "{args:?}: {told:?}");
        }
        let check = forerun(at, &["check", image]);
        assert_eq!(check.code, Some(1), "{image}");
        assert!(
            check.text().contains("2 errors"),
            "{image}: {}",
            check.text()
        );
        let warning = "warning: /moved: ";
        assert!(check.text().contains(warning), "{image}: {}", check.text());
        // As the lowest of several layers.
        let told = forerun(at, &["cat", "--layer", image, "/f"]);
        assert_eq!(told.code, Some(1), "{image}: {told:?}");
    }
}

/// Images of composefs-rs and bootc, whose objects are named by SHA-512.
#[test]
fn objects_named_by_sha512_are_read_verified_and_collected() {
    let Some(fsverity) = require::program("fsverity").filter(|_| require::root()) else {
        return;
    };
    let dir = temp_dir("composefs-sha512");
    let at = dir.path();
    fs::create_dir_all(at.join("tree")).unwrap();
    let mut wanted = Vec::new();
    // Zero, one and two levels of hashes. A block has 64 hashes.
    for (name, len) in [
        ("a", 1100),
        ("b", 64 * 4096),
        ("c", 64 * 4096 + 1),
        ("d", 9_000_000),
    ] {
        let bytes: Vec<u8> = (0..len).map(|n: u32| (n >> 3) as u8 ^ n as u8).collect();
        fs::write(at.join("object"), &bytes).unwrap();
        let digest = Command::new(&fsverity)
            .args(["digest", "--compact", "--hash-alg=sha512", "object"])
            .current_dir(at)
            .output()
            .unwrap();
        let hex = String::from_utf8(digest.stdout).unwrap().trim().to_string();
        assert_eq!(hex.len(), 128, "{hex}");
        let path = format!("{}/{}", &hex[..2], &hex[2..]);
        let digits = (0..64).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap());
        let digest: Vec<u8> = digits.collect();
        stub(
            &at.join("tree").join(name),
            bytes.len(),
            &format!("/{path}"),
            &digest,
            2,
        );
        fs::create_dir_all(at.join("store").join(&hex[..2])).unwrap();
        fs::rename(at.join("object"), at.join("store").join(&path)).unwrap();
        wanted.push((name, bytes, path));
    }
    plain_erofs(at, "tree", "image");
    let with = ["--objects", "store", "--verity", "require"];
    for (name, bytes, _) in &wanted {
        let cat = [&["cat"], &with[..], &["image", name]].concat();
        assert!(forerun(at, &cat).ok().stdout == *bytes, "{name}");
    }
    let unneeded = at.join("store/00").join("0".repeat(126));
    fs::create_dir_all(at.join("store/00")).unwrap();
    fs::write(&unneeded, "unneeded").unwrap();
    forerun(at, &["gc", "-q", "--delete", "--objects", "store", "image"]).ok();
    assert!(!unneeded.exists());
    for (name, bytes, path) in &wanted {
        let object = at.join("store").join(path);
        let mut wrong = bytes.clone();
        wrong[bytes.len() / 2] ^= 1;
        fs::write(&object, wrong).unwrap();
        let cat = [&["cat"], &with[..], &["image", name]].concat();
        assert_eq!(forerun(at, &cat).code, Some(4), "{name}");
    }
}

/// Makes an image whose files are named by paths, as NixOS does for /etc, with mkcomposefs.
fn by_paths(at: &Path) {
    for (path, text) in [
        ("base/etc/a", "one"),
        ("second/etc/a", "xxx"),
        ("second/b c", "two"),
    ] {
        let path = at.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let lines = "/ 0 40755 2 0 0 0 5.0 - - -\n/a 3 100644 1 0 0 0 5.0 etc/a - -\n\
                 /b 3 100644 1 0 0 0 5.0 b\\x20c - -\n/o 3 100644 1 0 0 0 5.0 ../out - -\n";
    fs::write(at.join("dump"), lines).unwrap();
    fs::write(at.join("out"), "out").unwrap();
    let forerun = command(&["--version"]);
    std::os::unix::fs::symlink(forerun.get_program(), at.join("mkcomposefs")).unwrap();
    let mut make = Command::new(at.join("mkcomposefs"));
    let made = make.args(["--from-file", "dump", "image"]).current_dir(at);
    assert!(made.status().unwrap().success());
}

#[test]
fn files_are_named_by_paths_below_base_directories() {
    let dir = temp_dir("composefs-base");
    let at = dir.path();
    by_paths(at);
    let both = ["--basedir", "base", "--basedir", "second"];
    for (name, text) in [("/a", "one"), ("/b", "two")] {
        let cat = [&["cat"], &both[..], &["image", name]].concat();
        assert_eq!(forerun(at, &cat).ok().text(), text);
    }
    let refused = forerun(at, &["cat", "--objects", "base", "image", "/a"]);
    let told = "this is not the name of an object; only a base directory has files at other paths";
    assert!(refused.stderr.contains(told), "{}", refused.stderr);
    let missing = forerun(at, &["cat", "--basedir", "base", "image", "/b"]);
    assert_ne!(missing.code, Some(0));
    let out = forerun(at, &[&["cat"], &both[..], &["image", "/o"]].concat());
    assert_eq!(out.code, Some(1), "{}", out.stderr);
    let gc = forerun(at, &["gc", "--delete", "--objects", "base", "image"]);
    assert_ne!(gc.code, Some(0));
    assert!(at.join("base/etc/a").exists());
    let convert = ["convert", "-q", "--format", "squashfs", "--exclude", "/o"];
    forerun(at, &[&convert[..], &both, &["image", "sqsh"]].concat()).ok();
    assert_eq!(forerun(at, &["cat", "sqsh", "/b"]).ok().text(), "two");

    if !require::root() || !require::fuse() {
        return;
    }
    fs::create_dir(at.join("mnt")).unwrap();
    for via in ["fuse", "kernel"] {
        let words = ["mount", "--via", via, "-o", "basedir=base,basedir=second"];
        let mounted = forerun(at, &[&words[..], &["image", "mnt"]].concat());
        if via == "kernel" && !require::that(mounted.code == Some(0), "kernel mounts of composefs")
        {
            continue;
        }
        mounted.ok();
        assert_eq!(
            fs::read_to_string(at.join("mnt/a")).unwrap(),
            "one",
            "{via}"
        );
        assert_eq!(
            fs::read_to_string(at.join("mnt/b")).unwrap(),
            "two",
            "{via}"
        );
        assert!(fs::read(at.join("mnt/o")).is_err(), "{via}");
        forerun(at, &["umount", "mnt"]).ok();
    }
}

#[test]
fn a_writable_layer_is_mounted_by_the_kernel() {
    if !require::root() {
        return;
    }
    let dir = made();
    let at = dir.path();
    for name in ["mnt", "up,per", "work"] {
        fs::create_dir(at.join(name)).unwrap();
    }
    let options = "objects=store,upperdir=up\\,per,workdir=work";
    let mount = |more: &[&str], options: &str| {
        let words = [&["mount"], more, &["-o", options, "image", "mnt"]].concat();
        forerun(at, &words)
    };
    for (via, options) in [("fuse", options), ("kernel", "objects=store,upperdir=work")] {
        assert_eq!(mount(&["--via", via], options).code, Some(2));
    }
    let mounted = mount(&["--via", "kernel"], options);
    if !require::that(mounted.code == Some(0), "kernel mounts of composefs") {
        return;
    }
    fs::write(at.join("mnt/new"), "new").unwrap();
    fs::write(at.join("mnt/large"), "changed").unwrap();
    fs::remove_file(at.join("mnt/small")).unwrap();
    forerun(at, &["umount", "mnt"]).ok();
    assert_eq!(fs::read(at.join("up,per/new")).unwrap(), b"new");
    mount(&["--via", "kernel"], &format!("{options},ro")).ok();
    assert_eq!(fs::read(at.join("mnt/large")).unwrap(), b"changed");
    assert!(!at.join("mnt/small").exists());
    assert!(fs::write(at.join("mnt/new"), "").is_err());
    forerun(at, &["umount", "mnt"]).ok();
}

/// Checks that converting keeps the version: the image is the same.
#[test]
fn a_converted_image_keeps_its_version() {
    let dir = made();
    let at = dir.path();
    for version in ["0", "1"] {
        let pack = [
            "pack",
            "-q",
            "--force",
            "--format",
            "composefs",
            "--objects",
            "store",
        ];
        let pack = [&pack[..], &["--format-version", version, "tree", "image"]].concat();
        forerun(at, &pack).ok();
        let convert = [
            "convert",
            "-q",
            "--force",
            "--format",
            "composefs",
            "--objects",
            "store",
        ];
        let convert = [&convert[..], &["--from-objects", "store"]].concat();
        forerun(at, &[&convert[..], &["image", "same"]].concat()).ok();
        let [image, same] = ["image", "same"].map(|name| fs::read(at.join(name)).unwrap());
        assert!(image == same, "version {version}");
        let other = [
            "--format-version",
            if version == "0" { "1" } else { "0" },
            "image",
            "other",
        ];
        forerun(at, &[&convert[..], &other].concat()).ok();
        assert!(fs::read(at.join("other")).unwrap() != image);
    }
}

/// Checks the names of objects and the digest of the image against those of `fsverity`.
#[test]
fn a_tree_packed_with_sha512_has_its_digests_everywhere() {
    let Some(fsverity) = require::program("fsverity") else {
        return;
    };
    let dir = made();
    let at = dir.path();
    let digest_of = |path: &str| {
        let words = ["digest", "--compact", "--hash-alg=sha512", path];
        let measured = Command::new(&fsverity).args(words).current_dir(at).output();
        let digest = String::from_utf8(measured.unwrap().stdout).unwrap();
        digest.trim().to_string()
    };
    // Measured as a stream, and with two levels of hashes.
    fs::write(at.join("tree/longest"), vec![b'z'; 2_000_000]).unwrap();
    let pack = ["pack", "--format", "composefs", "--digest", "sha512"];
    let pack = [&pack[..], &["--objects", "wide", "tree", "wide.cfs"]].concat();
    let digest = forerun(at, &pack).ok().text().trim().to_string();
    assert_eq!(digest, digest_of("wide.cfs"));
    for name in ["large", "longest"] {
        let hex = digest_of(&format!("tree/{name}"));
        assert_eq!(hex.len(), 128, "{hex}");
        let object = at.join("wide").join(&hex[..2]).join(&hex[2..]);
        assert_eq!(
            fs::read(object).unwrap(),
            fs::read(at.join("tree").join(name)).unwrap()
        );
    }
    assert_eq!(at.join("wide").read_dir().unwrap().count(), 2);
    let info = forerun(at, &["info", "--json", "wide.cfs"]).ok().json();
    assert_eq!(info["digest_sha512"], digest);
    let with = ["--objects", "wide", "--verity", "require"];
    forerun(at, &[&["check"], &with[..], &["wide.cfs"]].concat()).ok();
    let collected = ["gc", "--json", "--delete", "--objects", "wide", "wide.cfs"];
    let collected = forerun(at, &collected).ok().json();
    assert_eq!(collected["kept_objects"], 2);

    if !require::root() || !require::fuse() {
        return;
    }
    fs::create_dir(at.join("mnt")).unwrap();
    let mount = |digest: &str| {
        let options = format!("objects=wide,verity=require,digest={digest}");
        forerun(at, &["mount", "-o", &options, "wide.cfs", "mnt"])
    };
    mount(&digest).ok();
    assert_eq!(fs::read(at.join("mnt/large")).unwrap(), vec![b'x'; 10_000]);
    forerun(at, &["umount", "mnt"]).ok();
    let other = "0".repeat(128);
    let refused = mount(&other);
    let told = format!("the digest of the image is {digest}, not {other}");
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains(&told), "{}", refused.stderr);
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
    let expected = Algorithm::Sha256
        .digest(&fs::read(at.join("image")).unwrap())
        .to_string();
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

/// Offset of `feature_compat` in an image. Its first bit means that the superblock has a checksum.
const FEATURE_COMPAT: usize = 1024 + 8;

/// Sets the size of a file of `from` bytes to 2^60, and disables the checksum.
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
    // A file with its own time needs the long inode, which has a 64-bit size.
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
        "--inline",
        "none",
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
        "forerun: image: its files are in an object store, which push does not upload\n  hint: forerun \
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
