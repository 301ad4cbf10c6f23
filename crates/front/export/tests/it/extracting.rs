//! Extracted trees equal the image, and nothing is written outside the target.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use forerun_export::{
    ExtractOptions, ExtractReport, Filter, Loss, NoProgress, Owners, Patterns, Selection, extract,
};
use forerun_io::{Limits, MemorySource};
use forerun_testkit::{
    FaultSource, Keeps, MemFsBuilder, MemImage, Piece, TreeModel, memory_dir, require, temp_dir,
};
use forerun_vfs::{Device, FileType};

use crate::common::{each_shape, reader, reader_on, romfs};

pub fn all(
    reader: &forerun_engine::Reader,
    target: &Path,
    options: &ExtractOptions,
) -> ExtractReport {
    extract(reader, &Selection::default(), target, options, &NoProgress).unwrap()
}

pub fn failures(report: &ExtractReport) -> Vec<String> {
    report.failures.iter().map(ToString::to_string).collect()
}

#[test]
fn trees_made_by_genromfs_come_out_as_they_went_in() {
    each_shape("extract", |tree, image, out| {
        let options = ExtractOptions {
            devices: true,
            threads: 3,
            ..ExtractOptions::default()
        };
        let report = all(&romfs(image), out, &options);
        assert!(report.failures.is_empty(), "{:?}", failures(&report));
        let (expected, actual) = (
            TreeModel::of_host(tree).unwrap(),
            TreeModel::of_host(out).unwrap(),
        );
        expected.assert_same(&actual, &Keeps::ROMFS);
    });
}

#[test]
fn modes_times_holes_and_links_are_kept() {
    let mut builder = MemFsBuilder::new();
    let sparse = builder.file(
        "dir/sparse",
        [
            Piece::Zero(1 << 20),
            Piece::Stored(vec![7; 5000]),
            Piece::Zero(3 << 20),
        ],
    );
    builder.hard_link("dir/other", sparse);
    builder.metadata(sparse, |metadata| {
        metadata.mode = 0o4751;
        metadata.mtime.seconds = 1_000_000_000;
        metadata.mtime.nanoseconds = 5;
    });
    let locked = builder.dir("locked");
    builder.file("locked/inside", [Piece::Inline(b"x".to_vec())]);
    builder.metadata(locked, |metadata| metadata.mode = 0o500);
    let image = builder.build();
    let dir = temp_dir("extract");
    let report = all(&reader(&image), dir.path(), &ExtractOptions::default());
    assert!(report.failures.is_empty(), "{:?}", failures(&report));
    assert_eq!(
        (report.files, report.hard_links, report.directories),
        (2, 1, 3)
    );

    let file = fs::metadata(dir.path().join("dir/sparse")).unwrap();
    assert_eq!(file.len(), (4 << 20) + 5000);
    assert!(file.blocks() * 512 < 100_000, "the holes take no space");
    assert_eq!(file.mode() & 0o7777, 0o751, "setuid is dropped");
    assert_eq!((file.mtime(), file.mtime_nsec()), (1_000_000_000, 5));
    assert_eq!(
        file.ino(),
        fs::metadata(dir.path().join("dir/other")).unwrap().ino()
    );
    assert_eq!(
        fs::metadata(dir.path().join("locked")).unwrap().mode() & 0o7777,
        0o500
    );
    fs::set_permissions(dir.path().join("locked"), fs::Permissions::from_mode(0o700)).unwrap();

    let again = temp_dir("extract");
    let options = ExtractOptions {
        special_bits: true,
        ..ExtractOptions::default()
    };
    all(&reader(&image), again.path(), &options);
    assert_eq!(
        fs::metadata(again.path().join("dir/sparse"))
            .unwrap()
            .mode()
            & 0o7777,
        0o4751
    );
    fs::set_permissions(
        again.path().join("locked"),
        fs::Permissions::from_mode(0o700),
    )
    .unwrap();
}

fn image_to_select_from() -> MemImage {
    let mut builder = MemFsBuilder::new();
    for path in ["a/b/one.txt", "a/b/two.o", "a/c/three.txt", "d/four.txt"] {
        builder.file(path, [Piece::Inline(path.as_bytes().to_vec())]);
    }
    builder.build()
}

fn extracted(image: &MemImage, selection: &Selection) -> Vec<String> {
    let dir = temp_dir("extract");
    let options = ExtractOptions::default();
    let report = extract(&reader(image), selection, dir.path(), &options, &NoProgress).unwrap();
    assert!(report.failures.is_empty(), "{:?}", failures(&report));
    let model = TreeModel::of_host(dir.path()).unwrap();
    let files = model
        .nodes
        .into_iter()
        .filter(|(_, node)| node.kind == FileType::Regular);
    files
        .map(|(path, _)| String::from_utf8(path).unwrap())
        .collect()
}

