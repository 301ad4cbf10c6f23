//! Extractions that continue an earlier one.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use forerun_export::{ExtractOptions, ExtractReport};
use forerun_testkit::{MemFsBuilder, MemImage, Piece, TempDir, temp_dir};

use crate::common::reader;
use crate::extracting::{all, failures};

/// Returns an image with a file, a hard link to it, a symbolic link and an empty file, all with the
/// same time.
fn small_tree() -> MemImage {
    let mut builder = MemFsBuilder::new();
    let data = builder.file("a/data", [Piece::Stored(vec![7; 5000]), Piece::Zero(5000)]);
    builder.hard_link("z", data);
    let link = builder.symlink("link", b"a/data");
    let empty = builder.file("empty", [Piece::Zero(0)]);
    for node in [data, link, empty] {
        builder.metadata(node, |metadata| metadata.mtime.seconds = 1_000_000_000);
    }
    builder.build()
}

/// Extracts, changes the target, and extracts again with `skip_existing`.
fn resumed(change: impl FnOnce(&Path)) -> (TempDir, ExtractReport) {
    let image = small_tree();
    let dir = temp_dir("extract");
    let options = ExtractOptions {
        skip_existing: true,
        ..ExtractOptions::default()
    };
    let first = all(&reader(&image), dir.path(), &options);
    assert!(first.is_complete(), "{first:?}");
    assert_eq!((first.files, first.skipped), (2, 0));
    change(dir.path());
    let report = all(&reader(&image), dir.path(), &options);
    (dir, report)
}

/// Asserts that a target contains all of [`small_tree`].
#[track_caller]
fn assert_small_tree(dir: &Path) {
    let data = [vec![7; 5000], vec![0; 5000]].concat();
    assert_eq!(fs::read(dir.join("a/data")).unwrap(), data);
    let [first, further] = ["a/data", "z"].map(|name| fs::metadata(dir.join(name)).unwrap());
    assert_eq!((first.ino(), first.mtime()), (further.ino(), 1_000_000_000));
    assert_eq!(
        fs::read_link(dir.join("link")).unwrap(),
        Path::new("a/data")
    );
    assert_eq!(fs::metadata(dir.join("empty")).unwrap().len(), 0);
}

#[test]
fn what_an_earlier_run_finished_is_skipped_and_counted() {
    let (dir, report) = resumed(|_| {});
    assert!(report.is_complete(), "{report:?}");
    let made = (report.files, report.hard_links, report.symlinks);
    assert_eq!((made, report.skipped), ((0, 0, 0), 4));
    assert_small_tree(dir.path());
}

#[test]
fn what_an_earlier_run_left_unfinished_is_made_anew() {
    // A truncated file, a complete file without its time, a link without its time, and a missing
    // hard link.
    let (dir, report) = resumed(|dir| {
        fs::remove_file(dir.join("a/data")).unwrap();
        fs::write(dir.join("a/data"), [7; 4000]).unwrap();
        fs::remove_file(dir.join("empty")).unwrap();
        fs::write(dir.join("empty"), []).unwrap();
        fs::remove_file(dir.join("link")).unwrap();
        symlink("a/data", dir.join("link")).unwrap();
    });
    assert!(report.is_complete(), "{:?}", failures(&report));
    let made = (report.files, report.hard_links, report.symlinks);
    assert_eq!((made, report.skipped), ((2, 1, 1), 0));
    assert_small_tree(dir.path());
}

#[test]
fn files_that_no_earlier_run_left_are_not_replaced() {
    let (dir, report) = resumed(|dir| {
        fs::write(dir.join("a/data"), [&[7; 4999][..], &[8]].concat()).unwrap();
        fs::write(dir.join("empty"), "mine").unwrap();
        fs::remove_file(dir.join("link")).unwrap();
        symlink("elsewhere", dir.join("link")).unwrap();
    });
    assert_eq!(report.failed(), 4, "{:?}", failures(&report));
    assert_eq!((report.files, report.missing), (0, 4));
    assert_eq!(fs::read(dir.path().join("empty")).unwrap(), b"mine");
    assert_eq!(fs::read(dir.path().join("a/data")).unwrap()[4999], 8);
    let link = fs::read_link(dir.path().join("link")).unwrap();
    assert_eq!(link, Path::new("elsewhere"));
}
