//! Packing one directory with genromfs and with the writer gives equivalent images.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use forerun_build::{ScanOptions, scan};
use forerun_io::{FileSource, Limits, Observer};
use forerun_romfs::{Romfs, RomfsOptions, write};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{Keeps, Shape, TreeModel, genromfs, require, temp_dir};
use forerun_vfs::{FileSystem, Walk};

/// Longest name that the writer accepts; genromfs accepts longer ones, which Linux cannot open.
const NAME_MAX: usize = 127;

fn pack(tree: &Path, image: &Path, align: u32) {
    let tree = scan(tree, &ScanOptions::default()).unwrap();
    let options = RomfsOptions {
        align,
        volume_name: b"name".to_vec(),
    };
    let mut out = fs::File::create(image).unwrap();
    write(&tree, &options, &mut out, &Arc::new(Observer::default())).unwrap();
}

fn read(image: &Path) -> TreeModel {
    let source = Arc::new(FileSource::open(image).unwrap());
    let limits = Limits::default();
    let romfs = Romfs::open(Arc::<FileSource>::clone(&source), &limits).unwrap();
    check_filesystem(&romfs, &limits);
    for entry in Walk::new(&romfs, romfs.root(), &limits) {
        let node = entry.unwrap().node;
        let check = romfs.check(Some(node), &mut |problem| panic!("{problem:?}"));
        check.unwrap();
    }
    romfs
        .check(None, &mut |problem| panic!("{problem:?}"))
        .unwrap();
    TreeModel::of_image(&romfs, &*source).unwrap()
}

fn shorten_names(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let is_dir = entry.file_type().unwrap().is_dir();
        match (entry.file_name().len() > NAME_MAX, is_dir) {
            (true, true) => fs::remove_dir_all(entry.path()).unwrap(),
            (true, false) => fs::remove_file(entry.path()).unwrap(),
            (false, true) => shorten_names(&entry.path()),
            (false, false) => {}
        }
    }
}

fn same(shape: Shape, align: u32) {
    if shape.needs_root() && !require::root() {
        return;
    }
    let dir = temp_dir("romfs");
    let tree = dir.path().join("tree");
    fs::create_dir(&tree).unwrap();
    shape.populate(&tree);
    shorten_names(&tree);
    let (ours, theirs) = (dir.path().join("ours"), dir.path().join("theirs"));
    if !genromfs(&tree, &theirs, &["-V", "name", "-a", &align.to_string()]) {
        return;
    }
    pack(&tree, &ours, align);
    let (mine, reference) = (read(&ours), read(&theirs));
    reference.assert_same(&mine, &Keeps::EVERYTHING);
    let host = TreeModel::of_host(&tree).unwrap();
    host.assert_same(&mine, &Keeps::ROMFS);
    let len = |path: &Path| fs::metadata(path).unwrap().len();
    assert!(len(&ours).is_multiple_of(1024) && len(&ours) <= len(&theirs));
}

#[test]
fn small_shapes() {
    for shape in [
        Shape::Empty,
        Shape::Mixed,
        Shape::Deep,
        Shape::HardLinks,
        Shape::Devices,
    ] {
        same(shape, 16);
    }
}

#[test]
fn names_and_links() {
    same(Shape::LongNames, 16);
    same(Shape::Symlinks, 16);
}

#[test]
fn ten_thousand_files_in_one_directory() {
    same(Shape::ManyFiles, 16);
}

#[test]
fn a_large_file() {
    same(Shape::BigFile, 4096);
}

#[test]
fn alignments() {
    for align in [16, 32, 512, 4096] {
        same(Shape::OddLengths, align);
    }
}
