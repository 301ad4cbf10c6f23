//! `--salvage`: commands on truncated images, compared with the tree.

use std::fs;
use std::path::Path;
use std::process::Command;

use forerun_testkit::require;

use crate::common::{Fixture, Ran, command, ran};

/// Truncates an image of mksquashfs to `tenths` tenths.
fn cut(fixture: &Fixture, tenths: usize, options: &[&str]) -> Option<()> {
    require::program("mksquashfs")?;
    let made = Command::new("mksquashfs")
        .arg(fixture.path("tree"))
        .arg(fixture.path("a.sqsh"))
        .args([
            "-noappend",
            "-no-progress",
            "-quiet",
            "-nopad",
            "-b",
            "16384",
        ])
        .args(options)
        .output()
        .unwrap();
    assert!(made.status.success());
    let image = fs::read(fixture.path("a.sqsh")).unwrap();
    fs::write(
        fixture.path("cut.sqsh"),
        &image[..image.len() * tenths / 10],
    )
    .unwrap();
    Some(())
}

fn run(fixture: &Fixture, args: &[&str]) -> Ran {
    ran(command(args)
        .current_dir(fixture.dir.path())
        .output()
        .unwrap())
}

fn report(fixture: &Fixture) -> serde_json::Value {
    let bytes = fs::read(fixture.path("report.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

/// Returns the only partial file. The image lists it first, and it has two names.
fn partial(report: &serde_json::Value) -> &serde_json::Value {
    assert_eq!(report["partial"], 1);
    let files = report["files"].as_array().unwrap();
    let found = files.iter().find(|file| file["state"] == "partial");
    let found = found.unwrap();
    assert_eq!(found["path"], "/hard");
    found
}

/// Makes `cut.img`, the first half of a romfs image.
fn cut_romfs(fixture: &Fixture) {
    let image = fs::read(fixture.path("a.img")).unwrap();
    fs::write(fixture.path("cut.img"), &image[..image.len() / 2]).unwrap();
}

fn extract(fixture: &Fixture, image: &str) -> Ran {
    let args = [
        "extract",
        "--salvage",
        "--report",
        "report.json",
        "-C",
        "out",
        image,
    ];
    let extracted = run(fixture, &args);
    assert_eq!(extracted.code, Some(6), "{}", extracted.stderr);
    extracted
}

/// Asserts that `file` matches the report: right bytes, and zeros where they are lost.
fn assert_as_told(file: &Path, expected: &[u8], lost: &serde_json::Value) {
    let actual = fs::read(file).unwrap();
    assert_eq!(actual.len(), expected.len());
    let ranges: Vec<_> = lost.as_array().unwrap().iter().collect();
    let is_lost = |at: usize| {
        let at = u64::try_from(at).unwrap();
        let holds = |range: &&serde_json::Value| {
            (range[0].as_u64().unwrap()..range[1].as_u64().unwrap()).contains(&at)
        };
        ranges.iter().any(holds)
    };
    for (at, (&actual, &expected)) in actual.iter().zip(expected).enumerate() {
        let expected = if is_lost(at) { 0 } else { expected };
        assert_eq!(actual, expected, "byte {at}");
    }
}

#[test]
fn a_cut_romfs_gives_whole_files_and_the_first_part_of_the_one_that_is_cut() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    cut_romfs(&fixture);
    let refused = run(&fixture, &["ls", "cut.img"]);
    assert!(refused.stderr.contains("--salvage"), "{}", refused.stderr);
    let listed = run(&fixture, &["ls", "--salvage", "cut.img"]);
    let names = listed.stdout.split(|&byte| byte == b'\n');
    assert!(names.into_iter().any(|name| name == b"hard"), "{listed:?}");
    let extracted = extract(&fixture, "cut.img");
    assert!(
        extracted.stderr.contains("are zeros in the output"),
        "{}",
        extracted.stderr
    );
    let report = report(&fixture);
    let big = partial(&report);
    let expected = fs::read(fixture.path("tree/big")).unwrap();
    let lost = big["lost"][0][0].as_u64().unwrap();
    assert!(lost > 1_000_000, "{lost}");
    assert_as_told(&fixture.path("out/hard"), &expected, &big["lost"]);
}

#[test]
fn a_tar_of_a_cut_image_marks_what_is_lost() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    cut_romfs(&fixture);
    let args = [
        "tar",
        "--salvage",
        "--report",
        "report.json",
        "-o",
        "a.tar",
        "cut.img",
    ];
    let archived = run(&fixture, &args);
    assert_eq!(archived.code, Some(6), "{}", archived.stderr);
    let archive = fs::read(fixture.path("a.tar")).unwrap();
    let marked = archive.windows(12).any(|bytes| bytes == b"FORERUN.lost");
    assert!(marked);
    let out = fixture.path("untarred");
    fs::create_dir(&out).unwrap();
    let untarred = Command::new("tar")
        .arg("xf")
        .arg(fixture.path("a.tar"))
        .current_dir(&out)
        .output()
        .unwrap();
    assert!(untarred.status.success());
    let report = report(&fixture);
    let big = partial(&report);
    let expected = fs::read(fixture.path("tree/big")).unwrap();
    assert_as_told(&out.join("hard"), &expected, &big["lost"]);
}

#[test]
fn a_squashfs_without_its_last_tables_keeps_its_names() {
    let fixture = Fixture::tree();
    if cut(&fixture, 10, &[]).is_none() {
        return;
    }
    // Without the table of ids.
    let mut image = fs::read(fixture.path("a.sqsh")).unwrap();
    let ids: [u8; 8] = image[48..56].try_into().unwrap();
    image.truncate(usize::try_from(u64::from_le_bytes(ids)).unwrap() - 4);
    fs::write(fixture.path("cut.sqsh"), image).unwrap();
    let refused = run(&fixture, &["extract", "-C", "none", "cut.sqsh"]);
    assert!(refused.stderr.contains("--salvage"), "{}", refused.stderr);
    extract(&fixture, "cut.sqsh");
    for file in ["big", "etc/passwd", "bin/tool"] {
        let same = fs::read(fixture.path("tree").join(file)).unwrap()
            == fs::read(fixture.path("out").join(file)).unwrap();
        assert!(same, "{file}");
    }
    let report = report(&fixture);
    assert_eq!(
        (&report["partial"], &report["lost"]),
        (&0.into(), &0.into())
    );
    assert!(
        report["damage"]
            .as_array()
            .is_some_and(|damage| !damage.is_empty())
    );
    let passwd = run(&fixture, &["cat", "--salvage", "cut.sqsh", "/etc/passwd"]);
    assert_eq!(
        passwd.stdout,
        fs::read(fixture.path("tree/etc/passwd")).unwrap()
    );
    // A path that the image does not have was not lost.
    let words = ["cat", "--salvage", "cut.sqsh", "/nowhere", "/etc/passwd"];
    let missing = run(&fixture, &words);
    assert_eq!(missing.code, Some(1), "{}", missing.stderr);
    let told = "1 file is whole; 0 partial; 0 entries lost";
    assert!(missing.stderr.contains(told), "{}", missing.stderr);
    let dumped = run(&fixture, &["dump", "--salvage", "cut.sqsh"]);
    assert_eq!(dumped.code, Some(0), "{}", dumped.stderr);
}

#[test]
fn a_squashfs_without_any_table_gives_data_that_is_marked_as_a_guess() {
    let fixture = Fixture::tree();
    if cut(&fixture, 9, &["-no-fragments"]).is_none() {
        return;
    }
    let extracted = extract(&fixture, "cut.sqsh");
    let report = report(&fixture);
    for file in report["files"].as_array().unwrap() {
        assert_eq!(file["guess"], true, "{file}");
        assert!(file["path"].as_str().unwrap().starts_with("/lost+found/"));
    }
    assert!(
        extracted.stderr.contains("by guess"),
        "{}",
        extracted.stderr
    );
    let once_more = run(
        &fixture,
        &["extract", "--report", "report.json", "cut.sqsh"],
    );
    assert_eq!(once_more.code, Some(2), "{}", once_more.stderr);
}

#[test]
fn convert_leaves_out_what_is_not_whole() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    cut_romfs(&fixture);
    let converted = run(&fixture, &["convert", "--salvage", "cut.img", "new.sqsh"]);
    assert_eq!(converted.code, Some(6), "{}", converted.stderr);
    assert!(converted.stderr.contains("/hard"), "{}", converted.stderr);
    let extracted = run(&fixture, &["extract", "-C", "out", "new.sqsh"]);
    assert_eq!(extracted.code, Some(0), "{}", extracted.stderr);
    assert!(!fixture.path("out/hard").exists());
}

