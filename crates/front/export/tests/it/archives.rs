//! Archives: GNU tar and forerun's own reader agree with the input.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use forerun::build::{BuildError, ImageOptions, RomfsOptions, from_image};
use forerun::{Image, MemorySource, OpenOptions, Writer};
use forerun_build::{NodeKind, ScanOptions, Tree, scan};
use forerun_export::{NoProgress, Selection, TarWriteOptions, write_tar};
use forerun_io::{Limits, Observer};
use forerun_testkit::{
    FaultSource, Keeps, MemFsBuilder, Piece, Shape, TreeModel, require, temp_dir,
};
use forerun_vfs::Timestamp;
use proptest::prelude::*;

use crate::common::{each_shape, reader, reader_on, romfs};

fn tar_of(reader: &forerun_engine::Reader) -> Vec<u8> {
    let mut out = Vec::new();
    let options = TarWriteOptions::default();
    let report = write_tar(
        reader,
        &Selection::default(),
        &mut out,
        &options,
        &NoProgress,
    )
    .unwrap();
    assert!(
        report
            .failures
            .iter()
            .all(|failure| failure.to_string().contains("cannot store sockets")),
        "{:?}",
        report.failures
    );
    out
}

fn gnu_extract(archive: &[u8], dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    let mut tar = Command::new("tar")
        .arg("-xpf-")
        .arg("-C")
        .arg(dir)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(archive).unwrap();
    assert!(tar.wait().unwrap().success());
}

#[test]
fn gnu_tar_extracts_what_we_archive() {
    each_shape("tar", |tree, image, out| {
        gnu_extract(&tar_of(&romfs(image)), out);
        let mut expected = TreeModel::of_host(tree).unwrap();
        expected
            .nodes
            .retain(|_, node| node.kind != forerun_vfs::FileType::Socket);
        expected.assert_same(&TreeModel::of_host(out).unwrap(), &Keeps::ROMFS);
    });
}

#[test]
fn times_ids_and_attributes_that_need_extensions_survive() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file("old", [Piece::Inline(b"x".to_vec())]);
    builder.metadata(node, |metadata| {
        (metadata.uid, metadata.gid) = (3_000_000_000, 3_000_000_001);
        metadata.mtime = Timestamp {
            seconds: -2,
            nanoseconds: 750_000_000,
        };
    });
    builder.xattr(node, b"user.note", b"a\0b");
    let target = "t/".repeat(150);
    builder.symlink("link", target.as_bytes());
    let archive = tar_of(&reader(&builder.build()));
    let tree = tree_of(archive).unwrap();
    let old = tree.node(tree.child(Tree::ROOT, b"old").unwrap());
    assert_eq!((old.uid, old.gid), (3_000_000_000, 3_000_000_001));
    assert_eq!(
        old.mtime,
        Timestamp {
            seconds: -2,
            nanoseconds: 750_000_000
        }
    );
    assert_eq!(old.xattrs[&b"user.note"[..]], b"a\0b");
    let link = tree.node(tree.child(Tree::ROOT, b"link").unwrap());
    assert!(matches!(&link.kind, NodeKind::Symlink(found) if *found == target.as_bytes()));
}

/// Reads the tree of an archive, as `pack` and `convert` do.
fn tree_of(archive: Vec<u8>) -> Result<Tree, BuildError> {
    tree_with(archive, &OpenOptions::new())
}

fn tree_with(archive: Vec<u8>, options: &OpenOptions) -> Result<Tree, BuildError> {
    let source = Arc::new(MemorySource::new(archive));
    let image = Image::from_source(source, &options.clone().format("tar")).unwrap();
    let options = ImageOptions {
        xattrs: true,
        ..ImageOptions::default()
    };
    from_image(image.reader(), &options)
}

/// Converts a tree to romfs to compare its contents.
fn as_model(tree: &Tree) -> TreeModel {
    let mut image = Vec::new();
    let writer = Writer::Romfs(RomfsOptions::default());
    writer
        .write(tree, &mut image, &Arc::new(Observer::default()))
        .unwrap();
    let source = MemorySource::new(image);
    let image = Image::from_source(Arc::new(source.clone()), &OpenOptions::default()).unwrap();
    TreeModel::of_image(image.reader().fs(), &source).unwrap()
}

