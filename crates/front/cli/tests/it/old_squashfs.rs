//! SquashFS images that no current tool makes: versions 1.x to 3.x, a vendor's LZMA, and big-endian
//! ones. They are stored in `tests/images`; a test of the driver makes and reads them.

use std::fs;
use std::path::{Path, PathBuf};

use forerun_testkit::{require, temp_dir};

use crate::common::{Ran, command, ran};

/// Name, version, byte order and codec of each image of the old versions' tree.
const OLD: [(&str, &str, &str, &str); 4] = [
    ("1.0", "1.0", "little-endian", "gzip"),
    ("2.1-big-endian", "2.1", "big-endian", "gzip"),
    ("3.0-lzma", "3.0", "big-endian", "lzma without length"),
    ("3.1", "3.1", "little-endian", "gzip"),
];
const BIG_ENDIAN: &str = "4.0-big-endian";

fn image(name: &str) -> PathBuf {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/images");
    images.join(format!("squashfs-{name}.img"))
}

fn run(dir: &Path, args: &[&str]) -> Ran {
    ran(command(args).current_dir(dir).output().unwrap())
}

fn contents() -> Vec<u8> {
    let mut out = vec![b'a'; 4096];
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    out.extend((0..4096).map(|_| next()));
    out.extend_from_slice(b"ten bytes.");
    out
}

fn details(dir: &Path, image: &str) -> serde_json::Value {
    run(dir, &["info", "--json", image]).ok().json()["details"].clone()
}

#[test]
fn info_shows_what_they_are() {
    let dir = temp_dir("old");
    for (name, version, order, codec) in OLD {
        let details = details(dir.path(), image(name).to_str().unwrap());
        assert_eq!(details["version"], version, "{details}");
        assert_eq!(details["byte order"], order, "{details}");
        assert_eq!(details["compressor"], codec, "{details}");
    }
    let details = details(dir.path(), image(BIG_ENDIAN).to_str().unwrap());
    assert_eq!(details["version"], "4.0", "{details}");
    assert_eq!(details["byte order"], "big-endian", "{details}");
    assert_eq!(details["metadata headers"], "little-endian", "{details}");
}

#[test]
fn ls_cat_check_and_extract() {
    for (name, ..) in OLD {
        let dir = temp_dir("old");
        let at = dir.path();
        let image = image(name);
        let image = image.to_str().unwrap();
        let listed = run(at, &["ls", "-R", image]).ok();
        let names: Vec<_> = listed.text().lines().map(str::trim).collect();
        for expected in ["file", "inner", "link", "fifo", "null", "sock"] {
            let is_listed = names
                .iter()
                .any(|name| name.rsplit('/').next() == Some(expected));
            assert!(is_listed, "{name}: {expected}: {names:?}");
        }
        let long = run(at, &["ls", "-l", image, "/file"]).ok();
        assert!(long.text().starts_with("-rw-r--r--"), "{}", long.text());
        let cat = run(at, &["cat", image, "/file"]).ok();
        assert!(cat.stdout == contents(), "{name}");
        let checked = run(at, &["check", image]).ok();
        assert!(checked.text().contains("no problems"), "{}", checked.text());
        let args = ["extract", "-q", "--exclude", "/null", "-C", "out", image];
        let extracted = run(at, &args);
        assert_eq!(extracted.code, Some(0), "{name}: {}", extracted.stderr);
        assert!(
            fs::read(at.join("out/file")).unwrap() == contents(),
            "{name}"
        );
        assert_eq!(fs::read(at.join("out/dir/inner")).unwrap(), b"");
        assert_eq!(
            fs::read_link(at.join("out/link")).unwrap(),
            Path::new("target")
        );
    }
}

