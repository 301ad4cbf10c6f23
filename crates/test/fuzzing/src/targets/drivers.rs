//! Drivers of images: whole images, and the parts with separate parsers.

use std::fs;

use forerun::vfs::Error;
use forerun_erofs::fuzzing as erofs;
use forerun_romfs::fuzzing as romfs;
use forerun_squashfs::fuzzing as squashfs;
use forerun_testkit::mutate::is_located;
use forerun_testkit::packed::packed_file;

use super::{Made, named};
use crate::images::read_all;

/// SquashFS images of versions 1.x to 3.x.
const OLD_SQUASHFS: &str = "crates/formats/squashfs/tests/it/golden/old.tar.zst";
const EROFS_SUPERBLOCK: std::ops::Range<usize> = 1024..1152;
/// Length of a romfs header with a name of 255 bytes.
const ROMFS_HEADER: usize = 272;

/// Runs the whole driver on an image, then reads the image as a user does.
pub fn walk(format: &str, driver: fn(&[u8]) -> Vec<Error>, bytes: &[u8]) {
    located(driver, bytes);
    read_all(format, bytes);
}

/// Runs a parser. Each error must name a location, a node or a limit.
pub fn located(parse: fn(&[u8]) -> Vec<Error>, bytes: &[u8]) {
    for error in parse(bytes) {
        assert!(is_located(&error), "{error}");
    }
}

pub fn heads(images: Made, len: usize) -> Made {
    let mut images = images?;
    for (_, image) in &mut images {
        image.truncate(len);
    }
    Ok(images)
}

pub fn romfs_walk(bytes: &[u8]) {
    located(romfs::walk, bytes);
    read_all("romfs", &romfs::with_checksum(bytes));
}

pub fn romfs_headers() -> Made {
    let mut seeds = Vec::new();
    for (name, image) in romfs::seeds()? {
        for at in (0x20..image.len()).step_by(16).take(64) {
            let header = image[at..image.len().min(at + ROMFS_HEADER)].to_vec();
            seeds.push((format!("{name}-{at:#x}"), header));
        }
    }
    Ok(seeds)
}

pub fn squashfs_images() -> Made {
    let old = [
        "gzip-1.0-little",
        "gzip-2.0-big",
        "gzip-3.0-little",
        "lzma_parameters-3.0-hsqs",
    ];
    let old = old.map(|name| (name, packed_file(OLD_SQUASHFS, name)));
    Ok(named(squashfs::seeds()?.into_iter().chain(old)))
}

/// Images, whole and without the last tables.
pub fn cut_squashfs_images() -> Made {
    let mut seeds = squashfs_images()?;
    for (name, image) in squashfs_images()? {
        let cut = image[..image.len() * 4 / 5].to_vec();
        seeds.push((format!("{name}-cut"), cut));
    }
    Ok(seeds)
}

pub fn squashfs_xattrs() -> Made {
    let parts = squashfs::Parts::everything();
    super::one([parts.sets, parts.pairs].concat())
}

/// Images of forerun's writer, and stored test images with features that the writer does not use.
pub fn erofs_images() -> Made {
    let mut seeds = named(erofs::seeds()?);
    let dir = forerun_testkit::workspace_root().join("crates/formats/erofs/tests/it/golden");
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "img") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let mut image = fs::read(&path)?;
            // With a checksum, every change to the first block would be detected.
            image[EROFS_SUPERBLOCK.start + 8] &= !1;
            seeds.push((name.into_owned(), image));
        }
    }
    Ok(seeds)
}

pub fn erofs_superblocks() -> Made {
    let seeds = erofs::seeds()?.into_iter();
    Ok(named(seeds.map(|(name, image)| {
        (name, image[EROFS_SUPERBLOCK].to_vec())
    })))
}