#[test]
fn we_read_what_gnu_tar_archives_in_every_format() {
    let dir = temp_dir("tar");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    Shape::Mixed.populate(&tree);
    fs::write(tree.join("n".repeat(120)), "a long name").unwrap();
    let sparse = fs::File::create(tree.join("sparse")).unwrap();
    sparse.set_len(9 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[7; 5000], 3 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, &[8; 5000], 6 << 20).unwrap();
    let expected = TreeModel::of_host(&tree).unwrap();
    for options in [
        &["--format=gnu"][..],
        &["--format=posix"],
        &["--format=gnu", "--sparse"],
        &["--format=posix", "--sparse", "--sparse-version=1.0"],
        &["--format=posix", "--sparse", "--sparse-version=0.1"],
        &["--format=posix", "--sparse", "--sparse-version=0.0"],
    ] {
        let archive = dir.path().join("archive");
        let status = Command::new("tar")
            .args(options)
            .arg("-cf")
            .arg(&archive)
            .arg("-C")
            .arg(&tree)
            .arg(".")
            .status();
        assert!(status.unwrap().success());
        let read = tree_of(fs::read(&archive).unwrap()).unwrap();
        expected.assert_same(&as_model(&read), &Keeps::ROMFS);
    }
}

#[test]
fn a_scanned_directory_is_the_same_tree() {
    for &shape in Shape::ALL {
        if matches!(shape, Shape::BigFile | Shape::LongNames)
            || (shape.needs_root() && !require::root())
        {
            continue;
        }
        let dir = temp_dir("scan");
        shape.populate(dir.path());
        let tree = scan(dir.path(), &ScanOptions::default()).unwrap();
        TreeModel::of_host(dir.path())
            .unwrap()
            .assert_same(&as_model(&tree), &Keeps::ROMFS);
    }
}

#[test]
fn sizes_whose_sum_has_more_than_64_bits_are_refused() {
    let size = (1_u64 << 62).to_string();
    let mut archive = tar::Builder::new(Vec::new());
    for name in ["a", "b", "c", "d", "e"] {
        let keys = [
            ("GNU.sparse.size", size.as_bytes()),
            ("GNU.sparse.map", b"0,0"),
        ];
        archive.append_pax_extensions(keys).unwrap();
        let mut header = tar::Header::new_ustar();
        header.set_size(0);
        archive.append_data(&mut header, name, &[][..]).unwrap();
    }
    let mut limits = Limits::default();
    limits.total_bytes = u64::MAX - 1;
    let options = OpenOptions::new().limits(limits);
    let error = tree_with(archive.into_inner().unwrap(), &options).unwrap_err();
    assert!(error.to_string().contains("bytes of all files"), "{error}");
}

#[test]
fn holes_are_left_out_and_found_again() {
    let mut builder = MemFsBuilder::new();
    let data = || Piece::Stored(vec![7; 5000]);
    let long = format!("{}/{}", "d".repeat(90), "n".repeat(90));
    for (name, pieces) in [
        ("middle", vec![data(), Piece::Zero(2 << 20), data()]),
        (
            "ends",
            vec![Piece::Zero(1 << 20), data(), Piece::Zero(1 << 20)],
        ),
        ("nothing", vec![Piece::Zero(3 << 20)]),
        ("small", vec![Piece::Zero(1000), data()]),
        (&long, vec![Piece::Zero(1 << 20), data()]),
    ] {
        builder.file(name, pieces);
    }
    let image = builder.build();
    let archive = tar_of(&reader(&image));
    assert!(archive.len() < 60_000, "{} bytes", archive.len());
    let expected = TreeModel::of_image(&*image.fs, &image.source).unwrap();
    let tree = tree_of(archive.clone()).unwrap();
    expected.assert_same(&as_model(&tree), &Keeps::CONTENTS);
    let dir = temp_dir("sparse");
    gnu_extract(&archive, dir.path());
    expected.assert_same(&TreeModel::of_host(dir.path()).unwrap(), &Keeps::CONTENTS);
    let blocks =
        std::os::unix::fs::MetadataExt::blocks(&fs::metadata(dir.path().join("middle")).unwrap());
    assert!(blocks * 512 < 100_000, "GNU tar keeps the holes");

    let mut whole = Vec::new();
    let options = TarWriteOptions {
        no_sparse: true,
        ..TarWriteOptions::default()
    };
    write_tar(
        &reader(&image),
        &Selection::default(),
        &mut whole,
        &options,
        &NoProgress,
    )
    .unwrap();
    assert!(whole.len() > 8 << 20);
    let tree = tree_of(whole).unwrap();
    expected.assert_same(&as_model(&tree), &Keeps::CONTENTS);
}