#[test]
fn a_selection_is_what_is_extracted() {
    let image = image_to_select_from();
    let select = |paths: &[&str]| {
        let paths = paths.iter().map(|path| path.as_bytes().to_vec());
        paths.collect::<Vec<_>>()
    };
    let patterns = |pattern| Patterns::new([pattern]).unwrap();
    let base = Selection::default();
    let below = Selection {
        paths: select(&["/a/b"]),
        ..base.clone()
    };
    let across = Selection {
        paths: select(&["d/../d/four.txt"]),
        ..base.clone()
    };
    let included = Selection {
        include: patterns("*.o"),
        ..base.clone()
    };
    let excluded = Selection {
        exclude: patterns("a/b"),
        ..base.clone()
    };
    let filtered = Selection {
        filter: Filter::new(|path, is_dir| is_dir && path != b"a/c" || path.ends_with(b".txt")),
        ..base.clone()
    };
    let stripped = Selection {
        paths: select(&["a"]),
        strip_components: 2,
        ..base
    };
    for (selection, expected) in [
        (below, &["a/b/one.txt", "a/b/two.o"][..]),
        (across, &["d/four.txt"]),
        (included, &["a/b/two.o"]),
        (excluded, &["a/c/three.txt", "d/four.txt"]),
        (filtered, &["a/b/one.txt", "d/four.txt"]),
        (stripped, &["one.txt", "three.txt", "two.o"]),
    ] {
        assert_eq!(extracted(&image, &selection), expected, "{selection:?}");
    }
}

#[test]
fn a_selected_path_that_does_not_exist_is_an_error() {
    let missing = Selection {
        paths: vec![b"nowhere".to_vec()],
        ..Selection::default()
    };
    let dir = temp_dir("extract");
    let image = reader(&image_to_select_from());
    let options = ExtractOptions::default();
    let result = extract(&image, &missing, dir.path(), &options, &NoProgress);
    let error = result.unwrap_err().to_string();
    assert!(error.contains("/nowhere: no such file"), "{error}");
}

#[test]
fn hard_links_bind_only_to_what_this_run_made() {
    let mut builder = MemFsBuilder::new();
    let file = builder.file("a", [Piece::Inline(b"of the image".to_vec())]);
    builder.hard_link("b", file);
    let fifo = builder.special("f", FileType::Fifo, Device::default());
    builder.hard_link("g", fifo);
    let link = builder.symlink("s", b"somewhere");
    builder.hard_link("t", link);
    let image = builder.build();
    let dir = temp_dir("links");
    fs::write(dir.path().join("a"), "local").unwrap();
    fs::write(dir.path().join("f"), "local").unwrap();
    symlink("/etc/shadow", dir.path().join("s")).unwrap();
    let report = all(&reader(&image), dir.path(), &ExtractOptions::default());
    assert_eq!(report.hard_links, 0);
    let failed = failures(&report);
    assert_eq!(failed.len(), 6, "{failed:?}");
    for (name, first) in [("b", "a"), ("g", "f"), ("t", "s")] {
        assert!(!fs::exists(dir.path().join(name)).unwrap());
        assert!(fs::symlink_metadata(dir.path().join(name)).is_err());
        let told = format!("its other name {first} was not made");
        assert!(failed.iter().any(|text| text.contains(&told)), "{failed:?}");
    }

    let options = ExtractOptions {
        force: true,
        ..ExtractOptions::default()
    };
    let report = all(&reader(&image), dir.path(), &options);
    assert_eq!((failures(&report), report.hard_links), (vec![], 3));
    for (name, first) in [("b", "a"), ("g", "f"), ("t", "s")] {
        let inode = |name| fs::symlink_metadata(dir.path().join(name)).unwrap().ino();
        assert_eq!(inode(name), inode(first));
    }
    assert_eq!(fs::read(dir.path().join("b")).unwrap(), b"of the image");
}

#[test]
fn what_is_there_is_kept_unless_forced() {
    let mut builder = MemFsBuilder::new();
    builder.file("file", [Piece::Inline(b"new".to_vec())]);
    builder.symlink("link", b"new");
    let image = builder.build();
    let dir = temp_dir("extract");
    for name in ["file", "link"] {
        fs::write(dir.path().join(name), "old").unwrap();
    }
    let report = all(&reader(&image), dir.path(), &ExtractOptions::default());
    assert_eq!(report.failures.len(), 2);
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"old");
    let report = all(
        &reader(&image),
        dir.path(),
        &ExtractOptions {
            force: true,
            ..ExtractOptions::default()
        },
    );
    assert!(report.failures.is_empty(), "{:?}", failures(&report));
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"new");
    assert_eq!(
        fs::read_link(dir.path().join("link")).unwrap(),
        Path::new("new")
    );
}

