//! Each kind of difference by itself, and no differences between equal trees.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use forerun_export::{
    Change, DiffOptions, DiffReport, Difference, ExtractOptions, NoProgress, Patterns, Selection,
    Side, diff, extract,
};
use forerun_io::Limits;
use forerun_testkit::{FaultSource, MemFsBuilder, MemImage, Piece, require, temp_dir};
use forerun_vfs::{Device, FileType, Timestamp};

use crate::common::{self, reader, reader_on, romfs};

fn base() -> MemFsBuilder {
    let mut builder = MemFsBuilder::new();
    builder.file("a/file", [Piece::Stored(vec![7; 3 << 20])]);
    let linked = builder.file("a/linked", [Piece::Inline(b"x".to_vec())]);
    builder.hard_link("z", linked);
    builder.symlink("link", b"a/file");
    builder.special("null", FileType::CharDevice, Device { major: 1, minor: 3 });
    builder.file("sparse", [Piece::Zero(1 << 40), Piece::Stored(vec![1; 10])]);
    builder
}

fn found(left: Side<'_>, right: Side<'_>, options: &DiffOptions) -> (DiffReport, Vec<Difference>) {
    let mut found = Vec::new();
    let report = diff(left, right, options, &NoProgress, &mut |one| {
        found.push(one)
    })
    .unwrap();
    assert_eq!(report.differences as usize, found.len());
    (report, found)
}

fn images(left: &MemImage, right: &MemImage, options: &DiffOptions) -> Vec<(String, Change)> {
    let (left, right) = (reader(left), reader(right));
    let (report, found) = found(Side::Image(&left), Side::Image(&right), options);
    assert!(report.failures.0.is_empty() && report.failures.1.is_empty());
    let text = |path| String::from_utf8(path).unwrap();
    found
        .into_iter()
        .map(|one| (text(one.path), one.change))
        .collect()
}

type Edit = fn(&mut MemFsBuilder);

/// Compares [`base`] with an edited copy in both directions. Checks that the difference is found,
/// and whether the options that ignore metadata and links hide it.
#[track_caller]
fn assert_told(edit: Edit, path: &str, change: &Change, is_ignorable: bool) {
    let (mut left, mut right) = (base(), base());
    if path == "m" {
        left.file("m", []);
    }
    edit(&mut right);
    let (left, right) = (left.build(), right.build());
    assert_eq!(images(&left, &left, &DiffOptions::default()), []);
    let found = images(&left, &right, &DiffOptions::default());
    assert!(
        found.contains(&(path.to_string(), change.clone())),
        "{change:?}: {found:?}"
    );
    let back = images(&right, &left, &DiffOptions::default());
    assert_eq!(back.len(), found.len(), "{back:?}");
    let all = DiffOptions {
        ignore_mtime: true,
        ignore_owner: true,
        ignore_mode: true,
        ignore_xattrs: true,
        ignore_links: true,
        exclude: Patterns::new(["m2"]).unwrap(),
        ..DiffOptions::default()
    };
    assert_eq!(
        images(&left, &right, &all).is_empty(),
        is_ignorable,
        "{change:?}"
    );
}

#[test]
fn differences_of_names_and_data_are_told() {
    let cases: &[(Edit, &str, Change)] = &[
        (
            |builder| {
                builder.file("new", []);
            },
            "new",
            Change::Added(FileType::Regular, 0o644),
        ),
        (
            |builder| {
                builder.file("m", [Piece::Inline(b"12".to_vec())]);
            },
            "m",
            Change::Size(0, 2),
        ),
        (
            |builder| {
                builder.symlink("m", b"x");
            },
            "m",
            Change::Kind(FileType::Regular, FileType::Symlink),
        ),
    ];
    for (edit, path, change) in cases {
        assert_told(*edit, path, change, false);
    }
}

#[test]
fn differences_of_metadata_and_links_are_told_unless_ignored() {
    let time = |seconds| Timestamp {
        seconds,
        nanoseconds: 0,
    };
    let link = |name: &str| Some(name.as_bytes().to_vec());
    let cases: &[(Edit, Change)] = &[
        (
            |builder| {
                let node = builder.file("m", []);
                builder.metadata(node, |metadata| metadata.mode = 0o4755);
            },
            Change::Mode(0o644, 0o4755),
        ),
        (
            |builder| {
                let node = builder.file("m", []);
                builder.metadata(node, |metadata| (metadata.uid, metadata.gid) = (1, 2));
            },
            Change::Owner((0, 0), (1, 2)),
        ),
        (
            |builder| {
                let node = builder.file("m", []);
                builder.metadata(node, |metadata| metadata.mtime.seconds = 5);
            },
            Change::Mtime(time(0), time(5)),
        ),
        (
            |builder| {
                let node = builder.file("m", []);
                builder.xattr(node, b"user.x", b"1");
            },
            Change::Xattr(b"user.x".to_vec(), None, Some(b"1".to_vec())),
        ),
        (
            |builder| {
                let node = builder.file("m", []);
                builder.hard_link("m2", node);
            },
            Change::Link(None, link("m")),
        ),
    ];
    for (edit, change) in cases {
        assert_told(*edit, "m", change, true);
    }
}

