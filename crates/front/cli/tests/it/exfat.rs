//! exFAT on the command line: made, described, labelled, read.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use forerun::MemorySource;
use forerun_testkit::exfat_judge::judge;
use forerun_testkit::{TempDir, temp_dir};

use crate::common::{Ran, command, ran};

fn tree() -> TempDir {
    let dir = temp_dir("exfat-cli");
    fs::create_dir_all(dir.path().join("tree/sub")).unwrap();
    fs::write(dir.path().join("tree/file"), vec![b'x'; 10_000]).unwrap();
    fs::write(dir.path().join("tree/sub/second"), "second").unwrap();
    dir
}

fn forerun(dir: &Path, args: &[&str]) -> Ran {
    ran(command(args).current_dir(dir).output().unwrap())
}

fn pack(dir: &Path, options: &[&str]) -> Ran {
    let args = [
        &["pack", "--format", "exfat", "--force"],
        options,
        &["tree", "image"],
    ]
    .concat();
    forerun(dir, &args)
}

#[test]
fn a_volume_of_a_given_length_is_sparse_and_reads_back() {
    let dir = tree();
    let at = dir.path();
    let options = [
        "--volume-size",
        "64G",
        "--label",
        "CARD",
        "--serial",
        "1234-ABCD",
    ];
    pack(at, &options).ok();
    let metadata = at.join("image").metadata().unwrap();
    assert_eq!(metadata.len(), 64 << 30);
    assert!(
        metadata.blocks() * 512 < 1 << 20,
        "{} blocks",
        metadata.blocks()
    );
    assert_eq!(
        forerun(at, &["cat", "image", "/sub/second"]).ok().stdout,
        b"second"
    );
    assert_eq!(forerun(at, &["label", "image"]).ok().text(), "CARD\n");
    forerun(at, &["check", "image"]).ok();
    forerun(at, &["extract", "-C", "out", "image"]).ok();
    assert_eq!(fs::read(at.join("out/file")).unwrap(), vec![b'x'; 10_000]);
}

#[test]
fn a_label_is_changed_in_place() {
    let dir = tree();
    let at = dir.path();
    pack(at, &[]).ok();
    assert_eq!(forerun(at, &["label", "image"]).ok().text(), "");
    forerun(at, &["label", "image", "f\u{fc}nf"]).ok();
    assert_eq!(forerun(at, &["label", "image"]).ok().text(), "f\u{fc}nf\n");
    let json = forerun(at, &["--json", "label", "image"]).ok().json();
    assert_eq!(json["label"], "f\u{fc}nf");
    let report = judge(&MemorySource::new(fs::read(at.join("image")).unwrap())).unwrap();
    assert!(report.clean(), "{:?}", report.findings);
    forerun(at, &["label", "image", "longer than that"]).fails(
        1,
        "forerun: image: invalid name: longer than 11 UTF-16 units",
    );
    forerun(at, &["label", "image", ""]).ok();
    assert_eq!(forerun(at, &["label", "image"]).ok().text(), "");
}

#[test]
fn what_is_left_out_is_told() {
    let dir = tree();
    let at = dir.path();
    symlink("file", at.join("tree/link")).unwrap();
    fs::hard_link(at.join("tree/file"), at.join("tree/twin")).unwrap();
    pack(at, &[]).fails(
        6,
        "forerun: image: 1 symbolic link left out, as exfat has none: /link\n  hint: --exclude leaves them out silently\n\
         forerun: image: exfat cannot store everything: 1 hard link becomes a file of its own (/twin)",
    );
    assert_eq!(
        forerun(at, &["cat", "image", "/twin"]).ok().stdout,
        vec![b'x'; 10_000]
    );
}

#[test]
fn names_that_do_not_fit_are_listed() {
    let dir = tree();
    let at = dir.path();
    for name in ["FILE", "a:b"] {
        fs::write(at.join("tree").join(name), "").unwrap();
    }
    let ran = pack(at, &[]);
    assert_eq!(ran.code, Some(3), "{}", ran.stderr);
    for part in ["file: differs only in case from FILE", "a:b: invalid name"] {
        assert!(ran.stderr.contains(part), "{part} in {}", ran.stderr);
    }
    assert!(!at.join("image").exists());
}

