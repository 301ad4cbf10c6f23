//! `forerun check --repair` on the command line: writes, messages, and status.

use std::fs;
use std::path::Path;

use forerun_testkit::{TempDir, temp_dir};

use crate::common::{Ran, command, ran};

fn forerun(dir: &Path, args: &[&str]) -> Ran {
    ran(command(args).current_dir(dir).output().unwrap())
}

/// Creates a directory with the exFAT volume `image` that has one file, damaged by `change`.
fn damaged(change: impl FnOnce(&mut Vec<u8>)) -> TempDir {
    let dir = temp_dir("repair-cli");
    let at = dir.path();
    fs::create_dir(at.join("tree")).unwrap();
    fs::write(at.join("tree/file"), vec![b'x'; 10_000]).unwrap();
    let args = ["pack", "-q", "--format", "exfat", "tree", "image"];
    forerun(at, &args).ok();
    let mut image = fs::read(at.join("image")).unwrap();
    change(&mut image);
    fs::write(at.join("image"), image).unwrap();
    dir
}

#[test]
fn yes_repairs_and_says_so() {
    // The backup boot sector is good.
    let dir = damaged(|image| image[100] ^= 1);
    let at = dir.path();
    let ran = forerun(at, &["check", "--repair", "--yes", "image"]);
    let said = ran.text();
    assert_eq!(ran.code, Some(8), "{said}");
    assert!(
        said.contains("repaired: write it anew from the backup"),
        "{said}"
    );
    forerun(at, &["check", "image"]).ok();
    // Nothing remains to be done.
    forerun(at, &["check", "--repair", "--yes", "image"]).ok();
}

/// Finds the entry of the allocation bitmap in the root directory of a volume with small sectors.
fn bitmap_entry(image: &[u8]) -> usize {
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    let root = word(88) * 512 + (word(96) - 2) * (512 << image[109]);
    let mut slots = (root..).step_by(32);
    slots.find(|&at| image[at] == 0x81).unwrap()
}

#[test]
fn a_volume_without_a_bitmap_is_repaired_and_no_hint_promises_it() {
    let dir = damaged(|image| {
        let at = bitmap_entry(image);
        image[at..at + 32].fill(0);
        image[at] = 5;
    });
    let at = dir.path();
    forerun(at, &["ls", "image"]).fails(
        1,
        "forerun: image: damaged exfat image: offset 0x0: no allocation bitmap in the root directory\n  \
         hint: forerun check --repair image --dry-run lists the repairs; forerun mount -o salvage shows the readable files",
    );
    let ran = forerun(at, &["check", "--repair", "--yes", "image"]);
    assert_eq!(ran.code, Some(8), "{}", ran.text());
    forerun(at, &["check", "image"]).ok();
    assert_eq!(forerun(at, &["ls", "image"]).ok().text(), "file\n");
}

#[test]
fn nothing_is_written_without_a_yes() {
    let dir = damaged(|image| image[100] ^= 1);
    let at = dir.path();
    let before = fs::read(at.join("image")).unwrap();
    let asked = forerun(at, &["check", "--repair", "image"]);
    assert_eq!(asked.code, Some(1));
    assert!(asked.stderr.contains("nothing was repaired"));
    let dry = forerun(at, &["check", "--repair", "--dry-run", "image"]);
    assert_eq!(dry.code, Some(1));
    assert!(dry.text().contains("would write it anew"));
    assert!(fs::read(at.join("image")).unwrap() == before);
}

#[test]
fn json_has_every_finding() {
    let dir = damaged(|image| image[106] |= 2);
    let ran = forerun(
        dir.path(),
        &["check", "--repair", "--yes", "--json", "image"],
    );
    let value = ran.json();
    assert_eq!(value["findings"][0]["kind"], "dirty");
    assert_eq!(value["findings"][0]["outcome"], "repaired");
    assert_eq!((&value["repaired"], &value["left"]), (&1.into(), &0.into()));
    assert_eq!(ran.code, Some(8));
}

#[test]
fn other_formats_are_refused() {
    let dir = temp_dir("repair-cli");
    let at = dir.path();
    fs::create_dir(at.join("tree")).unwrap();
    forerun(at, &["pack", "-q", "--format", "romfs", "tree", "image"]).ok();
    let ran = forerun(at, &["check", "--repair", "--yes", "image"]);
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("repair of romfs images"));
}