#[test]
fn owners_are_mapped_and_components_stripped() {
    let mut builder = MemFsBuilder::new();
    let node = builder.file("a/b/f", [Piece::Inline(b"x".to_vec())]);
    builder.metadata(node, |metadata| (metadata.uid, metadata.gid) = (5, 6));
    builder.hard_link("a/c", node);
    builder.file("top", []);
    let mut options = TarWriteOptions::default();
    options.uids.add("0:1000:10").unwrap();
    options.gids.add("6:4000000").unwrap();
    let selection = Selection {
        strip_components: 1,
        ..Selection::default()
    };
    let mut out = Vec::new();
    let image = builder.build();
    write_tar(&reader(&image), &selection, &mut out, &options, &NoProgress).unwrap();
    let tree = tree_of(out).unwrap();
    assert_eq!(tree.child(Tree::ROOT, b"top"), None);
    let dir = tree.child(Tree::ROOT, b"b").unwrap();
    let file = tree.child(dir, b"f").unwrap();
    assert_eq!(tree.child(Tree::ROOT, b"c"), Some(file));
    let file = tree.node(file);
    assert_eq!((file.uid, file.gid), (1005, 4_000_000));
}

#[test]
fn names_that_lead_elsewhere_get_into_no_archive() {
    let mut builder = MemFsBuilder::new();
    let file = builder.file("dir/f", [Piece::Inline(b"x".to_vec())]);
    let dir = builder.dir("dir");
    for name in [&b".."[..], b".", b"", b"../../up", b"/etc/x", b"a\0b"] {
        builder.raw_entry(dir, name, file);
        builder.raw_entry(MemFsBuilder::ROOT, name, file);
    }
    let image = builder.build();
    let mut out = Vec::new();
    let options = TarWriteOptions::default();
    let report = write_tar(
        &reader(&image),
        &Selection::default(),
        &mut out,
        &options,
        &NoProgress,
    );
    assert_eq!(report.unwrap().failures.len(), 12);
    let model = TreeModel::of_tar(&out[..]).unwrap();
    let names: Vec<_> = model
        .nodes
        .keys()
        .map(|name| String::from_utf8_lossy(name))
        .collect();
    assert_eq!(names, ["", "dir", "dir/f"]);
}

#[test]
fn a_file_that_cannot_be_read_ends_the_archive_with_its_name() {
    let mut builder = MemFsBuilder::new();
    builder.file("dir/bad", [Piece::Stored(vec![1; 3 << 20])]);
    let image = builder.build();
    let fault = FaultSource::bad_range(image.source.clone(), (1 << 20)..(1 << 20) + 1);
    let reader = reader_on(image.driver(), Arc::new(fault), Limits::default());
    let options = TarWriteOptions::default();
    let error = write_tar(
        &reader,
        &Selection::default(),
        &mut Vec::new(),
        &options,
        &NoProgress,
    )
    .unwrap_err();
    assert!(error.to_string().contains("/dir/bad: reading"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_survives_the_way_through_an_archive(
        files in prop::collection::btree_map("[a-d]{1,2}(/[a-d\u{e4} ]{1,60}){0,3}", prop::collection::vec(any::<u8>(), 0..3000), 0..20),
    ) {
        let mut builder = MemFsBuilder::new();
        let mut taken = std::collections::BTreeSet::new();
        for (path, bytes) in files {
            // A path that is the parent of another one cannot be a file.
            let parents = path.match_indices('/').map(|(at, _)| path[..at].to_string());
            if taken.contains(&path) || parents.clone().any(|parent| taken.contains(&format!("file {parent}"))) {
                continue;
            }
            taken.extend(parents);
            taken.insert(format!("file {path}"));
            builder.file(&path, [Piece::Stored(bytes)]);
        }
        let image = builder.build();
        let archive = tar_of(&reader(&image));
        let tree = tree_of(archive).unwrap();
        let expected = TreeModel::of_image(&*image.fs, &image.source).unwrap();
        expected.assert_same(&as_model(&tree), &Keeps::CONTENTS);
    }
}
