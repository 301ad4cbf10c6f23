//! Owners, modes and extended attributes: what is set, what is omitted, and how failures are
//! reported.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forerun_export::{
    ExtractOptions, ExtractReport, IdMap, Loss, NoProgress, Owners, Selection, extract,
};
use forerun_testkit::{MemFsBuilder, MemImage, Piece, require, temp_dir};
use forerun_vfs::FileType;

use crate::common::reader;

fn all(image: &MemImage, target: &Path, options: &ExtractOptions) -> ExtractReport {
    let selection = Selection::default();
    extract(&reader(image), &selection, target, options, &NoProgress).unwrap()
}

fn owned() -> MemFsBuilder {
    let mut builder = MemFsBuilder::new();
    let file = builder.file("dir/file", [Piece::Inline(b"x".to_vec())]);
    let mine = builder.file("dir/root", [Piece::Inline(b"x".to_vec())]);
    let link = builder.symlink("dir/link", b"file");
    let dir = builder.dir("dir");
    for node in [file, link, dir] {
        builder.metadata(node, |metadata| (metadata.uid, metadata.gid) = (7, 8));
    }
    for node in [file, mine] {
        builder.metadata(node, |metadata| metadata.mode = 0o6777);
    }
    builder.metadata(dir, |metadata| metadata.mode = 0o2577);
    builder
}

fn id(path: &Path) -> (u32, u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
}

fn map(range: &str) -> IdMap {
    let mut map = IdMap::default();
    map.add(range).unwrap();
    map
}

#[test]
fn root_keeps_owners_and_maps_them() {
    if !require::root() {
        return;
    }
    let image = owned().build();
    let base = ExtractOptions {
        special_bits: true,
        ..ExtractOptions::default()
    };
    for (options, file, root) in [
        (base.clone(), (7, 8), (0, 0)),
        (
            ExtractOptions {
                uids: map("0:1000:10"),
                gids: map("8:0"),
                ..base.clone()
            },
            (1007, 0),
            (1000, 0),
        ),
        (
            ExtractOptions {
                owners: Owners::Caller,
                ..base
            },
            (0, 0),
            (0, 0),
        ),
    ] {
        let dir = temp_dir("owners");
        let report = all(&image, dir.path(), &options);
        assert!(
            report.is_complete() && report.shortfalls.is_empty(),
            "{report:?}"
        );
        let at = |name: &str| id(&dir.path().join(name));
        assert_eq!(at("dir/file"), (file.0, file.1, 0o6777));
        assert_eq!(at("dir/root"), (root.0, root.1, 0o6777));
        assert_eq!(at("dir/link"), (file.0, file.1, 0o777));
        assert_eq!(at("dir"), (file.0, file.1, 0o2577));
    }
}

#[test]
fn an_owner_that_the_system_cannot_have_is_lost_with_its_bits() {
    if !require::root() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    let node = builder.file("file", [Piece::Inline(b"x".to_vec())]);
    builder.metadata(node, |metadata| {
        (metadata.uid, metadata.gid, metadata.mode) = (u32::MAX, 8, 0o6777);
    });
    let link = builder.symlink("link", b"file");
    builder.metadata(link, |metadata| metadata.gid = u32::MAX);
    let image = builder.build();
    let dir = temp_dir("owners");
    let options = ExtractOptions {
        special_bits: true,
        ..ExtractOptions::default()
    };
    let report = all(&image, dir.path(), &options);
    let told: Vec<_> = report.shortfalls.iter().collect();
    let [lost] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!((lost.loss, lost.count), (Loss::Owner, 2));
    assert_eq!(id(&dir.path().join("file")), (0, 0, 0o777));
}