/// Creates a target in which `trap` is a link to an outside directory, and that directory.
fn trapped() -> (
    forerun_testkit::TempDir,
    std::path::PathBuf,
    std::path::PathBuf,
) {
    let dir = temp_dir("extract");
    let (target, outside) = (dir.path().join("target"), dir.path().join("outside"));
    fs::create_dir(&target).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), "untouched").unwrap();
    (dir, target, outside)
}

fn assert_untouched(outside: &Path) {
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"untouched");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

#[test]
fn links_that_lie_in_the_target_are_not_followed() {
    for force in [false, true] {
        let mut builder = MemFsBuilder::new();
        builder.file("trap/victim", [Piece::Inline(b"overwritten".to_vec())]);
        builder.file("trapped_file", [Piece::Inline(b"overwritten".to_vec())]);
        let image = builder.build();
        let (_dir, target, outside) = trapped();
        symlink(&outside, target.join("trap")).unwrap();
        symlink(outside.join("victim"), target.join("trapped_file")).unwrap();
        let report = all(
            &reader(&image),
            &target,
            &ExtractOptions {
                force,
                ..ExtractOptions::default()
            },
        );
        assert_untouched(&outside);
        assert_eq!(report.failures.is_empty(), force, "{:?}", failures(&report));
        if force {
            assert!(
                fs::symlink_metadata(target.join("trap")).unwrap().is_dir(),
                "the link was replaced"
            );
        }
    }
}

#[test]
fn links_from_the_image_are_not_followed_either() {
    // A link and a directory with the same name: drivers refuse this, but extraction must not rely
    // on it.
    for force in [false, true] {
        let (_dir, target, outside) = trapped();
        let mut builder = MemFsBuilder::new();
        builder.symlink("trap", outside.to_str().unwrap().as_bytes());
        builder.symlink("up", b"../outside");
        let below = builder.file("x/victim", [Piece::Inline(b"overwritten".to_vec())]);
        let dir = builder.dir("x");
        builder.raw_entry(MemFsBuilder::ROOT, b"trap", dir);
        builder.raw_entry(MemFsBuilder::ROOT, b"up", dir);
        builder.raw_entry(dir, b"..", below);
        builder.raw_entry(dir, b"../../outside/new", below);
        builder.raw_entry(dir, b"/etc/forerun-was-here", below);
        let image = builder.build();
        all(
            &reader(&image),
            &target,
            &ExtractOptions {
                force,
                ..ExtractOptions::default()
            },
        );
        assert_untouched(&outside);
        assert!(!Path::new("/etc/forerun-was-here").exists());
        assert!(!target.join("../new").exists());
    }
}