#[test]
fn what_cannot_be_opened_is_told_and_json_stays_whole() {
    let dir = temp_dir("repair-cli");
    let args = ["check", "--repair", "--yes", "missing"];
    forerun(dir.path(), &args).fails(4, "forerun: missing: No such file or directory");
    let ran = forerun(dir.path(), &[&args[..], &["--json"]].concat());
    assert_eq!(ran.code, Some(4));
    assert_eq!(ran.json()["findings"], serde_json::json!([]));
    assert_eq!(ran.json()["format"], serde_json::Value::Null);
}

const REPAIR: &[&str] = &["check", "--repair", "--yes", "image"];

fn undo(dir: &Path, more: &[&str]) -> Ran {
    let args = ["check", "--undo", "image.forerun-undo"];
    forerun(dir, &[&args[..], more].concat())
}

fn image(dir: &Path) -> Vec<u8> {
    fs::read(dir.join("image")).unwrap()
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn fat(image: &[u8]) -> usize {
    let sector = u32::from_le_bytes(image[80..84].try_into().unwrap());
    usize::try_from(sector).unwrap() * 512
}

#[test]
fn an_undo_file_takes_a_repair_back() {
    let damages: [fn(&mut Vec<u8>); 4] = [
        |image| image[100] ^= 1,
        |image| image[..6144].fill(0),
        |image| image[6144..12_288].fill(7),
        |image| {
            let at = fat(image);
            image[at..at + 8].fill(0);
            image[106] |= 2;
            image[112] = 101;
        },
    ];
    for damage in damages {
        let dir = damaged(damage);
        let at = dir.path();
        let before = image(at);
        let repaired = forerun(at, REPAIR);
        assert_eq!(repaired.code, Some(8), "{}", repaired.text());
        let told = "forerun: undo file: image.forerun-undo; \
            forerun check --undo image.forerun-undo image undoes the repair\n";
        assert_eq!(repaired.stderr, told);
        assert!(image(at) != before);
        let undone = undo(at, &["image"]).ok();
        assert!(undone.text().contains("restored, as before the repair"));
        assert!(image(at) == before);
        let again = undo(at, &["image"]).ok();
        assert_eq!(
            again.text(),
            "image: nothing to restore, as before the repair\n"
        );
    }
}

#[test]
fn an_undo_file_is_left_only_where_something_was_repaired() {
    let dir = damaged(|_| {});
    let at = dir.path();
    forerun(at, REPAIR).ok();
    assert_eq!(names(at), ["image", "tree"]);
    let mut bytes = image(at);
    bytes[100] ^= 1;
    fs::write(at.join("image"), bytes).unwrap();
    forerun(at, &["check", "--repair", "image"]);
    forerun(at, &["check", "--repair", "--dry-run", "image"]);
    assert_eq!(names(at), ["image", "tree"]);
    let without = forerun(at, &[REPAIR, &["--undo-file", "none"]].concat());
    assert_eq!((without.code, &*without.stderr), (Some(8), ""));
    assert_eq!(names(at), ["image", "tree"]);
}

#[test]
fn an_undo_file_never_replaces_another_file() {
    let dir = damaged(|image| image[100] ^= 1);
    let at = dir.path();
    let before = image(at);
    fs::write(at.join("image.forerun-undo"), "mine").unwrap();
    let ran = forerun(at, &[REPAIR, &["--json"]].concat());
    assert_eq!(ran.json()["undo_file"], "image.forerun-undo.1");
    assert_eq!(fs::read(at.join("image.forerun-undo")).unwrap(), b"mine");
    let args = ["check", "--undo", "image.forerun-undo.1", "--json", "image"];
    let ran = forerun(at, &args).ok();
    let value = ran.json();
    assert_eq!(
        (&value["undo"], &value["complete"]),
        (&true.into(), &true.into())
    );
    assert_eq!(value["undo_file"], "image.forerun-undo.1");
    assert_eq!(value["written"], 512);
    assert!(image(at) == before);
    let mut args = [REPAIR, &["--undo-file", "image.forerun-undo"]].concat();
    let hint = "--undo-file FILE makes it elsewhere, --undo-file none makes none";
    let refused =
        format!("forerun: image: undo file image.forerun-undo: exists already\n  hint: {hint}");
    forerun(at, &args).fails(5, &refused);
    *args.last_mut().unwrap() = "missing/undo";
    let refused = format!(
        "forerun: image: undo file missing/undo: No such file or directory\n  hint: {hint}"
    );
    forerun(at, &args).fails(5, &refused);
    assert!(image(at) == before);
    *args.last_mut().unwrap() = "tree/mine";
    assert_eq!(forerun(at, &args).code, Some(8));
    forerun(at, &["check", "--undo", "tree/mine", "image"]).ok();
    assert!(image(at) == before);
}

#[test]
fn a_volume_that_an_undo_file_does_not_fit_is_left_alone() {
    let dir = damaged(|image| image[100] ^= 1);
    let at = dir.path();
    let before = image(at);
    assert_eq!(forerun(at, REPAIR).code, Some(8));
    let repaired = image(at);
    // The serial number differs.
    let mut other = repaired.clone();
    other[100] ^= 0xFF;
    fs::write(at.join("image"), &other).unwrap();
    let refused = undo(at, &["image"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("for another volume"),
        "{}",
        refused.stderr
    );
    assert!(image(at) == other);
    fs::write(at.join("image"), &repaired[..1 << 19]).unwrap();
    let refused = undo(at, &["--force", "image"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("for a volume of 1048576 bytes"),
        "{}",
        refused.stderr
    );
    // A sector that the repair wrote has changed.
    let mut changed = repaired;
    changed[5000] ^= 1;
    fs::write(at.join("image"), &changed).unwrap();
    let refused = undo(at, &["image"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("sector at offset 0x1200"),
        "{}",
        refused.stderr
    );
    assert!(image(at) == changed);
    undo(at, &["--force", "image"]).ok();
    assert!(image(at) == before);
}

#[test]
fn a_file_that_is_no_undo_file_is_refused() {
    let dir = damaged(|image| image[100] ^= 1);
    let at = dir.path();
    let before = image(at);
    fs::copy(at.join("tree/file"), at.join("image.forerun-undo")).unwrap();
    undo(at, &["image"]).fails(3, "forerun: image.forerun-undo: not an undo file");
    fs::remove_file(at.join("image.forerun-undo")).unwrap();
    undo(at, &["image"]).fails(4, "forerun: image.forerun-undo: No such file or directory");
    assert_eq!(forerun(at, REPAIR).code, Some(8));
    let repaired = image(at);
    let mut file = fs::read(at.join("image.forerun-undo")).unwrap();
    file[2000] ^= 1;
    fs::write(at.join("image.forerun-undo"), &file).unwrap();
    let refused = undo(at, &["image"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.stderr.contains("undo file is damaged"),
        "{}",
        refused.stderr
    );
    assert!(image(at) == repaired && repaired != before);
    for with in [
        &["--repair", "image"][..],
        &["--quick", "image"],
        &["--no-lock", "image"],
    ] {
        assert_eq!(undo(at, with).code, Some(2), "{with:?}");
    }
}

#[test]
fn an_undo_takes_the_lock_of_a_writer() {
    let dir = damaged(|image| image[100] ^= 1);
    let at = dir.path();
    assert_eq!(forerun(at, REPAIR).code, Some(8));
    let repaired = image(at);
    let reader = fs::File::open(at.join("image")).unwrap();
    reader.try_lock_shared().unwrap();
    let refused = undo(at, &["image"]);
    assert_eq!(refused.code, Some(4));
    assert!(refused.stderr.contains("in use"), "{}", refused.stderr);
    assert!(image(at) == repaired);
    undo(at, &["--break-lock", "image"]).ok();
    assert!(image(at) != repaired);
}

#[test]
fn a_volume_within_a_file_has_an_undo_file_of_its_own_offsets() {
    let dir = damaged(|image| image[100] ^= 1);
    let at = dir.path();
    let before = [vec![b'-'; 4096], image(at), vec![b'+'; 512]].concat();
    fs::write(at.join("image"), &before).unwrap();
    let place = ["--offset", "4096", "--size", "1048576"];
    let ran = forerun(at, &[REPAIR, &place].concat());
    assert_eq!(ran.code, Some(8), "{}", ran.stderr);
    let told = "--undo image.forerun-undo --offset 4096 --size 1048576 image undoes";
    assert!(ran.stderr.contains(told), "{}", ran.stderr);
    assert!(image(at) != before);
    assert_eq!(undo(at, &["image"]).code, Some(1));
    undo(at, &[&place[..], &["image"]].concat()).ok();
    assert!(image(at) == before);
}
