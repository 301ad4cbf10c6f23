//! Writes the seed corpus of each target into `fuzz/corpus`: `cargo run --example make_seeds` in
//! `fuzz`. The seeds come from the writers, so that they follow the formats; none is kept in the tree.

use std::error::Error;
use std::fs;
use std::io;
use std::path::Path;

use tar::EntryType;

/// Bytes that a superblock's parser looks at.
const HEAD: usize = 512;
/// Bytes that a header with a name of 255 bytes takes.
const HEADER: usize = 272;

fn main() -> Result<(), Box<dyn Error>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut count = 0;
    let mut put = |target: &str, name: &str, bytes: &[u8]| {
        let dir = corpus.join(target);
        fs::create_dir_all(&dir)?;
        count += 1;
        fs::write(dir.join(name), bytes)
    };
    for (name, image) in forerun_romfs::fuzzing::seeds()? {
        put("romfs_walk", name, &image)?;
        put("romfs_superblock", name, &image[..image.len().min(HEAD)])?;
        for at in (0x20..image.len()).step_by(16).take(64) {
            let header = &image[at..image.len().min(at + HEADER)];
            put("romfs_header", &format!("{name}-{at:#x}"), header)?;
        }
    }
    for (name, image) in forerun_squashfs::fuzzing::seeds()? {
        put("squashfs_walk", name, &image)?;
        put("squashfs_superblock", name, &image[..image.len().min(96)])?;
    }
    let parts = forerun_squashfs::fuzzing::Parts::everything();
    put("squashfs_inodes", "everything", &parts.inodes)?;
    put("squashfs_directories", "everything", &parts.listings)?;
    put(
        "squashfs_xattrs",
        "everything",
        &[parts.sets, parts.pairs].concat(),
    )?;
    for (name, image) in forerun_erofs::fuzzing::seeds()? {
        put("erofs_walk", name, &image)?;
        put("erofs_superblock", name, &image[1024..1152])?;
    }
    for (name, mut image) in golden()? {
        // Without the checksum: or no change to the first block would get past it.
        image[1024 + 8] &= !1;
        put("erofs_walk", &name, &image)?;
    }
    let image = forerun_erofs::fuzzing::image();
    let (inodes, root, xattrs) = forerun_erofs::fuzzing::PIECES;
    put("erofs_inodes", "everything", &image[inodes])?;
    put("erofs_directories", "everything", &image[root])?;
    put("erofs_xattrs", "everything", &image[xattrs])?;
    let (manifest, config) = (
        forerun_remote::registry::fuzzing::manifest(),
        forerun_remote::registry::fuzzing::config(),
    );
    put("remote_documents", "manifest", &manifest)?;
    put("remote_documents", "config", &config)?;
    for (number, text) in (0..).zip(forerun_remote::registry::fuzzing::TEXTS) {
        put("remote_texts", &format!("text-{number}"), text.as_bytes())?;
    }
    let image = forerun_exfat::fuzzing::image();
    put("exfat_walk", "everything", &image)?;
    let root = forerun_exfat::fuzzing::cluster(forerun_exfat::fuzzing::ROOT);
    for slot in forerun_exfat::fuzzing::SLOTS {
        let at = root + slot * 32;
        put("exfat_parts", &format!("set-{slot}"), &image[at..at + 96])?;
    }
    for what in 0..10_u8 {
        // Four of a kind, in the root, on the first names.
        let operations = (0..4).flat_map(|which| [what, 0, which, 9]);
        let input: Vec<u8> = std::iter::once(16).chain(operations).collect();
        let name = format!("operation-{what}");
        put("exfat_operations", &name, &[input, image.clone()].concat())?;
    }
    for (name, image) in forerun_composefs::fuzzing::seeds()? {
        put("composefs_walk", name, &image)?;
    }
    for (name, bytes) in forerun_composefs::fuzzing::attribute_seeds() {
        put("composefs_attributes", name, &bytes)?;
    }
    put("tar_tree", "everything", &archive()?)?;
    println!("{count} seeds in {}", corpus.display());
    Ok(())
}

/// The EROFS images that are kept for tests: of features that the writer does not use.
fn golden() -> io::Result<Vec<(String, Vec<u8>)>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/forerun-erofs/tests/golden");
    let mut images = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "img") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            images.push((name.into_owned(), fs::read(&path)?));
        }
    }
    Ok(images)
}

/// One entry of each type.
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
    // A name over 100 bytes takes an extension of the format.
    let long = "a long name ".repeat(10);
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    header.set_mode(0o644);
    archive.append_data(&mut header, long, &b"bytes"[..])?;
    archive.into_inner()
}