#[test]
fn bits_are_dropped_and_told_and_the_umask_applies_when_asked() {
    let image = owned().build();
    let dir = temp_dir("bits");
    let options = ExtractOptions {
        owners: Owners::Caller,
        ..ExtractOptions::default()
    };
    let report = all(&image, dir.path(), &options);
    assert_eq!(report.shortfalls.len(), 1);
    let lost = &report.shortfalls[0];
    assert_eq!((lost.loss, lost.count), (Loss::SpecialBits, 3));
    assert!(lost.error.is_none() && report.is_complete());
    assert_eq!(id(&dir.path().join("dir/file")).2, 0o777);

    let umask = fs::read_to_string("/proc/self/status").unwrap();
    let umask = umask.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = u32::from_str_radix(umask.unwrap().trim(), 8).unwrap();
    let dir = temp_dir("bits");
    let options = ExtractOptions {
        umask: true,
        ..options
    };
    all(&image, dir.path(), &options);
    assert_eq!(id(&dir.path().join("dir/file")).2, 0o777 & !umask);
    assert_eq!(id(&dir.path().join("dir")).2, 0o577 & !umask);
}

#[test]
fn attributes_survive_the_change_of_owner() {
    if !require::root() {
        return;
    }
    let mut builder = owned();
    // cap_net_raw+ep in the kernel's format: revision 2, permitted bit 13.
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let file = builder.file("ping", [Piece::Inline(b"x".to_vec())]);
    builder.metadata(file, |metadata| metadata.uid = 7);
    builder.xattr(file, b"security.capability", &capability);
    builder.xattr(file, b"user.note", b"a\0b");
    let link = builder.symlink("link", b"/nowhere");
    builder.xattr(link, b"trusted.note", b"on the link");
    let fifo = builder.special("fifo", FileType::Fifo, forerun_vfs::Device::default());
    builder.xattr(fifo, b"trusted.note", b"on the fifo");
    let dir_node = builder.dir("dir");
    builder.xattr(dir_node, b"user.note", b"on the directory");
    let image = builder.build();
    let dir = temp_dir("xattrs");
    let options = ExtractOptions {
        privileged_xattrs: true,
        ..ExtractOptions::default()
    };
    let report = all(&image, dir.path(), &options);
    assert!(report.is_complete(), "{report:?}");
    let get = |name: &str, key: &str| xattr::get(dir.path().join(name), key).unwrap();
    assert_eq!(get("ping", "security.capability").unwrap(), capability);
    assert_eq!(get("ping", "user.note").unwrap(), b"a\0b");
    assert_eq!(get("link", "trusted.note").unwrap(), b"on the link");
    assert_eq!(get("fifo", "trusted.note").unwrap(), b"on the fifo");
    assert_eq!(get("dir", "user.note").unwrap(), b"on the directory");
    assert_eq!(id(&dir.path().join("ping")).0, 7);

    let dir = temp_dir("xattrs");
    let options = ExtractOptions {
        no_xattrs: true,
        ..ExtractOptions::default()
    };
    all(&image, dir.path(), &options);
    let get = |name: &str, key: &str| xattr::get(dir.path().join(name), key).unwrap();
    assert_eq!(get("ping", "user.note"), None);
}

#[test]
fn attributes_that_give_rights_are_left_out_and_told() {
    let mut builder = MemFsBuilder::new();
    let capability = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let file = builder.file("ping", [Piece::Inline(b"x".to_vec())]);
    builder.xattr(file, b"security.capability", &capability);
    builder.xattr(file, b"user.note", b"kept");
    let fifo = builder.special("fifo", FileType::Fifo, forerun_vfs::Device::default());
    builder.xattr(fifo, b"trusted.note", b"on the fifo");
    let node = builder.dir("dir");
    builder.xattr(node, b"trusted.overlay.opaque", b"y");
    let image = builder.build();
    let dir = temp_dir("xattrs");
    let options = ExtractOptions {
        owners: Owners::Caller,
        ..ExtractOptions::default()
    };
    let report = all(&image, dir.path(), &options);
    let get = |name: &str, key: &str| xattr::get(dir.path().join(name), key).unwrap();
    assert_eq!(get("ping", "user.note").unwrap(), b"kept");
    assert_eq!(get("ping", "security.capability"), None);
    assert_eq!(get("fifo", "trusted.note"), None);
    assert_eq!(get("dir", "trusted.overlay.opaque"), None);
    let told: Vec<_> = report
        .shortfalls
        .iter()
        .map(|lost| (lost.loss, lost.count, lost.error.is_some()))
        .collect();
    assert_eq!(told, [(Loss::PrivilegedXattr, 3, false)]);
    assert!(report.is_complete(), "the options did not ask for them");
}