/// Makes an image of the tree with mkfs.cramfs, and `cut.cramfs`, its first `len` bytes.
fn cut_cramfs(fixture: &Fixture, len: impl FnOnce(usize) -> usize) -> bool {
    let Some(mkfs) = require::program("mkfs.cramfs") else {
        return false;
    };
    let mut made = Command::new(mkfs);
    let made = made.args(["tree", "a.cramfs"]);
    let made = made.current_dir(fixture.dir.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let image = fs::read(fixture.path("a.cramfs")).unwrap();
    fs::write(fixture.path("cut.cramfs"), &image[..len(image.len())]).unwrap();
    true
}

/// Runs `cat --salvage --report` on a partly lost file with the contents of `big`, and compares the
/// output.
fn cat_of_a_part(fixture: &Fixture, image: &str, path: &str) {
    let args = ["cat", "--salvage", "--report", "report.json", image, path];
    let written = run(fixture, &args);
    assert_eq!(written.code, Some(6), "{}", written.stderr);
    let told = "they are zeros in the output";
    assert!(written.stderr.contains(told), "{}", written.stderr);
    let report = report(fixture);
    let big = &report["files"][0];
    assert_eq!(
        (&big["path"], &big["state"]),
        (&path.into(), &"partial".into())
    );
    fs::write(fixture.path("written"), &written.stdout).unwrap();
    let expected = fs::read(fixture.path("tree/big")).unwrap();
    assert_as_told(&fixture.path("written"), &expected, &big["lost"]);
    // Without --salvage, the output ends at the damage.
    let plain = run(fixture, &["cat", image, path]);
    assert!(plain.code != Some(0) && plain.stdout.len() < expected.len());
}

#[test]
fn cat_writes_zeros_for_what_a_cut_romfs_has_lost() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    cut_romfs(&fixture);
    // The link lies before the file, next to the data.
    cat_of_a_part(&fixture, "cut.img", "/hard");
}

