//! Images inside other files are found, and unsupported containers are named.

use std::fs;
use std::process::Command;
use std::sync::Arc;

use forerun::build::{Content, NewNode, NodeKind, RomfsOptions, Tree};
use forerun::unstable::disk::Container;
use forerun::vfs::{Error, FollowLast, resolve};
use forerun::{Image, MemorySource, Observer, OpenOptions, Writer};
use forerun_testkit::sif::SifFile;
use forerun_testkit::{require, temp_dir};

const TEXT: &[u8] = b"found\n";

fn romfs() -> Vec<u8> {
    let mut tree = Tree::default();
    let kind = NodeKind::File {
        len: TEXT.len() as u64,
        content: Content::Bytes(TEXT.into()),
    };
    tree.add(Tree::ROOT, b"file", NewNode::new(kind, 0o644))
        .unwrap();
    let mut out = Vec::new();
    Writer::Romfs(RomfsOptions::default())
        .write(&tree, &mut out, &Arc::new(Observer::default()))
        .unwrap();
    out
}

/// Creates an image of the same file with mksquashfs.
fn squashfs() -> Option<Vec<u8>> {
    let mksquashfs = require::program("mksquashfs")?;
    let dir = temp_dir("payload");
    let (tree, image) = (dir.path().join("tree"), dir.path().join("image"));
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), TEXT).unwrap();
    let output = Command::new(mksquashfs)
        .arg(&tree)
        .arg(&image)
        .args(["-noappend", "-quiet", "-no-progress"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    Some(fs::read(image).unwrap())
}

/// Returns the test program itself, as an executable.
fn executable() -> Vec<u8> {
    fs::read(std::env::current_exe().unwrap()).unwrap()
}

fn appimage(image: &[u8]) -> Vec<u8> {
    let mut bytes = executable();
    bytes[8..11].copy_from_slice(b"AI\x02");
    bytes.extend_from_slice(image);
    bytes
}

/// Creates a SIF file with the image as its primary system partition.
fn sif(image: &[u8], filesystem: u8) -> Vec<u8> {
    let mut file = SifFile::default();
    file.partition(filesystem, 2, image);
    file.add(0x4005, &[], b"a signature").bytes()
}

fn open(bytes: &[u8], options: &OpenOptions) -> Result<Image, Error> {
    Image::from_source(Arc::new(MemorySource::new(bytes)), options)
}

fn check(bytes: &[u8], format: &str, container: Option<Container>, offset: usize) {
    for name in [None, Some(format.to_string())] {
        let options = OpenOptions {
            format: name,
            ..OpenOptions::default()
        };
        let image = open(bytes, &options).unwrap();
        assert_eq!(image.format(), format);
        assert_eq!(image.container(), container);
        assert_eq!(image.offset(), offset as u64);
        let reader = image.reader();
        let node = resolve(reader.fs(), b"file", FollowLast::Yes, reader.limits()).unwrap();
        assert_eq!(&reader.read(node, 0, 4096).unwrap()[..], TEXT);
    }
}

#[test]
fn found_in_each_container() {
    let elf_len = executable().len();
    let images = [("romfs", Some(romfs())), ("squashfs", squashfs())];
    for (format, image) in images {
        let Some(image) = image else { continue };
        check(&image, format, None, 0);
        check(
            &appimage(&image),
            format,
            Some(Container::AppImage),
            elf_len,
        );
        let plain = [executable(), image.clone()].concat();
        check(&plain, format, Some(Container::Elf), elf_len);
        check(&sif(&image, 1), format, Some(Container::Sif), 36_864);
        check(&sif(&image, 4), format, Some(Container::Sif), 36_864);
    }
}

#[test]
fn stripped_executables_carry_images_too() {
    let Some(strip) = require::program("strip") else {
        return;
    };
    let dir = temp_dir("payload");
    let path = dir.path().join("stripped");
    fs::write(&path, executable()).unwrap();
    let status = Command::new(strip).arg(&path).status().unwrap();
    assert!(status.success());
    let mut bytes = fs::read(&path).unwrap();
    let len = bytes.len();
    bytes.extend_from_slice(&romfs());
    check(&bytes, "romfs", Some(Container::Elf), len);
}

#[test]
fn an_offset_wins() {
    let inner = romfs();
    let outer = appimage(&inner);
    let offset = (outer.len() - inner.len()) as u64;
    let with = |offset, size| OpenOptions {
        offset,
        size,
        ..OpenOptions::default()
    };
    let image = open(&outer, &with(offset, None)).unwrap();
    assert_eq!((image.container(), image.offset()), (None, offset));
    // An offset names the image itself, so an AppImage there is not searched.
    let nested = [vec![0; 512], outer.clone()].concat();
    let error = open(&nested, &with(512, None)).unwrap_err().to_string();
    let expected = "not an image of a known format: an ELF file at offset 512";
    assert_eq!(error, expected);
    let error = open(&outer, &with(offset + 16, None)).unwrap_err();
    assert!(matches!(error, Error::UnknownFormat { .. }), "{error}");
    let expected = format!(" at offset {}", offset + 16);
    assert!(error.to_string().ends_with(&expected), "{error}");
    // A size bounds the search.
    let cut = open(&outer, &with(0, Some(offset)))
        .unwrap_err()
        .to_string();
    assert!(
        cut.contains("an ELF file without an image behind it"),
        "{cut}"
    );
    let cut = open(&outer, &with(0, Some(offset + 64))).unwrap_err();
    assert!(matches!(cut, Error::Corrupt(_)), "{cut}");
}

#[test]
fn what_is_not_there_is_named() {
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0\x02\x03\x2b\x49\xad\x28\x01\0\xc7\xa7\x8b\x3b\x04\0\0\0";
    let iso = {
        let mut bytes = appimage(&romfs());
        bytes[10] = 1;
        bytes
    };
    let damaged = {
        let mut bytes = appimage(&romfs());
        bytes[58] = 7;
        bytes
    };
    for (bytes, expected) in [
        (executable(), "an ELF file without an image behind it".to_string()),
        (
            appimage(gzip),
            "not a tar image: a gzip file that holds no archive; decompress it first".to_string(),
        ),
        (iso, "an AppImage of type 1, which is an ISO 9660 image".to_string()),
        (
            damaged,
            "damaged ELF image: offset 0x0: entries of the table of sections are 7 bytes long, not 64"
                .to_string(),
        ),
        (sif(&romfs(), 2), "a SIF file whose partition is ext3".to_string()),
        (
            sif(&romfs(), 5),
            "a SIF file whose partition is an encrypted SquashFS image".to_string(),
        ),
        (
            sif(gzip, 1),
            "not a tar image: a gzip file that holds no archive; decompress it first".to_string(),
        ),
    ] {
        let error = open(&bytes, &OpenOptions::default()).unwrap_err();
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
}

/// Returns an empty zip archive, which is an end record only.
fn zip() -> Vec<u8> {
    let mut bytes = b"PK\x05\x06".to_vec();
    bytes.resize(22, 0);
    bytes
}

#[test]
fn archives_behind_other_bytes_are_found_by_their_end() {
    for (name, before) in [
        ("script", b"#!/bin/sh\n".to_vec()),
        ("executable", executable()),
    ] {
        let len = before.len();
        let bytes = [before, zip()].concat();
        let source = Arc::new(MemorySource::new(bytes));
        let image = Image::from_source(source, &OpenOptions::default()).unwrap();
        assert_eq!((image.format(), image.container()), ("zip", None), "{name}");
        let details = &image.reader().fs().volume().details;
        assert!(
            details.contains(&("bytes before the archive", len.to_string())),
            "{details:?}"
        );
    }
    // With a format name, the end of the file is not searched.
    let bytes = [&b"other"[..], &zip()].concat();
    let options = OpenOptions {
        format: Some("romfs".to_string()),
        ..OpenOptions::default()
    };
    let opened = Image::from_source(Arc::new(MemorySource::new(bytes)), &options);
    assert!(opened.is_err());
}