#[test]
fn convert_makes_4_0_of_them() {
    for (name, ..) in OLD {
        let dir = temp_dir("old");
        let at = dir.path();
        let image = image(name);
        let image = image.to_str().unwrap();
        run(at, &["convert", "-q", image, "new.sqsh"]).ok();
        let details = details(at, "new.sqsh");
        assert_eq!(details["version"], "4.0", "{name}: {details}");
        assert_eq!(details["byte order"], serde_json::Value::Null, "{details}");
        let cat = run(at, &["cat", "new.sqsh", "/file"]).ok();
        assert!(cat.stdout == contents(), "{name}");
        // Images before 3.x have no link counts.
        let same = run(at, &["diff", "--ignore", "links", image, "new.sqsh"]);
        assert_eq!(same.code, Some(0), "{name}: {}{}", same.text(), same.stderr);
    }
}

#[test]
fn a_big_endian_image_of_4_0_takes_every_command_that_reads() {
    let dir = temp_dir("old");
    let at = dir.path();
    let image = image(BIG_ENDIAN);
    let image = image.to_str().unwrap();
    let listed = run(at, &["ls", "-lR", image]).ok();
    assert!(listed.text().contains("tail"), "{}", listed.text());
    let cat = run(at, &["cat", image, "/data"]).ok();
    assert_eq!(cat.stdout, b"twenty bytes of data");
    let checked = run(at, &["check", image]).ok();
    assert!(checked.text().contains("no problems"), "{}", checked.text());
    run(at, &["dump", image]).ok();
    let tar = run(at, &["tar", image]).ok();
    assert!(tar.stdout.windows(5).any(|name| name == b"inner"));
    let args = ["extract", "-q", "--exclude", "/null", "-C", "out", image];
    let extracted = run(at, &args);
    let tail = fs::read(at.join("out/tail")).unwrap();
    assert_eq!(tail.len(), 4106, "{}", extracted.stderr);
    run(at, &["convert", "-q", image, "new.sqsh"]).ok();
    let same = run(at, &["diff", image, "new.sqsh"]);
    assert_eq!(same.code, Some(0), "{}{}", same.text(), same.stderr);
    let cut = fs::read(image).unwrap();
    fs::write(at.join("cut"), &cut[..600]).unwrap();
    let cat = run(at, &["cat", "--salvage", "cut", "/data"]);
    assert_eq!(cat.stdout, b"twenty bytes of data", "{}", cat.stderr);
}

#[test]
fn scan_finds_them_in_firmware() {
    let dir = temp_dir("old");
    let at = dir.path();
    for name in OLD.map(|(name, ..)| name).into_iter().chain([BIG_ENDIAN]) {
        let inside = fs::read(image(name)).unwrap();
        let firmware = [&[0x55; 5000][..], &inside, &[0xaa; 3000]].concat();
        fs::write(at.join("firmware"), firmware).unwrap();
        let found = run(at, &["scan", "--json", "firmware"]);
        let found = &found.json()["findings"];
        let images = found.as_array().unwrap();
        let is_found = images.iter().any(|found| found["offset"] == 5000);
        assert!(is_found, "{name}: {found}");
    }
}

#[test]
fn mounts_show_the_same_files() {
    if !require::root() || !require::fuse() {
        return;
    }
    let sources = OLD.map(|(name, ..)| (name, "file", contents()));
    let big_endian = (BIG_ENDIAN, "data", b"twenty bytes of data".to_vec());
    for (name, file, expected) in sources.into_iter().chain([big_endian]) {
        let dir = temp_dir("old");
        let at = dir.path();
        fs::create_dir(at.join("mnt")).unwrap();
        let image = image(name);
        let args = ["mount", "--via", "fuse", image.to_str().unwrap(), "mnt"];
        let mounted = run(at, &args);
        assert_eq!(mounted.code, Some(0), "{name}: {}", mounted.stderr);
        let read = fs::read(at.join("mnt").join(file));
        run(at, &["umount", "mnt"]).ok();
        assert!(read.unwrap() == expected, "{name}");
    }
}
