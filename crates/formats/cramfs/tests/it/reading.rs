//! Images of the reference tool: the driver reads the original trees from them.

use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use forerun_cramfs::Cramfs;
use forerun_io::{FileSource, Limits};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{Keeps, Shape, TreeModel, generate, require, temp_dir};
use forerun_vfs::{FileSystem, Place, Walk};

use crate::common::{KEEPS, fsck, mkcramfs};

const NAME_MAX: usize = 252;

fn open(image: &Path) -> (Cramfs, Arc<FileSource>) {
    let source = Arc::new(FileSource::open(image).unwrap());
    let metadata = Arc::<FileSource>::clone(&source);
    let fs = Cramfs::open(metadata, &Limits::default()).unwrap();
    (fs, source)
}

fn keeps(tree: &Path) -> Keeps {
    match fs::metadata(tree).unwrap().gid() {
        0..256 => KEEPS,
        _ => KEEPS.without_owners(),
    }
}

fn compare(tree: &Path, image: &Path) {
    let (cramfs, source) = open(image);
    check_filesystem(&cramfs, &Limits::default());
    let actual = TreeModel::of_image(&cramfs, &*source).unwrap();
    TreeModel::of_host(tree)
        .unwrap()
        .assert_same(&actual, &keeps(tree));
    let limits = Limits::default();
    let mut nodes = 0;
    for entry in Walk::new(&cramfs, cramfs.root(), &limits) {
        let node = entry.unwrap().node;
        let checked = cramfs.check(Some(node), &mut |problem| panic!("{problem:?}"));
        checked.unwrap();
        nodes += 1;
    }
    assert_eq!(cramfs.volume().inodes, Some(nodes));
    let checked = cramfs.check(None, &mut |problem| panic!("{problem:?}"));
    checked.unwrap();
}

fn remove_long_names(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let is_dir = entry.file_type().unwrap().is_dir();
        match (entry.file_name().len() > NAME_MAX, is_dir) {
            (true, true) => fs::remove_dir_all(entry.path()).unwrap(),
            (true, false) => fs::remove_file(entry.path()).unwrap(),
            (false, true) => remove_long_names(&entry.path()),
            (false, false) => {}
        }
    }
}