#[test]
fn targets_of_links_are_kept_word_by_word() {
    let mut builder = MemFsBuilder::new();
    for (name, target) in [
        ("abs", "/etc/passwd"),
        ("up", "../../x"),
        ("odd", "a//b/./c/"),
        ("bytes", "\u{fffd}\n"),
    ] {
        builder.symlink(name, target.as_bytes());
    }
    let image = builder.build();
    let dir = temp_dir("extract");
    all(&reader(&image), dir.path(), &ExtractOptions::default());
    for (name, target) in [
        ("abs", "/etc/passwd"),
        ("up", "../../x"),
        ("odd", "a//b/./c/"),
        ("bytes", "\u{fffd}\n"),
    ] {
        assert_eq!(
            fs::read_link(dir.path().join(name))
                .unwrap()
                .to_str()
                .unwrap(),
            target
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_not_left_half_written() {
    let mut builder = MemFsBuilder::new();
    builder.file("bad", [Piece::Stored(vec![1; 3 << 20])]);
    builder.file("good", [Piece::Stored(vec![2; 1 << 20])]);
    let image = builder.build();
    let fault = FaultSource::bad_range(image.source.clone(), (1 << 20)..(1 << 20) + 1);
    let reader = reader_on(image.driver(), Arc::new(fault), Limits::default());
    let dir = temp_dir("extract");
    let report = all(&reader, dir.path(), &ExtractOptions::default());
    assert_eq!(report.files, 1);
    assert!(
        failures(&report)[0].contains("/bad: reading"),
        "{:?}",
        failures(&report)
    );
    assert!(!dir.path().join("bad").exists());
    assert_eq!(fs::read(dir.path().join("good")).unwrap(), vec![2; 1 << 20]);
}

#[test]
fn more_bytes_than_the_limit_are_refused_before_anything_is_written() {
    let mut builder = MemFsBuilder::new();
    builder.file("bomb", [Piece::Zero(1 << 50)]);
    let image = builder.build();
    let mut limits = Limits::default();
    limits.total_bytes = 1 << 30;
    let reader = reader_on(
        image.driver(),
        Arc::new(MemorySource::new(vec![0; 10])),
        limits,
    );
    let dir = temp_dir("extract");
    let error = extract(
        &reader,
        &Selection::default(),
        dir.path(),
        &ExtractOptions::default(),
        &NoProgress,
    );
    assert!(
        error
            .unwrap_err()
            .to_string()
            .contains("exceeds the limit of 1073741824")
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_error_of_a_walk_names_its_directory() {
    let mut builder = MemFsBuilder::new();
    let outer = builder.dir("first/outer");
    let inner = builder.dir("first/outer/inner");
    builder.raw_entry(inner, b"loop", outer);
    builder.dir("last");
    let image = builder.build();
    let reader = reader(&image);
    let dir = temp_dir("extract");
    let report = all(&reader, dir.path(), &ExtractOptions::default());
    let told = failures(&report);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("/first/outer/inner/loop: "), "{told:?}");

    let mut at = Vec::new();
    forerun_export::dump(&reader, MemFsBuilder::ROOT, b"", &mut |record| {
        if record.fields.is_err() {
            at.extend(record.path);
        }
    });
    assert_eq!(at, [b"first/outer/inner/loop"]);
}

#[test]
fn devices_are_made_only_when_asked_for() {
    let mut builder = MemFsBuilder::new();
    let null = Device { major: 1, minor: 3 };
    let node = builder.special("dev/null", FileType::CharDevice, null);
    builder.hard_link("dev/other", node);
    builder.special("pipe", FileType::Fifo, Device::default());
    let image = builder.build();
    let dir = temp_dir("extract");
    let options = ExtractOptions {
        owners: Owners::Caller,
        ..ExtractOptions::default()
    };
    let report = all(&reader(&image), dir.path(), &options);
    assert!(report.failures.is_empty(), "{:?}", failures(&report));
    assert_eq!(
        losses(&report),
        [(Loss::Device, 2, vec!["dev/null", "dev/other"], false)]
    );
    assert!(!report.is_complete());
    assert_eq!((report.specials, report.hard_links), (1, 0));
}

type Lost<'r> = (Loss, u64, Vec<&'r str>, bool);

/// Returns each loss: the number of entries, the first path, and whether the system returned an
/// error.
fn losses(report: &ExtractReport) -> Vec<Lost<'_>> {
    let lost = report.shortfalls.iter();
    lost.map(|lost| {
        let examples = lost.examples.iter();
        let examples = examples.map(|path| std::str::from_utf8(path).unwrap());
        let refused = lost.error.is_some();
        (lost.loss, lost.count, examples.collect(), refused)
    })
    .collect()
}

#[test]
fn a_name_that_cannot_be_a_hard_link_is_a_copy() {
    if !require::root() {
        return;
    }
    let mut builder = MemFsBuilder::new();
    let file = builder.file("dir/first", [Piece::Stored(vec![7; 5000])]);
    builder.hard_link("dir/second", file);
    builder.hard_link("third", file);
    let pipe = builder.special("dir/pipe", FileType::Fifo, Device::default());
    builder.hard_link("other-pipe", pipe);
    let image = builder.build();
    // Links across filesystems fail with EXDEV.
    let inner = memory_dir("extract-links", 1 << 20);
    let dir = temp_dir("extract");
    fs::create_dir(dir.path().join("dir")).unwrap();
    let mounted = dir.path().join("dir");
    let run = |program: &str, args: &[&Path]| {
        let done = Command::new(program).args(args).output().unwrap();
        assert!(done.status.success(), "{program}: {done:?}");
    };
    run("mount", &[Path::new("--bind"), inner.path(), &mounted]);
    let report = all(&reader(&image), dir.path(), &ExtractOptions::default());
    let contents = ["dir/first", "dir/second", "third"].map(|name| fs::read(dir.path().join(name)));
    run("umount", &[&mounted]);
    for contents in contents {
        assert_eq!(contents.unwrap(), [7; 5000]);
    }
    assert!(report.failures.is_empty(), "{:?}", failures(&report));
    assert_eq!((report.files, report.hard_links), (2, 1));
    assert_eq!((report.specials, report.missing), (2, 0));
    assert!(report.is_complete());
    let copies: Vec<_> = losses(&report)
        .into_iter()
        .filter(|lost| lost.0 == Loss::HardLink)
        .collect();
    let names = vec!["other-pipe", "third"];
    assert_eq!(copies, [(Loss::HardLink, 2, names, false)]);
}