#[test]
fn the_same_input_gives_the_same_volume_through_a_pipe_too() {
    let dir = tree();
    let at = dir.path();
    let pack = || {
        let mut command = command(&["pack", "--format", "exfat", "tree", "-"]);
        let output = command
            .env("SOURCE_DATE_EPOCH", "1600000000")
            .current_dir(at)
            .output();
        ran(output.unwrap()).ok().stdout
    };
    let first = pack();
    let file = fs::File::options()
        .write(true)
        .open(at.join("tree/file"))
        .unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    assert!(first == pack());
    let report = judge(&MemorySource::new(first)).unwrap();
    assert!(report.clean(), "{:?}", report.findings);
}

#[test]
fn options_of_others_and_out_of_range_are_refused() {
    let dir = tree();
    for (options, message) in [
        (
            ["--owner", "0:0"].as_slice(),
            "--owner has no effect: exfat stores no owners",
        ),
        (
            &["--compressor", "zstd"],
            "--compressor is an option of squashfs and erofs, but the image is exfat",
        ),
        (
            &["--uuid", "01234567-89ab-cdef-0123-456789abcdef"],
            "--uuid is an option of erofs, but the image is exfat",
        ),
        (
            &["--label", "twelve chars"],
            "volume label: invalid name: longer than 11 UTF-16 units",
        ),
    ] {
        pack(dir.path(), options).fails(2, &format!("forerun: {message}"));
    }
    let args = [
        "pack",
        "--format",
        "erofs",
        "--guid",
        "01234567-89ab-cdef-0123-456789abcdef",
        "tree",
        "x",
    ];
    let message = "forerun: --guid is an option of exfat, but the image is erofs";
    forerun(dir.path(), &args).fails(2, message);
}

#[test]
fn names_longer_than_255_bytes_are_sound() {
    let dir = temp_dir("exfat-cli");
    let at = dir.path();
    let mut archive = tar::Builder::new(fs::File::create(at.join("long.tar")).unwrap());
    for name in ["\u{20AC}".repeat(255), "\u{1F600}".repeat(127)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        header.set_uid(0);
        header.set_gid(0);
        let mut bytes = &b"abc"[..];
        archive.append_data(&mut header, &name, &mut bytes).unwrap();
    }
    archive.finish().unwrap();
    let args = ["pack", "--format", "exfat", "long.tar", "image"];
    forerun(at, &args).ok();
    forerun(at, &["check", "image"]).ok();
    let listed = forerun(at, &["ls", "image"]).ok().text().to_owned();
    assert!(listed.lines().any(|name| name.len() == 765), "{listed}");
    for format in ["squashfs", "erofs", "romfs"] {
        let refused = forerun(at, &["convert", "--format", format, "image", "other"]);
        assert_eq!(refused.code, Some(3), "{}", refused.stderr);
        assert!(
            refused.stderr.contains("a name of 765 bytes"),
            "{}",
            refused.stderr
        );
    }
}

/// Truncates the directory entry set of the file `second`.
fn cut_short(image: &Path) {
    let mut bytes = fs::read(image).unwrap();
    let name: Vec<u8> = "second".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let found = bytes.windows(name.len()).rposition(|window| window == name);
    // The name follows two bytes of its entry, and the stream extension precedes that entry.
    let entry = found.unwrap() - 2;
    bytes[entry - 32] = 0;
    fs::write(image, bytes).unwrap();
}

