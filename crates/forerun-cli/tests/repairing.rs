//! `forerun check --repair` on the command line: what is written, what is said, and the status.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs;
use std::path::Path;

use common::{Ran, command, ran};
use forerun_testkit::{TempDir, temp_dir};

fn forerun(dir: &Path, args: &[&str]) -> Ran {
    ran(command(args).current_dir(dir).output().unwrap())
}

/// A directory with the exFAT volume `image` that has one file, damaged by `change`.
fn damaged(change: impl FnOnce(&mut Vec<u8>)) -> TempDir {
    let dir = temp_dir("repair-cli");
    let at = dir.path();
    fs::create_dir(at.join("tree")).unwrap();
    fs::write(at.join("tree/file"), vec![b'x'; 10_000]).unwrap();
    let args = ["pack", "--format", "exfat", "tree", "image"];
    forerun(at, &args).ok();
    let mut image = fs::read(at.join("image")).unwrap();
    change(&mut image);
    fs::write(at.join("image"), image).unwrap();
    dir
}

#[test]
fn yes_repairs_and_says_so() {
    // The backup is good.
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
    // Nothing is left to do.
    forerun(at, &["check", "--repair", "--yes", "image"]).ok();
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
    forerun(at, &["pack", "--format", "romfs", "tree", "image"]).ok();
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
}
