//! Big-endian images of 4.0, as one vendor makes them. No such image was available: these are
//! images of mksquashfs with every number byte-swapped, and with metadata block headers in both
//! byte orders.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use forerun_io::{Limits, MemorySource};
use forerun_squashfs::fuzzing::{self, Parts};
use forerun_squashfs::{FORMAT, Squashfs};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{Keeps, TreeModel, described, told};
use forerun_vfs::{ByteOrder, DirCursor, FileSystem, OpenWith, Walk, exercise};

use crate::common;
use crate::reading::{Sample, all};
use crate::turned::{tables, turned};

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];

/// Creates the tree of [`all`] and an indexed directory.
fn everything(tree: &Path) {
    all(tree);
    fs::create_dir(tree.join("indexed")).unwrap();
    for n in 0..3000 {
        fs::write(
            tree.join("indexed")
                .join(format!("{n:x}-{}", "y".repeat(n % 90))),
            "",
        )
        .unwrap();
    }
}

fn open(image: &[u8]) -> Squashfs {
    common::open(image.to_vec()).unwrap()
}

/// Returns the extents of each file, and the xattrs of each node.
fn regions(fs: &Squashfs) -> BTreeMap<Vec<u8>, (Vec<String>, String)> {
    let mut out = BTreeMap::new();
    for entry in Walk::new(fs, fs.root(), &Limits::default()) {
        let entry = entry.unwrap();
        let mut extents = Vec::new();
        let mut visit = |extent| {
            extents.push(format!("{extent:?}"));
            ControlFlow::Continue(())
        };
        // Only files have extents.
        let _not_a_file = fs.map(entry.node, 0..u64::MAX, &mut visit);
        let mut xattrs = format!("{:?}", fs.metadata(entry.node).unwrap());
        fs.xattrs(entry.node, &mut |name, value| {
            write!(xattrs, " {name:?}={value:?}").unwrap();
        })
        .unwrap();
        out.insert(entry.path, (extents, xattrs));
    }
    out
}

