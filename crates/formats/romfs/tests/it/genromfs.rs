//! Images of the reference tool: the driver reads the original trees from them.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use forerun_io::{FileSource, Limits, ReadAt};
use forerun_romfs::Romfs;
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{Keeps, Shape, TreeModel, generate, genromfs, temp_dir};
use forerun_vfs::{FileSystem, Walk};

fn open(image: &Path) -> (Romfs, Arc<FileSource>) {
    let source = Arc::new(FileSource::open(image).unwrap());
    (
        Romfs::open(Arc::<FileSource>::clone(&source), &Limits::default()).unwrap(),
        source,
    )
}

fn compare(tree: &Path, image: &Path) {
    let (romfs, source) = open(image);
    check_filesystem(&romfs, &Limits::default());
    let actual = TreeModel::of_image(&romfs, &*source).unwrap();
    TreeModel::of_host(tree)
        .unwrap()
        .assert_same(&actual, &Keeps::ROMFS);
    let limits = Limits::default();
    for entry in Walk::new(&romfs, romfs.root(), &limits) {
        let node = entry.unwrap().node;
        romfs
            .check(Some(node), &mut |problem| panic!("{problem:?}"))
            .unwrap();
    }
    romfs
        .check(None, &mut |problem| {
            // A warning is expected if a test has removed the padding.
            let padded = source.len() >= romfs.volume().image_len.next_multiple_of(1024);
            assert!(!padded && !problem.fatal, "{problem:?}");
        })
        .unwrap();
}

/// Packs a shape and compares the image with its tree.
fn shape(shape: Shape, options: &[&str]) {
    let dir = temp_dir("romfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    if shape.needs_root() && !forerun_testkit::require::root() {
        return;
    }
    shape.populate(&tree);
    if genromfs(&tree, &image, options) {
        compare(&tree, &image);
    }
}

#[test]
fn empty() {
    shape(Shape::Empty, &[]);
}

#[test]
fn mixed() {
    shape(Shape::Mixed, &["-V", "a name of the volume"]);
}

#[test]
fn deep() {
    shape(Shape::Deep, &[]);
}

#[test]
fn ten_thousand_files_in_one_directory() {
    shape(Shape::ManyFiles, &[]);
}

#[test]
fn a_large_file() {
    shape(Shape::BigFile, &[]);
}

#[test]
fn hard_links() {
    shape(Shape::HardLinks, &[]);
}

#[test]
fn devices() {
    shape(Shape::Devices, &[]);
}

#[test]
fn long_names() {
    shape(Shape::LongNames, &[]);
}

#[test]
fn odd_lengths() {
    shape(Shape::OddLengths, &[]);
}

#[test]
fn symbolic_links() {
    shape(Shape::Symlinks, &[]);
}

#[test]
fn alignments() {
    for align in ["16", "32", "512", "1024", "4096"] {
        shape(Shape::OddLengths, &["-a", align]);
    }
}

#[test]
fn a_device_longer_or_shorter_than_the_image() {
    let dir = temp_dir("romfs");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    generate::mixed(&tree, 3, 50).unwrap();
    if !genromfs(&tree, &image, &[]) {
        return;
    }
    let len = fs::metadata(&image).unwrap().len();
    let mut file = fs::File::options().append(true).open(&image).unwrap();
    file.write_all(&vec![0xAB; 12_345]).unwrap();
    compare(&tree, &image);

    let full_size = open(&image).0.volume().image_len;
    assert!(full_size <= len);
    file.set_len(full_size).unwrap();
    compare(&tree, &image);

    file.set_len(full_size - 1).unwrap();
    let source = Arc::new(FileSource::open(&image).unwrap());
    let error = Romfs::open(source.clone(), &Limits::default())
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains(&full_size.to_string()) && error.contains(&source.len().to_string()),
        "{error}"
    );
}