#[test]
fn contents_are_compared_to_the_last_byte() {
    let of = |at: usize, piece: fn(Vec<u8>) -> Piece| {
        let mut builder = MemFsBuilder::new();
        let mut bytes = vec![7; 3 << 20];
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1;
        }
        let same = builder.file("same", [Piece::Stored(vec![1; 5000])]);
        builder.hard_link("same2", same);
        builder.file("f", [piece(bytes)]);
        builder.build()
    };
    let encoded = |bytes| Piece::Encoded {
        bytes,
        block_len: 100_000,
    };
    let none = usize::MAX;
    for at in [0, 1 << 20, (3 << 20) - 1] {
        let found = images(
            &of(none, Piece::Stored),
            &of(at, encoded),
            &DiffOptions::default(),
        );
        assert_eq!(found, [("f".to_string(), Change::Content(at as u64))]);
    }
    assert_eq!(
        images(
            &of(none, Piece::Stored),
            &of(none, encoded),
            &DiffOptions::default()
        ),
        []
    );
    // Zeros and holes read the same.
    let zeros = |piece| {
        let mut builder = MemFsBuilder::new();
        builder.file("f", [piece, Piece::Inline(b"end".to_vec())]);
        builder.build()
    };
    let (hole, bytes) = (
        zeros(Piece::Zero(3 << 20)),
        zeros(Piece::Stored(vec![0; 3 << 20])),
    );
    assert_eq!(images(&hole, &bytes, &DiffOptions::default()), []);
}

#[test]
fn what_was_extracted_is_what_is_in_the_image() {
    if !require::root() {
        return;
    }
    let mut builder = base();
    let node = builder.file("attr", []);
    builder.xattr(node, b"user.x", b"1");
    builder.metadata(node, |metadata| (metadata.uid, metadata.mode) = (5, 0o4711));
    let image = builder.build();
    let reader = reader(&image);
    let dir = temp_dir("diff");
    let target = dir.path().join("out");
    let options = ExtractOptions {
        devices: true,
        special_bits: true,
        ..ExtractOptions::default()
    };
    let report = extract(
        &reader,
        &Selection::default(),
        &target,
        &options,
        &NoProgress,
    )
    .unwrap();
    assert!(report.is_complete(), "{report:?}");
    let both = |options: &DiffOptions| {
        let (image, host) = (Side::Image(&reader), Side::Directory(&target));
        let (report, there) = found(image, host, options);
        assert!(
            report.failures.0.is_empty() && report.failures.1.is_empty(),
            "{report:?}"
        );
        assert_eq!(found(host, image, options).1.len(), there.len());
        there
    };
    assert_eq!(both(&DiffOptions::default()), []);
    fs::write(target.join("new"), "").unwrap();
    fs::remove_file(target.join("link")).unwrap();
    symlink("elsewhere", target.join("link")).unwrap();
    fs::set_permissions(target.join("z"), fs::Permissions::from_mode(0o600)).unwrap();
    xattr::set(target.join("attr"), "user.x", b"2").unwrap();
    let options = DiffOptions {
        ignore_mtime: true,
        ..DiffOptions::default()
    };
    let names: Vec<_> = both(&options)
        .into_iter()
        .map(|one| {
            format!(
                "{} {}",
                String::from_utf8(one.path).unwrap(),
                one.change.name()
            )
        })
        .collect();
    assert_eq!(
        names,
        [
            "a/linked mode",
            "attr xattr",
            "link target",
            "new added",
            "z mode"
        ]
    );
    let options = DiffOptions {
        include: Patterns::new(["/a"]).unwrap(),
        ..options
    };
    assert_eq!(both(&options).len(), 1);
}

#[test]
fn an_image_that_keeps_no_owners_equals_the_directory_it_is_of() {
    common::each_shape("diff", |tree, image, _| {
        let reader = romfs(image);
        let options = DiffOptions::default();
        let (report, found) = found(Side::Directory(tree), Side::Image(&reader), &options);
        assert!(report.without_owners && report.compared > 0);
        assert_eq!(found, []);
    });
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_compared() {
    let mut builder = base();
    builder.file("other", [Piece::Stored(vec![3; 100])]);
    let damaged = builder.file("damaged", []);
    let good = builder.clone().build();
    builder.damage(damaged);
    let bad = builder.build();
    let fault = FaultSource::bad_range(bad.source.clone(), (1 << 20)..(1 << 20) + 1);
    let right = reader_on(bad.driver(), Arc::new(fault), Limits::default());
    let left = reader(&good);
    let (report, found) = found(
        Side::Image(&left),
        Side::Image(&right),
        &DiffOptions::default(),
    );
    assert!(report.failures.0.is_empty());
    let texts: Vec<_> = report.failures.1.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    assert!(
        texts.iter().any(|text| text.contains("/damaged: ")),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("/a/file: reading")),
        "{texts:?}"
    );
    // A damaged file counts as present only on the left.
    assert_eq!(found.len(), 1);
}

#[test]
fn each_block_of_both_is_decoded_once() {
    let of = || {
        let mut builder = MemFsBuilder::new();
        for n in 0..20 {
            let bytes = (0..300_000).map(|at| (at * n % 251) as u8).collect();
            let piece = Piece::Encoded {
                bytes,
                block_len: 100_000,
            };
            builder.file(&format!("d{}/{n}", n % 3), [piece]);
        }
        builder.build()
    };
    let (left, right) = (reader(&of()), reader(&of()));
    let options = DiffOptions {
        threads: 3,
        ..DiffOptions::default()
    };
    let (report, found) = found(Side::Image(&left), Side::Image(&right), &options);
    assert_eq!((report.bytes, found.len()), (6_000_000, 0));
    for reader in [left, right] {
        let stats = reader.observer().stats().snapshot();
        assert_eq!(stats.get(forerun_io::Counter::Decodes), 60);
        assert_eq!(stats.get(forerun_io::Counter::RepeatedDecodes), 0);
    }
}