/// Asserts that `image` equals `original` except for its byte order.
fn assert_same(original: &[u8], image: &[u8], what: &str) {
    let errors = exercise::all(&open(image), &Limits::default());
    assert!(errors.is_empty(), "{what}: {errors:?}");
    let (expected, fs) = (open(original), open(image));
    assert!(regions(&expected) == regions(&fs), "{what}");
    let model =
        |fs: &Squashfs, image: &[u8]| TreeModel::of_image(fs, &MemorySource::new(image)).unwrap();
    model(&expected, original).assert_same(&model(&fs, image), &Keeps::EVERYTHING);
    let dir = fs.lookup(fs.root(), b"indexed").unwrap().unwrap();
    let mut names = Vec::new();
    fs.read_dir(dir, DirCursor::START, &mut |entry| {
        names.push((entry.name.to_vec(), entry.node));
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(names.len(), 3000);
    // Reopen the image, so that lookups use only the indexes.
    let fs = open(image);
    for (name, node) in names {
        assert_eq!(fs.lookup(dir, &name).unwrap(), Some(node), "{what}");
    }
}

#[test]
fn images_of_every_compressor() {
    let Some(sample) = Sample::new(everything) else {
        return;
    };
    for compressor in ["gzip", "lzma", "xz", "lz4", "zstd"] {
        let more = match compressor {
            "gzip" => &["-b", "4K", "-Xcompression-level", "5"][..],
            "xz" => &["-Xbcj", "x86"],
            "lzma" => &["-no-exports", "-no-fragments"],
            _ => &[],
        };
        let image = fs::read(sample.make(&[&["-comp", compressor], more].concat())).unwrap();
        // The byte order of headers is found in the same way for every compressor, so one of them
        // tests both orders.
        let orders = match compressor {
            "lz4" | "zstd" => &ORDERS[..1],
            _ => &ORDERS,
        };
        for &headers in orders {
            let what = format!("{compressor}, headers {}", headers.name());
            assert_same(&image, &turned(&image, headers), &what);
        }
    }
}

#[test]
fn metadata_as_it_is_keeps_every_field_and_place() {
    let Some(sample) = Sample::new(everything) else {
        return;
    };
    let image = fs::read(sample.make(&["-noI", "-noX", "-noId", "-noF", "-b", "4K"])).unwrap();
    for headers in ORDERS {
        let big = turned(&image, headers);
        assert_eq!(big.len(), common_len(&image), "nothing moves");
        assert_same(&image, &big, headers.name());
        let fields = |image: &[u8]| {
            let text = described(&open(image));
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(fields(&image), fields(&big));
    }
}

/// Returns `bytes_used` of a little-endian image; the file may be longer, with padding.
fn common_len(image: &[u8]) -> usize {
    ByteOrder::Little.u64_at(image, 40).unwrap() as usize
}

#[test]
fn fields_and_contract() {
    for (headers, name) in [(ByteOrder::Little, "vendor"), (ByteOrder::Big, "all")] {
        let image = turned(&common::sample(), headers);
        let fs = open(&image);
        insta::assert_snapshot!(format!("big_endian_{name}"), described(&fs));
        check_filesystem(&fs, &Limits::default());
    }
}

#[test]
fn a_header_with_two_equal_bytes_tells_nothing_and_the_root_does() {
    for headers in ORDERS {
        let mut parts = Parts::everything();
        // 0x8181 in either byte order: 385 uncompressed bytes.
        parts.inodes.resize(0x181, 0);
        let image = turned(&parts.image(), headers);
        let (inodes, _) = tables(&image);
        assert_eq!(image[inodes..inodes + 2], [0x81, 0x81]);
        let errors = fuzzing::walk(&image);
        assert!(errors.is_empty(), "{errors:?}");
        let expected = ("metadata headers", headers.name().to_string());
        assert!(open(&image).volume().details.contains(&expected));
    }
}

#[test]
fn the_time_that_is_a_length_is_no_time() {
    let mut image = turned(&common::sample(), ByteOrder::Little);
    assert!(open(&image).volume().created.is_some());
    let len = u32::try_from(image.len()).unwrap();
    image[8..12].copy_from_slice(&len.to_be_bytes());
    assert_eq!(open(&image).volume().created, None);
}

#[test]
fn a_search_measures_them() {
    for headers in ORDERS {
        let image = turned(&common::sample(), headers);
        let len = image.len() as u64;
        let source = MemorySource::new(Arc::<[u8]>::from([image, vec![0; 999]].concat()));
        assert_eq!((FORMAT.measure)(&source).unwrap().len, Some(len));
    }
}

#[test]
fn lies_are_named_with_their_numbers() {
    use common::*;
    let lies: &[(&str, usize, &[u8])] = &[
        ("version 4.1", 30, &[0, 1]),
        ("version 5.0", 28, &[0, 5]),
        ("compressor 7", 20, &[0, 7]),
        ("block size 4097", 12, &[0, 0, 16, 1]),
        ("block log 63", 22, &[0, 63]),
        ("no ids", 26, &[0, 0]),
        ("more bytes than the source", 40, &[0, 0, 0, 0, 0, 1, 0, 0]),
        (
            "inode table behind directories",
            64,
            &[0, 0, 0, 0, 0, 0, 2, 0],
        ),
        ("2^32-1 fragments", 16, &[255; 4]),
        ("root past a block", 32, &[0, 0, 0, 0, 0, 0, 32, 0]),
        ("headers of no length", INODES - 2, &[0, 0]),
        ("type 15", FILE, &[0, 15]),
        ("owner 2 of 2", FILE + 4, &[0, 2]),
        ("inode number of another", FILE + 12, &[0, 0, 0, 3]),
        ("file of 4 GiB", FILE + 28, &[255; 4]),
        ("target of 2^31 bytes", LINK + 20, &[128, 0, 0, 0]),
        ("run of 257 entries", ROOT_RUN, &[0, 0, 1, 0]),
        ("name of 65536 bytes", DATA_ENTRY + 6, &[255, 255]),
        ("fragment of no bytes", FRAGMENTS + 8, &[0; 4]),
        (
            "fragment pointer outside",
            FRAGMENT_POINTER,
            &[1, 0, 0, 0, 0, 0, 0, 0],
        ),
        ("exported inode of another", EXPORT + 8, &[0; 8]),
        ("ids elsewhere", ID_POINTER, &[0, 0, 0, 0, 0, 0, 0, 1]),
        ("set of 3 pairs", SETS + 8, &[0, 0, 0, 3]),
        ("reference of 9 bytes", SECOND_PAIR + 5, &[0, 0, 0, 9]),
        ("xattr pairs outside", XATTR_HEAD, &[1, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let images = lies.iter().map(|&(what, at, bytes)| {
        let mut image = turned(&sample(), ByteOrder::Little);
        image[at..at + bytes.len()].copy_from_slice(bytes);
        (what, image)
    });
    insta::assert_snapshot!("big_endian_lies", told(images, fuzzing::walk));
}

#[test]
fn no_byte_makes_it_panic() {
    for headers in ORDERS {
        let image = turned(&common::sample(), headers);
        for at in 0..image.len() {
            for change in [0xff, 0x80, 1] {
                let mut image = image.clone();
                image[at] ^= change;
                let _errors = fuzzing::walk(&image);
                fuzzing::salvage(&image);
            }
        }
        for len in 0..image.len() {
            let _errors = fuzzing::walk(&image[..len]);
            fuzzing::salvage(&image[..len]);
        }
    }
}

#[test]
fn a_salvage_reads_them_without_the_last_tables() {
    let Some(sample) = Sample::new(everything) else {
        return;
    };
    let image = fs::read(sample.make(&["-comp", "xz"])).unwrap();
    for headers in ORDERS {
        let mut image = turned(&image, headers);
        let whole = open(&image);
        let files = Walk::new(&whole, whole.root(), &Limits::default()).count();
        // Cut the id table and everything after it.
        let ids = ByteOrder::Big.u64_at(&image, 48).unwrap() as usize;
        image.truncate(ids - 2);
        let mut with = OpenWith::new(Arc::new(MemorySource::new(image)));
        with.rescue = true;
        let fs = (FORMAT.open)(with).unwrap();
        let mut lost = 0;
        let mut found = 0;
        for entry in Walk::new(&*fs, fs.root(), &Limits::default()) {
            found += 1;
            lost += usize::from(entry.unwrap().path.starts_with(b"/lost+found"));
        }
        assert_eq!((found, lost), (files, 0), "headers {}", headers.name());
    }
}
