//! Volumes as they are before the measured work, and the pieces of that work.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};

use crate::process;

/// Length of the volume of the large file to be removed: of an SD card.
const LARGE_VOLUME: u64 = 256_000_000_000;
/// Length of the others.
const VOLUME: u64 = 8 << 30;
/// Length of the large file.
const BIG: u64 = 4 << 30;
const CLUSTER: u64 = 128 << 10;
/// Length of the file that is written and read.
const FILE: u64 = 1_000_000_000;
const PIECE: usize = 1 << 20;
const DIRS: u32 = 100;
const FILES_EACH: u32 = 100;
const FILE_LEN: usize = 4000;

/// Describes the volume for people.
pub fn text() -> String {
    format!(
        "{} files of {FILE_LEN} bytes in {DIRS} directories; clusters of {} KiB",
        DIRS * FILES_EACH,
        CLUSTER >> 10
    )
}

/// Makes an empty volume.
pub fn make(image: &Path, large: bool) -> Result<()> {
    let len = if large { LARGE_VOLUME } else { VOLUME };
    let file = File::create(image).with_context(|| image.display().to_string())?;
    file.set_len(len)?;
    let mut mkfs = Command::new("mkfs.exfat");
    process::output(mkfs.args(["-c", "128K"]).arg(image)).map(|_| ())
}

/// Creates a file of 4 GB that takes 32,768 clusters, and writes nothing in it.
pub fn big_file(mount: &Path, in_pieces: bool) -> Result<()> {
    let big = File::create(mount.join("big"))?;
    if !in_pieces {
        return Ok(fallocate(&big, FallocateFlags::empty(), 0, BIG)?);
    }
    let other = File::create(mount.join("other"))?;
    for n in 0..BIG / CLUSTER {
        fallocate(&big, FallocateFlags::empty(), n * CLUSTER, CLUSTER)?;
        fallocate(&other, FallocateFlags::empty(), n * CLUSTER, CLUSTER)?;
    }
    Ok(())
}

/// Writes the file and makes it durable.
pub fn write_file(mount: &Path) -> Result<String> {
    let mut file = File::create(mount.join("file"))?;
    let piece: Vec<u8> = (0..PIECE)
        .map(|n| u8::try_from(n % 251))
        .collect::<Result<_, _>>()?;
    let mut left = FILE;
    while left > 0 {
        let now = usize::try_from(left.min(u64::try_from(PIECE)?))?;
        file.write_all(&piece[..now])?;
        left -= u64::try_from(now)?;
    }
    file.sync_all()?;
    Ok(format!("{} bytes", file.metadata()?.len()))
}

/// Reads it.
pub fn read_file(mount: &Path) -> Result<String> {
    let mut file = File::open(mount.join("file"))?;
    let mut piece = vec![0; PIECE];
    let (mut len, mut sum) = (0, 0_u64);
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            break;
        }
        len += u64::try_from(count)?;
        sum = sum.wrapping_mul(31).wrapping_add(piece[count / 2].into());
    }
    ensure!(len == FILE, "{len} bytes, not {FILE}");
    // Reads of different drivers end at different places.
    Ok(format!(
        "{len} bytes{}",
        if sum == 0 { ", all zeros" } else { "" }
    ))
}

/// Makes the tree.
pub fn make_tree(mount: &Path) -> Result<String> {
    let tree = mount.join("tree");
    fs::create_dir(&tree)?;
    let content = vec![0x5A; FILE_LEN];
    for dir in 0..DIRS {
        let dir = tree.join(format!("directory {dir}"));
        fs::create_dir(&dir)?;
        for n in 0..FILES_EACH {
            fs::write(dir.join(format!("file {n:04}.txt")), &content)?;
        }
    }
    Ok(format!("{} files", DIRS * FILES_EACH))
}

/// Removes it, as `rm -r` does: what is listed, in its order. `after_each` follows each removal.
pub fn remove_tree(mount: &Path, after_each: &dyn Fn() -> Result<()>) -> Result<String> {
    let tree = mount.join("tree");
    let mut files = 0;
    for dir in fs::read_dir(&tree)?.collect::<Result<Vec<_>, _>>()? {
        for file in fs::read_dir(dir.path())?.collect::<Result<Vec<_>, _>>()? {
            fs::remove_file(file.path())?;
            after_each()?;
            files += 1;
        }
        fs::remove_dir(dir.path())?;
        after_each()?;
    }
    fs::remove_dir(&tree)?;
    after_each()?;
    Ok(format!("{files} files"))
}