#[test]
fn cat_writes_zeros_for_what_a_cut_cramfs_has_lost() {
    let fixture = Fixture::tree();
    if cut_cramfs(&fixture, |len| len / 2) {
        cat_of_a_part(&fixture, "cut.cramfs", "/big");
    }
}

#[test]
fn cat_writes_nothing_of_a_file_of_which_there_is_nothing() {
    let fixture = Fixture::tree();
    if !cut_cramfs(&fixture, |_| 1024) {
        return;
    }
    let args = [
        "cat",
        "--salvage",
        "--report",
        "report.json",
        "cut.cramfs",
        "/big",
        "/none",
    ];
    let written = run(&fixture, &args);
    assert_eq!(written.code, Some(6), "{}", written.stderr);
    assert_eq!(written.stdout, b"");
    let report = report(&fixture);
    assert_eq!(
        (&report["lost"], &report["partial"]),
        (&1.into(), &0.into())
    );
    let failures = report["failures"].as_array().unwrap();
    let kinds: Vec<_> = failures.iter().map(|failure| &failure["path"]).collect();
    assert_eq!(kinds, ["/big", "/none"]);
}

#[test]
fn a_report_replaces_a_file_only_with_force() {
    let fixture = Fixture::tree();
    let made = run(&fixture, &["pack", "-q", "tree", "a.sqsh"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let salvage = ["--salvage", "--report", "mine", "a.sqsh"];
    for words in [
        &["extract", "-C", "into"][..],
        &["tar", "-o", "archive.tar"],
        &["cat", "/big"],
    ] {
        fs::write(fixture.path("mine"), "mine").unwrap();
        let mut all = vec![words[0]];
        all.extend(salvage);
        all.extend(&words[1..]);
        let refused = run(&fixture, &all);
        assert_eq!(refused.code, Some(5), "{words:?}: {}", refused.stderr);
        let expected = "forerun: mine: exists already\n  hint: --force replaces it\n";
        assert_eq!(refused.stderr, expected);
        assert_eq!(fs::read(fixture.path("mine")).unwrap(), b"mine");
        assert!(!fixture.path("into").exists() && !fixture.path("archive.tar").exists());
        all.push("--force");
        let replaced = run(&fixture, &all);
        assert_eq!(replaced.code, Some(0), "{words:?}: {}", replaced.stderr);
        assert!(fs::read(fixture.path("mine")).unwrap().starts_with(b"{"));
        let _made_by_extract = fs::remove_dir_all(fixture.path("into"));
        let _made_by_tar = fs::remove_file(fixture.path("archive.tar"));
    }
}

#[test]
fn cat_takes_no_report_without_a_salvage_nor_to_standard_output() {
    let fixture = Fixture::tree();
    for args in [
        &["cat", "--report", "report.json", "a.img", "/big"][..],
        &["cat", "--salvage", "--report", "-", "a.img", "/big"],
    ] {
        let refused = run(&fixture, args);
        assert_eq!(refused.code, Some(2), "{}", refused.stderr);
        assert_eq!(refused.stdout, b"");
    }
}

#[test]
fn a_partition_of_a_cut_disk_is_salvaged_as_its_offset_is() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let image = fs::read(fixture.path("a.img")).unwrap();
    let sectors = u32::try_from(image.len().div_ceil(512)).unwrap();
    let mut disk = vec![0; 4096];
    disk[446..462].copy_from_slice(
        &[
            &[0, 0, 0, 0, 0x83, 0, 0, 0][..],
            &8_u32.to_le_bytes(),
            &sectors.to_le_bytes(),
        ]
        .concat(),
    );
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend_from_slice(&image[..image.len() / 2]);
    fs::write(fixture.path("disk.img"), disk).unwrap();
    let refused = run(&fixture, &["ls", "--partition=1", "disk.img"]);
    assert!(refused.stderr.contains("--salvage"), "{}", refused.stderr);
    let by_offset = run(&fixture, &["ls", "--salvage", "--offset=4096", "disk.img"]);
    let by_number = run(&fixture, &["ls", "--salvage", "--partition=1", "disk.img"]);
    assert!(!by_number.stdout.is_empty());
    assert_eq!(by_number.stdout, by_offset.stdout);
    assert_eq!(by_number.code, by_offset.code);
}
