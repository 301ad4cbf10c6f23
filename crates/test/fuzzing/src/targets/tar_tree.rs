//! Archives as inputs of images. Each is an error, or a tree from which a valid image can be made.

use std::io;
use std::sync::Arc;

use forerun::build::{BuildError, ImageOptions, RomfsOptions, from_image};
use forerun::{Image, MemorySource, Observer, OpenOptions, Writer};
use forerun_romfs::fuzzing;
use tar::EntryType;

use super::{Made, one};

/// Reads an archive. If it is valid, writes a romfs image of it and checks the image.
///
/// # Panics
/// If the image is invalid, or the writer fails for another reason than limits of the format.
pub fn run(bytes: &[u8]) {
    let mut limits = fuzzing::limits();
    limits.depth = 16;
    limits.tree_entries = 1 << 8;
    limits.total_bytes = 1 << 20;
    let options = OpenOptions::new().format("tar").limits(limits);
    let source = Arc::new(MemorySource::new(bytes.to_vec()));
    let Ok(archive) = Image::from_source(source, &options) else {
        return;
    };
    let Ok(tree) = from_image(archive.reader(), &ImageOptions::default()) else {
        return;
    };
    let mut image = Vec::new();
    let writer = Writer::Romfs(RomfsOptions::default());
    let written = writer.write(&tree, &mut image, &Arc::new(Observer::default()));
    if written.is_ok() {
        assert!(fuzzing::walk(&image).is_empty());
    } else {
        // Long names and large device numbers. The archive is in memory, so nothing else fails.
        assert!(
            matches!(written, Err(BuildError::Format { .. })),
            "{written:?}"
        );
        assert!(image.is_empty());
    }
}

pub fn seeds() -> Made {
    one(archive()?)
}

/// Builds an archive with one entry of each type.
fn archive() -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, kind, link) in [
        ("dir/", EntryType::Directory, ""),
        ("dir/file", EntryType::Regular, ""),
        ("dir/link", EntryType::Symlink, "file"),
        ("hard", EntryType::Link, "dir/file"),
        ("block", EntryType::Block, ""),
        ("char", EntryType::Char, ""),
        ("fifo", EntryType::Fifo, ""),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_path(path)?;
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_device_major(7)?;
        header.set_device_minor(3)?;
        header.set_mtime(1);
        if !link.is_empty() {
            header.set_link_name(link)?;
        }
        let content: &[u8] = if kind == EntryType::Regular {
            b"bytes"
        } else {
            b""
        };
        header.set_size(content.len().try_into().unwrap_or(0));
        header.set_cksum();
        archive.append(&header, content)?;
    }
    // A name over 100 bytes needs an extension of the format.
    let long = "a long name ".repeat(10);
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    archive.append_data(&mut header, long, &b"bytes"[..])?;
    archive.into_inner()
}
