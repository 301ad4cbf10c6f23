//! Images of genromfs read back through a mount, identical to what they were made of.

use forerun::Counter;
use forerun_fuse::{Image, MountOptions, Operation, mount};
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
        // Device nodes can be looked at whether or not they can be used.
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

/// Reads as through a mount with privileges, and as through one without, where the kernel reads ahead 128
/// KiB at most.
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

/// Checks that small files are in the page cache before they are opened. Each of them costs a sequential
/// reader a round trip otherwise.
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
            // Slower than a reader could be: what is to be there before it then is.
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
