//! Images made by genromfs have the same contents when read back through a mount.

use std::fs::File;
use std::io::{IsTerminal, Read};

use forerun::Image;
use forerun_fuse::{MountOptions, Operation, mount};
use forerun_io::Counter;
use forerun_testkit::tree::Keeps;
use forerun_testkit::{Shape, TreeModel};

use crate::common::{self, Place, can_mount, romfs};

fn reads_back(shape: Shape, alignment: &str, options: &str) {
    let place = Place::new(shape.name());
    let (tree, image) = (place.dir().join("tree"), place.dir().join("image"));
    std::fs::create_dir(&tree).unwrap();
    shape.populate(&tree);
    if !can_mount() || !romfs(&tree, &image, &["-a", alignment, "-V", "test"]) {
        return;
    }
    let options = MountOptions::parse(options).unwrap();
    let image = Image::open_with(&image, &options.open_options()).unwrap();
    let mounted = mount(&image, &place.mnt(), &options).unwrap();
    let expected = TreeModel::of_host(&tree).unwrap();
    let actual = TreeModel::of_host(&place.mnt()).unwrap();
    expected.assert_same(&actual, &Keeps::ROMFS);
    drop(mounted);
    assert!(!common::is_mounted(&place.mnt()));
}

#[test]
fn small_shapes() {
    for shape in [
        Shape::Empty,
        Shape::Mixed,
        Shape::Deep,
        Shape::HardLinks,
        Shape::Devices,
        Shape::LongNames,
        Shape::OddLengths,
        Shape::Symlinks,
    ] {
        // The attributes of device nodes are readable even if the nodes are unusable.
        reads_back(shape, "16", "");
    }
}

#[test]
fn aligned_and_legacy() {
    reads_back(Shape::Mixed, "4096", "");
    reads_back(Shape::Mixed, "16", "nolargeblocks");
}

#[test]
fn ten_thousand_files_in_one_directory() {
    reads_back(Shape::ManyFiles, "16", "");
}

/// Reads through a privileged mount, and through one where the kernel reads ahead at most 128 KiB.
#[test]
fn a_large_file_takes_few_large_requests() {
    let place = Place::new("large-file");
    let (tree, image) = (place.dir().join("tree"), place.dir().join("image"));
    std::fs::create_dir(&tree).unwrap();
    Shape::BigFile.populate(&tree);
    if !can_mount() || !romfs(&tree, &image, &[]) {
        return;
    }
    let expected = TreeModel::of_host(&tree).unwrap();
    let len = std::fs::metadata(tree.join("big")).unwrap().len();
    for lift_readahead in [true, false] {
        let mut options = MountOptions::default();
        options.lift_readahead = lift_readahead;
        let image = Image::open_with(&image, &options.open_options()).unwrap();
        let mounted = mount(&image, &place.mnt(), &options).unwrap();
        let actual = TreeModel::of_host(&place.mnt()).unwrap();
        expected.assert_same(&actual, &Keeps::ROMFS);
        let requests = mounted.stats().get(Counter::SourceRequests);
        let most = len / (1 << 20) + 10;
        assert!(requests <= most, "{requests} of at most {most}");
    }
}

/// Checks that small files are in the page cache before they are opened. Otherwise each costs a
/// sequential reader a round trip.
#[test]
fn small_files_are_there_before_they_are_opened() {
    let place = Place::new("handed-over");
    let (tree, image) = (place.dir().join("tree"), place.dir().join("image"));
    for dir in 0..20 {
        let dir = tree.join(format!("{dir:02}"));
        std::fs::create_dir_all(&dir).unwrap();
        for file in 0..100 {
            std::fs::write(dir.join(format!("{file:03}")), vec![7; 5000 + file]).unwrap();
        }
    }
    if !can_mount() || !romfs(&tree, &image, &[]) {
        return;
    }
    let options = MountOptions::default();
    let image = Image::open_with(&image, &options.open_options()).unwrap();
    let mounted = mount(&image, &place.mnt(), &options).unwrap();
    let mut files = 0;
    for dir in std::fs::read_dir(place.mnt()).unwrap() {
        let listing: Vec<_> = std::fs::read_dir(dir.unwrap().path()).unwrap().collect();
        for file in listing {
            let file = file.unwrap();
            let number: usize = file.file_name().to_str().unwrap().parse().unwrap();
            let content = std::fs::read(file.path()).unwrap();
            assert_eq!(content, vec![7; 5000 + number], "{:?}", file.path());
            // Read slowly, so that the pushing thread is always ahead.
            std::thread::sleep(std::time::Duration::from_micros(300));
            files += 1;
        }
    }
    assert_eq!(files, 2000);
    let counts = mounted.requests();
    let (reads, stores) = (counts.get(Operation::Read), counts.get(Operation::Store));
    assert!(stores > files / 2, "{stores} of {files} files handed over");
    assert!(reads < files / 2, "{reads} requests for {files} files");
}

/// Checks that files are in the page cache for a program that first checks whether each is a
/// terminal, like Python's `open`. The engine cannot predict the order of the files.
#[test]
fn a_file_is_there_once_it_was_asked_whether_it_is_a_terminal() {
    const FILES: usize = 400;
    let place = Place::new("asked");
    let (tree, image) = (place.dir().join("tree"), place.dir().join("image"));
    std::fs::create_dir(&tree).unwrap();
    for file in 0..FILES {
        std::fs::write(tree.join(format!("{file:03}")), vec![9; 3000 + file]).unwrap();
    }
    if !can_mount() || !romfs(&tree, &image, &[]) {
        return;
    }
    let options = MountOptions::default();
    let image = Image::open_with(&image, &options.open_options()).unwrap();
    let mounted = mount(&image, &place.mnt(), &options).unwrap();
    let counts = || {
        let counts = mounted.requests();
        let of = |kind| usize::try_from(counts.get(kind)).unwrap();
        (
            of(Operation::Read),
            of(Operation::Store),
            of(Operation::Other),
        )
    };
    let read_all = || {
        for number in (0..FILES).map(|n| n * 7 % FILES) {
            let mut file = File::open(place.mnt().join(format!("{number:03}"))).unwrap();
            assert!(!file.is_terminal());
            let mut content = Vec::new();
            file.read_to_end(&mut content).unwrap();
            assert_eq!(content, vec![9; 3000 + number], "{number}");
        }
    };
    read_all();
    let (reads, stores, asked) = counts();
    assert!(asked >= FILES, "{asked} questions");
    assert!(reads < FILES / 8, "{reads} READs of {FILES} files");
    assert!(stores > FILES / 2, "{stores} of {FILES} files stored");
    // The kernel now has the files cached, which is detected with the first probe.
    read_all();
    let (again, stored, _) = counts();
    assert_eq!(again, reads);
    assert!(
        stored < stores + FILES / 8,
        "{stored} files stored after {stores}"
    );
}