#[test]
fn a_damaged_directory_is_reported_once() {
    let dir = tree();
    pack(dir.path(), &[]).ok();
    cut_short(&dir.path().join("image"));
    let checked = forerun(dir.path(), &["check", "image"]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    let mut errors: Vec<_> = checked.text().lines().collect();
    let all = errors.len();
    errors.sort_unstable();
    errors.dedup();
    assert_eq!(errors.len(), all, "{}", checked.text());
    // One error is the entry set, the other the bytes after the end of the directory.
    assert!(
        checked.text().contains("image: 2 errors, 1 warning ("),
        "{}",
        checked.text()
    );
}

#[test]
fn a_check_reads_each_directory_at_most_twice() {
    const DIRECTORIES: u64 = 300;
    let dir = temp_dir("exfat-check");
    for n in 0..DIRECTORIES {
        let sub = dir.path().join(format!("tree/{}/{n}", n % 7));
        fs::create_dir_all(&sub).unwrap();
        fs::write(sub.join("a"), "").unwrap();
    }
    let sizes = ["--volume-size", "256M", "--cluster-size", "128K"];
    pack(dir.path(), &sizes).ok();
    let checked = forerun(dir.path(), &["check", "--stats", "--json", "image"]);
    assert_eq!(checked.code, Some(0), "{}", checked.stderr);
    let stats: serde_json::Value = serde_json::from_str(&checked.stderr).unwrap();
    let stats = &stats["stats"];
    let requests = stats["source_requests"].as_u64().unwrap();
    // Seven more directories and the root; boot regions, FAT, bitmap and up-case table.
    assert!(requests <= 2 * (DIRECTORIES + 8) + 30, "{stats}");
    // They are read to their last byte.
    let bytes = stats["source_bytes"].as_u64().unwrap();
    assert!(bytes >= (DIRECTORIES + 8) * (128 << 10), "{stats}");
}

#[test]
fn deleted_files_are_listed_and_saved() {
    let dir = tree();
    let at = dir.path();
    pack(at, &[]).ok();
    let volume = fs::read(at.join("image")).unwrap();
    let name: Vec<u8> = "second".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let found = volume.windows(12).rposition(|window| window == name);
    let set = found.unwrap() - 66;
    let mut deleted = volume.clone();
    for entry in 0..3 {
        deleted[set + entry * 32] &= 0x7F;
    }
    // Its cluster is free: it is the last that the bitmap marks used.
    let word = |at: usize| u32::from_le_bytes(volume[at..at + 4].try_into().unwrap());
    let cluster = word(set + 52) - 2;
    let heap = word(88) as usize * 512;
    deleted[heap + cluster as usize / 8] &= !(1 << (cluster % 8));
    fs::write(at.join("image"), &deleted).unwrap();

    let listed = forerun(at, &["salvage", "--deleted", "image"]);
    assert_eq!(listed.code, Some(0), "{}", listed.stderr);
    let text = listed.text();
    assert!(
        text.starts_with("whole ") && text.ends_with(" /sub/second\n"),
        "{text}"
    );
    let saved = forerun(at, &["salvage", "--deleted", "-C", "saved", "image"]);
    assert_eq!(saved.code, Some(0), "{}", saved.stderr);
    assert_eq!(fs::read(at.join("saved/sub/second")).unwrap(), b"second");
    let again = forerun(at, &["salvage", "--deleted", "-C", "saved", "image"]);
    assert_eq!(again.code, Some(5), "{again:?}");
    let json = forerun(at, &["--json", "salvage", "--deleted", "image"])
        .ok()
        .json();
    assert_eq!(json[0]["state"], "whole");
}

#[test]
fn times_without_a_zone_are_in_the_zone_that_is_named() {
    let dir = tree();
    let at = dir.path();
    pack(at, &[]).ok();
    let mut volume = fs::read(at.join("image")).unwrap();
    let name: Vec<u8> = "file".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let found = volume.windows(8).rposition(|window| window == name);
    let set = found.unwrap() - 66;
    // 2025-07-01 12:00, without an offset from UTC.
    let word = 45_u32 << 25 | 7 << 21 | 1 << 16 | 12 << 11;
    volume[set + 12..set + 16].copy_from_slice(&word.to_le_bytes());
    // No fraction of two seconds, no offset from UTC.
    volume[set + 21] = 0;
    volume[set + 23] = 0;
    let sum = (0..96)
        .filter(|n| !matches!(n, 2 | 3))
        .fold(0_u16, |sum, n| {
            sum.rotate_right(1).wrapping_add(u16::from(volume[set + n]))
        });
    volume[set + 2..set + 4].copy_from_slice(&sum.to_le_bytes());
    fs::write(at.join("image"), &volume).unwrap();
    for (zone, hours) in [("UTC", 12), ("Europe/Berlin", 10), ("America/New_York", 16)] {
        let args = ["extract", "--force", "--tz", zone, "-C", "out", "image"];
        forerun(at, &args).ok();
        let modified = at.join("out/file").metadata().unwrap().mtime();
        assert_eq!(modified, 1_751_328_000 + hours * 3600, "{zone}");
    }
    let outside = forerun(at, &["ls", "--tz", "../../../etc/passwd", "image"]);
    assert_eq!(outside.code, Some(2), "{outside:?}");
}
