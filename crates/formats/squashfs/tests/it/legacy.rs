//! SquashFS 1.x to 3.x and vendors' LZMA: images of the test kit, which unsquashfs checks too.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::process::Command;
use std::sync::Arc;

use forerun_build::{Content, NewNode, NodeKind, Tree};
use forerun_codec::Encoding;
use forerun_io::{Limits, MemorySource};
use forerun_squashfs::fuzzing;
use forerun_squashfs::write::{SquashfsOptions, write};
use forerun_testkit::conformance::check_filesystem;
use forerun_testkit::{described, require};
use forerun_vfs::{Error, Extent, FileSystem, Place};

use crate::common;

fn all() -> Vec<(String, Vec<u8>)> {
    let images = common::old_images().into_iter();
    let images = images.filter(|(name, _)| name.starts_with("gzip-") && !name.ends_with("-plain"));
    let images: Vec<_> = images.collect();
    assert_eq!(images.len(), 20);
    images
}

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
    for (name, image) in all() {
        let errors = fuzzing::walk(&image);
        assert!(errors.is_empty(), "{name}: {errors:?}");
        let fs = common::open(image.clone()).unwrap();
        assert!(contents(&fs, &image) == common::old("contents"), "{name}");
        let file = fs.lookup(fs.root(), b"file").unwrap().unwrap();
        let file = fs.metadata(file).unwrap();
        assert_eq!(
            (file.uid, file.gid, file.mode),
            (1000, 100, 0o644),
            "{name}"
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
        let details = &fs.volume().details;
        let version = name.split('-').nth(1).unwrap();
        assert!(
            details.contains(&("version", version.to_string())),
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
    for (name, bytes) in all() {
        let dir = forerun_testkit::TempDir::new().unwrap();
        let (image, out) = (dir.path().join("image"), dir.path().join("out"));
        fs::write(&image, bytes).unwrap();
        let ran = Command::new("unsquashfs")
            .arg("-d")
            .arg(&out)
            .arg(&image)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(
            fs::read(out.join("file")).unwrap() == common::old("contents"),
            "{name}: {said}"
        );
        assert_eq!(
            fs::read(out.join("dir/inner")).unwrap(),
            b"",
            "{name}: {said}"
        );
        assert_eq!(
            fs::read_link(out.join("link")).unwrap().to_str(),
            Some("target")
        );
        let fifo = fs::symlink_metadata(out.join("fifo")).unwrap();
        assert!(fifo.file_type().is_fifo(), "{name}: {said}");
        let file = fs::symlink_metadata(out.join("file")).unwrap();
        assert_eq!(file.mtime(), 1_000_000_001, "{name}");
    }
}

/// If metadata is uncompressed, the LZMA header is recognised from file data.
#[test]
fn every_header_of_lzma_and_its_properties_are_recognised() {
    let compressors = [
        ("gzip", "gzip"),
        ("lzma", "lzma"),
        ("lzma_no_length", "lzma without length"),
        ("lzma_properties", "lzma with properties only"),
        ("lzma_parameters", "lzma with parameters in each block"),
        ("lzma_headerless", "lzma without header"),
        ("lzma_marked", "lzma"),
        ("lzma_marked_no_length", "lzma without length"),
    ];
    let mut read = 0;
    for (name, image) in common::old_images() {
        let Some((stored, _)) = name.split_once('-') else {
            continue;
        };
        let (_, compressor) = compressors.iter().find(|(of, _)| *of == stored).unwrap();
        let fs = common::open(image.clone());
        let fs = fs.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(contents(&fs, &image) == common::old("contents"), "{name}");
        let details = &fs.volume().details;
        let compressor = ("compressor", compressor.to_string());
        assert!(details.contains(&compressor), "{name}: {details:?}");
        read += 1;
    }
    assert_eq!(read, 256);
}

#[test]
fn an_image_that_says_gzip_and_holds_lzma_opens() {
    let mut tree = Tree::default();
    let contents = [&b"a line of text\n".repeat(500)[..], &[7; 3000]].concat();
    let kind = NodeKind::File {
        len: contents.len() as u64,
        content: Content::Bytes(contents.clone().into()),
    };
    tree.add(Tree::ROOT, b"file", NewNode::new(kind, 0o644))
        .unwrap();
    let options = SquashfsOptions {
        encoding: Encoding::Lzma,
        block_size: 4096,
        ..SquashfsOptions::default()
    };
    let mut image = Vec::new();
    write(&tree, &options, &mut image, &Arc::default()).unwrap();
    // Set the compressor to gzip.
    image[20..22].copy_from_slice(&1_u16.to_le_bytes());
    let errors = fuzzing::walk(&image);
    assert!(errors.is_empty(), "{errors:?}");
    let fs = common::open(image.clone()).unwrap();
    assert!(fs.volume().details.contains(&("compressor", "lzma".into())));
    let node = fs.lookup(fs.root(), b"file").unwrap().unwrap();
    let mut first = None;
    fs.map(node, 0..10, &mut |extent| {
        first = Some(extent.place);
        std::ops::ControlFlow::Break(())
    })
    .unwrap();
    let Some(Place::Encoded { block, .. }) = first else {
        panic!("{first:?}");
    };
    let at = block.offset as usize;
    let stored = &image[at..at + block.len as usize];
    let mut out = vec![0; 4096];
    block.codec.decode(stored, &mut out).unwrap();
    assert!(out == contents[..4096]);
}

#[test]
fn lies_in_old_images_are_named() {
    let with = |at: usize, bytes: &[u8]| {
        let mut image = common::old("gzip-3.0-little");
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
        (37, &[0, 0], "the superblock says that the image has no ids"),
        (55, &[255; 4], "entries of the fragment table take"),
    ] {
        let error = with(at, bytes);
        assert!(error.contains(expected), "{at}: {error}");
    }
    let mut image = common::old("gzip-2.1-big-marker");
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
        let image = common::old(&format!("gzip-{major}.0-big"));
        let fs = common::open(image).unwrap();
        insta::assert_snapshot!(format!("old_{major}"), described(&fs));
    }
}

#[test]
fn a_search_measures_old_images() {
    for (name, image) in all() {
        let len = image.len() as u64;
        let source = MemorySource::new(Arc::<[u8]>::from([image, vec![0; 999]].concat()));
        let measured = (forerun_squashfs::FORMAT.measure)(&source).unwrap();
        assert_eq!(measured.len, Some(len), "{name}");
    }
}
