//! SquashFS 1.x to 3.x and vendors' LZMA: images of the test kit, judged by unsquashfs too.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::Command;
use std::sync::Arc;

use forerun_io::{Limits, MemorySource};
use forerun_squashfs::fuzzing::{self, Old, Stored};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{described, require};
use forerun_vfs::{Error, Extent, FileSystem, Place};

use crate::common;

const VERSIONS: [(u16, u16); 5] = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1)];

fn all() -> Vec<Old> {
    let mut out = Vec::new();
    for version in VERSIONS {
        for is_big_endian in [false, true] {
            for has_marker in [false, true] {
                out.push(Old {
                    has_marker,
                    ..Old::new(version, is_big_endian)
                });
            }
        }
    }
    out
}

/// Decodes the bytes of `file` along its extents.
fn contents(fs: &dyn FileSystem, image: &[u8]) -> Vec<u8> {
    let node = fs.lookup(fs.root(), b"file").unwrap().unwrap();
    let mut out = Vec::new();
    let mut visit = |extent: Extent| {
        let len = (extent.logical.end - extent.logical.start) as usize;
        match extent.place {
            Place::Stored { offset, .. } => {
                let at = offset as usize;
                out.extend_from_slice(&image[at..at + len]);
            }
            Place::Encoded { block, skip } => {
                let (at, end) = (
                    block.offset as usize,
                    block.offset as usize + block.len as usize,
                );
                let mut whole = vec![0; skip as usize + len];
                block.codec.decode(&image[at..end], &mut whole).unwrap();
                out.extend_from_slice(&whole[skip as usize..]);
            }
            _ => panic!("{extent:?}"),
        }
        std::ops::ControlFlow::Continue(())
    };
    fs.map(node, 0..u64::MAX, &mut visit).unwrap();
    out
}

#[test]
fn every_version_and_byte_order() {
    for old in all() {
        let image = old.image();
        assert_eq!(
            fuzzing::walk(&image).len(),
            0,
            "{old:?}: {:?}",
            fuzzing::walk(&image)
        );
        let fs = common::open(image.clone()).unwrap();
        assert!(contents(&fs, &image) == Old::contents(), "{old:?}");
        let file = fs.lookup(fs.root(), b"file").unwrap().unwrap();
        let file = fs.metadata(file).unwrap();
        assert_eq!(
            (file.uid, file.gid, file.mode),
            (1000, 100, 0o644),
            "{old:?}"
        );
        let link = fs.lookup(fs.root(), b"link").unwrap().unwrap();
        assert_eq!(fs.read_link(link).unwrap(), b"target");
        assert_eq!(
            fs.metadata(link).unwrap().gid,
            1000,
            "the user's own number"
        );
        let dir = fs.lookup(fs.root(), b"dir").unwrap().unwrap();
        assert!(fs.lookup(dir, b"inner").unwrap().is_some());
        let details = fs.volume().details;
        let (major, minor) = old.version;
        assert!(
            details.contains(&("version", format!("{major}.{minor}"))),
            "{details:?}"
        );
        check_filesystem(&fs, &Limits::default());
    }
}

#[test]
fn unsquashfs_reads_the_same() {
    if !require::that(
        Command::new("unsquashfs").arg("-v").output().is_ok(),
        "unsquashfs",
    ) {
        return;
    }
    for old in all() {
        let dir = forerun_testkit::TempDir::new().unwrap();
        let (image, out) = (dir.path().join("image"), dir.path().join("out"));
        fs::write(&image, old.image()).unwrap();
        let ran = Command::new("unsquashfs")
            .arg("-d")
            .arg(&out)
            .arg(&image)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(
            fs::read(out.join("file")).unwrap() == Old::contents(),
            "{old:?}: {said}"
        );
        assert_eq!(
            fs::read(out.join("dir/inner")).unwrap(),
            b"",
            "{old:?}: {said}"
        );
        assert_eq!(
            fs::read_link(out.join("link")).unwrap().to_str(),
            Some("target")
        );
        let fifo = fs::symlink_metadata(out.join("fifo")).unwrap();
        assert!(fifo.file_type().is_fifo(), "{old:?}: {said}");
        let file = fs::symlink_metadata(out.join("file")).unwrap();
        assert_eq!(file.mtime(), 1_000_000_001, "{old:?}");
    }
}

#[test]
fn every_header_of_lzma() {
    for (magic, is_big_endian) in [
        (*b"hsqs", false),
        (*b"shsq", false),
        (*b"qshs", true),
        (*b"sqlz", true),
    ] {
        for (stored, name) in [
            (Stored::Lzma, "lzma"),
            (Stored::LzmaNoLength, "lzma without length"),
            (Stored::LzmaProperties, "lzma with properties only"),
            (Stored::LzmaHeaderless, "lzma without header"),
            (Stored::LzmaMarked, "lzma"),
            (Stored::LzmaMarkedNoLength, "lzma without length"),
        ] {
            for version in VERSIONS {
                let old = Old {
                    magic,
                    stored,
                    ..Old::new(version, is_big_endian)
                };
                let image = old.image();
                let fs = common::open(image.clone());
                let fs = fs.unwrap_or_else(|error| panic!("{old:?}: {error}"));
                assert!(contents(&fs, &image) == Old::contents(), "{old:?}");
                let details = fs.volume().details;
                assert!(
                    details.contains(&("compressor", name.into())),
                    "{old:?}: {details:?}"
                );
            }
        }
    }
}

#[test]
fn lies_in_old_images_are_named() {
    let with = |at: usize, bytes: &[u8]| {
        let mut image = Old::new((3, 0), false).image();
        image[at..at + bytes.len()].copy_from_slice(bytes);
        common::open(image)
            .err()
            .map(|error: Error| error.to_string())
            .unwrap_or_default()
    };
    for (at, bytes, expected) in [
        (34, &[63_u8, 0][..], "block size 4096 with log 63"),
        (
            63,
            &[255; 8],
            "the superblock says 18446744073709551615 bytes",
        ),
        (71, &[255; 8], "the uid table starts at"),
        (87, &[0; 8], "the inode table starts at 0x0"),
        (37, &[0, 0], "the superblock says there are no ids"),
        (55, &[255; 4], "entries of the fragment table take"),
    ] {
        let error = with(at, bytes);
        assert!(error.contains(expected), "{at}: {error}");
    }
    let mut image = Old {
        has_marker: true,
        ..Old::new((2, 1), true)
    }
    .image();
    image.truncate(50);
    let error = common::open(image).err().unwrap().to_string();
    assert!(
        error.contains("a superblock of its version takes 63"),
        "{error}"
    );
}

#[test]
fn fields_of_each_version() {
    for major in 1..=3 {
        let image = Old::new((major, 0), true).image();
        let fs = common::open(image).unwrap();
        insta::assert_snapshot!(format!("old_{major}"), described(&fs));
    }
}

#[test]
fn a_search_measures_old_images() {
    for old in all() {
        let image = old.image();
        let len = image.len() as u64;
        let source = MemorySource::new(Arc::<[u8]>::from([image, vec![0; 999]].concat()));
        let measured = (forerun_squashfs::FORMAT.measure)(&source).unwrap();
        assert_eq!(measured.len, Some(len), "{old:?}");
    }
}