#[test]
fn attributes_that_cannot_be_set_are_counted() {
    let mut builder = MemFsBuilder::new();
    for n in 0..9 {
        let file = builder.file(&format!("f{n}"), [Piece::Inline(b"x".to_vec())]);
        builder.xattr(file, b"nonsense.note", b"x");
    }
    let image = builder.build();
    let dir = temp_dir("xattrs");
    let options = ExtractOptions {
        threads: 3,
        ..ExtractOptions::default()
    };
    let report = all(&image, dir.path(), &options);
    assert_eq!(report.files, 9);
    let lost: Vec<_> = report
        .shortfalls
        .iter()
        .filter(|lost| lost.loss == Loss::Xattr)
        .collect();
    assert_eq!(
        (lost.len(), lost[0].count, lost[0].examples.len()),
        (1, 9, 5)
    );
    assert!(lost[0].error.is_some() && !report.is_complete());
}

#[test]
fn the_target_gets_the_attributes_of_the_root_only_where_it_was_made() {
    let mut builder = MemFsBuilder::new();
    builder.metadata(MemFsBuilder::ROOT, |metadata| {
        metadata.mode = 0o750;
        metadata.mtime.seconds = 1_000_000_000;
    });
    builder.file("f", [Piece::Inline(b"x".to_vec())]);
    let image = builder.build();
    let dir = temp_dir("root");
    let before = id(dir.path());
    all(&image, dir.path(), &ExtractOptions::default());
    assert_eq!(id(dir.path()), before);
    let made = dir.path().join("made/here");
    all(&image, &made, &ExtractOptions::default());
    assert_eq!(id(&made).2, 0o750);
    assert_eq!(fs::metadata(&made).unwrap().mtime(), 1_000_000_000);
}

#[test]
fn directories_on_the_way_are_like_those_of_the_image() {
    let mut builder = MemFsBuilder::new();
    builder.file("a/b/wanted", [Piece::Inline(b"x".to_vec())]);
    builder.file("a/c/other", [Piece::Inline(b"x".to_vec())]);
    let node = builder.dir("a/b");
    builder.metadata(node, |metadata| metadata.mode = 0o711);
    let image = builder.build();
    for selection in [
        Selection {
            include: forerun_export::Patterns::new(["wanted"]).unwrap(),
            ..Selection::default()
        },
        Selection {
            paths: vec![b"/a/b/wanted".to_vec()],
            ..Selection::default()
        },
    ] {
        let dir = temp_dir("implied");
        let options = ExtractOptions::default();
        let report = extract(
            &reader(&image),
            &selection,
            dir.path(),
            &options,
            &NoProgress,
        );
        assert!(report.unwrap().is_complete());
        assert_eq!(id(&dir.path().join("a/b")).2, 0o711);
        assert!(dir.path().join("a/b/wanted").exists());
        assert!(!dir.path().join("a/c").exists());
    }
}

#[test]
fn names_that_differ_only_in_case_are_found() {
    let mut builder = MemFsBuilder::new();
    for path in [
        "a/Makefile",
        "a/makefile",
        "b/makefile",
        "A/x",
        "\u{c9}t\u{e9}",
        "\u{e9}t\u{e9}",
    ] {
        builder.file(path, [Piece::Inline(path.as_bytes().to_vec())]);
    }
    let image = builder.build();
    let dir = temp_dir("case");
    let report = all(&image, dir.path(), &ExtractOptions::default());
    assert!(report.collisions.is_empty() && report.is_complete());
    let dir = temp_dir("case");
    let options = ExtractOptions {
        case_collisions: true,
        ..ExtractOptions::default()
    };
    let report = all(&image, dir.path(), &options);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut found: Vec<_> = report
        .collisions
        .iter()
        .map(|(path, other)| format!("{} {}", text(path), text(other)))
        .collect();
    found.sort();
    assert_eq!(
        found,
        [
            "A a",
            "a/makefile a/Makefile",
            "\u{e9}t\u{e9} \u{c9}t\u{e9}"
        ]
    );
    assert_eq!(report.files, 6, "this filesystem tells them apart");
    assert!(!report.is_complete());
}