/// Packs a shape with each set of options and compares.
fn shape(shape: Shape, options: &[&[&str]]) {
    if shape.needs_root() && !require::root() {
        return;
    }
    let dir = temp_dir("cramfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    shape.populate(&tree);
    remove_long_names(&tree);
    for options in options {
        if !mkcramfs(&tree, &image, options) {
            return;
        }
        compare(&tree, &image);
        fs::remove_file(&image).unwrap();
    }
}

const BIG: &[&str] = &["-N", "big"];
const LITTLE: &[&str] = &["-N", "little"];

#[test]
fn empty() {
    shape(Shape::Empty, &[LITTLE, BIG, &["-p"]]);
}

#[test]
fn mixed() {
    let padded_big = &["-p", "-z", "-N", "big"];
    shape(Shape::Mixed, &[LITTLE, BIG, &["-z"], &["-p"], padded_big]);
}

/// The inserted file shifts the entries of the root, which SHIFTED_ROOT_OFFSET allows.
#[test]
fn a_file_between_the_superblock_and_the_entries() {
    let dir = temp_dir("cramfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    let inserted = dir.path().join("inserted");
    fs::write(&inserted, generate::bytes(1, 5000)).unwrap();
    fs::create_dir(&tree).unwrap();
    generate::mixed(&tree, 9, 30).unwrap();
    let inserted = inserted.to_str().unwrap();
    for options in [&["-i", inserted][..], &["-i", inserted, "-N", "big"]] {
        if !mkcramfs(&tree, &image, options) {
            return;
        }
        compare(&tree, &image);
        let flags = open(&image).0.describe(None).unwrap();
        let flags = flags.iter().find(|(name, _)| *name == "flags").unwrap();
        assert!(flags.1.contains("SHIFTED_ROOT_OFFSET"), "{flags:?}");
    }
}

#[test]
fn deep() {
    shape(Shape::Deep, &[LITTLE, BIG]);
}

#[test]
fn ten_thousand_files_in_one_directory() {
    shape(Shape::ManyFiles, &[LITTLE]);
}

#[test]
fn hard_links_become_files_that_share_their_data() {
    shape(Shape::HardLinks, &[LITTLE]);
}

#[test]
fn devices() {
    shape(Shape::Devices, &[LITTLE, BIG]);
}

#[test]
fn long_names() {
    shape(Shape::LongNames, &[LITTLE, BIG]);
}

#[test]
fn odd_lengths() {
    shape(Shape::OddLengths, &[LITTLE, &["-z"], BIG]);
}

#[test]
fn symbolic_links() {
    shape(Shape::Symlinks, &[LITTLE, BIG]);
}

#[test]
fn a_file_as_large_as_the_format_can_hold() {
    let dir = temp_dir("cramfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    generate::big_file(&tree.join("big"), (1 << 24) - 1).unwrap();
    if mkcramfs(&tree, &image, &[]) {
        compare(&tree, &image);
    }
}

#[test]
fn equal_files_are_nodes_of_their_own() {
    let dir = temp_dir("cramfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    for name in ["a", "b"] {
        fs::write(tree.join(name), b"the same bytes").unwrap();
    }
    if !mkcramfs(&tree, &image, &[]) {
        return;
    }
    let (fs, _) = open(&image);
    let node = |name: &[u8]| fs.lookup(fs.root(), name).unwrap().unwrap();
    let (a, b) = (node(b"a"), node(b"b"));
    assert_ne!(a, b);
    let table = |node| {
        let fields = fs.describe(Some(node)).unwrap();
        let found = fields.into_iter().find(|(name, _)| *name == "offset");
        found.unwrap().1
    };
    assert_eq!(table(a), table(b));
    compare(&tree, &image);
}

#[test]
fn the_volume_is_described_as_it_was_made() {
    let dir = temp_dir("cramfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![b'x'; 5000]).unwrap();
    if !mkcramfs(&tree, &image, &["-n", "sixteen letters!", "-e", "7"]) {
        return;
    }
    let fs = open(&image).0;
    let volume = fs.volume();
    assert_eq!(volume.label, b"sixteen letters!");
    assert_eq!((volume.inodes, volume.block_size), (Some(2), 4096));
    for detail in [("edition", "7"), ("blocks", "2"), ("files", "2")] {
        let (name, value) = detail;
        let detail = (name, value.to_string());
        assert!(volume.details.contains(&detail), "{:?}", volume.details);
    }
}

#[test]
fn fsck_extracts_the_same_tree() {
    if !require::root() {
        return;
    }
    for options in [LITTLE, BIG, &["-p"]] {
        let dir = temp_dir("cramfs");
        let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
        fs::create_dir(&tree).unwrap();
        generate::mixed(&tree, 7, 100).unwrap();
        if !mkcramfs(&tree, &image, options) {
            return;
        }
        let out = dir.path().join("out");
        let extract = format!("--extract={}", out.display());
        let Some(output) = fsck(&image, &[extract]) else {
            return;
        };
        assert!(output.status.success(), "{output:?}");
        let (cramfs, source) = open(&image);
        let actual = TreeModel::of_image(&cramfs, &*source).unwrap();
        TreeModel::of_host(&out)
            .unwrap()
            .assert_same(&actual, &KEEPS);
    }
}

#[test]
fn a_device_longer_or_shorter_than_the_image() {
    let dir = temp_dir("cramfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    generate::mixed(&tree, 3, 50).unwrap();
    if !mkcramfs(&tree, &image, &[]) {
        return;
    }
    let len = fs::metadata(&image).unwrap().len();
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.set_len(len + 12_345).unwrap();
    compare(&tree, &image);
    file.set_len(len - 1).unwrap();
    let source = Arc::new(FileSource::open(&image).unwrap());
    let error = Cramfs::open(source, &Limits::default()).err().unwrap();
    let expected = format!(
        "offset 0x0: the superblock says {len} bytes, the source has {}",
        len - 1
    );
    assert!(error.to_string().ends_with(&expected), "{error}");
}

#[test]
fn any_changed_byte_of_an_image_is_found_by_its_checksum() {
    let dir = temp_dir("cramfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    generate::mixed(&tree, 5, 20).unwrap();
    for options in [LITTLE, &["-p"]] {
        if !mkcramfs(&tree, &image, options) {
            return;
        }
        let sound = fs::read(&image).unwrap();
        let start = if options == LITTLE { 0 } else { 512 };
        // The name of the volume, and offsets up to the last byte.
        let step = (sound.len() / 7).max(1);
        let places = [start + 50]
            .into_iter()
            .chain((start..sound.len()).rev().step_by(step));
        for at in places.filter(|&at| at >= start + 48) {
            let mut changed = sound.clone();
            changed[at] ^= 0x10;
            let mut found = Vec::new();
            crate::common::open(&changed)
                .check(None, &mut |problem| found.push(problem))
                .unwrap();
            let is_found = found
                .iter()
                .any(|problem| problem.fatal && problem.error.to_string().contains("CRC-32"));
            assert!(is_found, "byte {at:#x}: {found:?}");
        }
    }
}

/// The image does not store the size of its blocks. If they do not have 4096 bytes, a read fails
/// and returns no wrong bytes.
#[test]
fn blocks_of_another_size_are_errors() {
    let dir = temp_dir("cramfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    let bytes = generate::bytes(1, 50_000);
    fs::write(tree.join("file"), &bytes).unwrap();
    for size in ["1024", "8192", "65536"] {
        if !mkcramfs(&tree, &image, &["-b", size]) {
            return;
        }
        let stored = fs::read(&image).unwrap();
        let (cramfs, _) = open(&image);
        let file = cramfs.lookup(cramfs.root(), b"file").unwrap().unwrap();
        let mut failed = 0;
        let mapped = cramfs.map(file, 0..u64::MAX, &mut |extent| {
            let Place::Encoded { block, .. } = extent.place else {
                panic!("{extent:?}");
            };
            let mut out = vec![0; block.decoded_len.max() as usize];
            let range = block.stored().start as usize..block.stored().end as usize;
            let logical = extent.logical.start as usize..extent.logical.end as usize;
            match block.decode(&stored[range], &mut out) {
                Ok(_) => assert_eq!(out, bytes[logical], "blocks of {size} bytes"),
                Err(_) => failed += 1,
            }
            ControlFlow::Continue(())
        });
        assert!(mapped.is_err() || failed > 0, "blocks of {size} bytes");
    }
}
