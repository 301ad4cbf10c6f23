//! The five images: one tree, with a large file in it, in four forms of two formats and on a volume.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use forerun_testkit::rng::Rng;

use crate::bench::generated;
use crate::process;

/// The names of the images.
pub const NAMES: [&str; 5] = [
    "squashfs-gzip",
    "squashfs-zstd",
    "erofs",
    "erofs-lz4",
    "exfat",
];
/// The name of the largest file.
pub const LARGEST: &str = "large";

const OPTIONS: [&[&str]; 5] = [
    &["--format", "squashfs", "--compressor", "gzip"],
    &["--format", "squashfs", "--compressor", "zstd"],
    &["--format", "erofs"],
    &["--format", "erofs", "--compressor", "lz4"],
    &["--format", "exfat"],
];
/// Long enough that the start of processes is no part of the ratios.
const LARGE: u64 = 200 << 20;
const DIRS: u64 = 300;
const FILES: u64 = 5_000;

/// Makes the images that are not there. Returns their names and paths.
pub fn make(root: &Path, program: &Path, dir: &Path) -> Result<Vec<(&'static str, PathBuf)>> {
    let tree = dir.join("tree");
    if !tree.exists() {
        let new = dir.join("tree.new");
        let _there_may_be_none = fs::remove_dir_all(&new);
        fs::create_dir_all(&new).with_context(|| new.display().to_string())?;
        generated::populate(root, &new, DIRS, FILES)?;
        fs::write(new.join(LARGEST), large())?;
        fs::rename(&new, &tree)?;
    }
    let mut images = Vec::new();
    for (name, options) in NAMES.into_iter().zip(OPTIONS) {
        let image = dir.join(name);
        if !image.exists() {
            eprintln!("making {}", image.display());
            let mut pack = Command::new(program);
            pack.args(["pack", "--quiet", "--force"]).args(options);
            let new = dir.join("image.new");
            process::output(pack.arg(&tree).arg(&new))?;
            fs::rename(&new, &image)?;
        }
        images.push((name, image));
    }
    Ok(images)
}

/// Returns bytes that compress to about half.
fn large() -> Vec<u8> {
    let mut rng = Rng::new(7);
    let len = usize::try_from(LARGE).unwrap_or(0);
    let mut bytes = Vec::with_capacity(len + 64);
    while bytes.len() < len {
        let noise = rng.below(u64::MAX).to_le_bytes();
        bytes.extend_from_slice(&noise);
        bytes.extend_from_slice(b"as plain");
    }
    bytes.truncate(len);
    bytes
}
