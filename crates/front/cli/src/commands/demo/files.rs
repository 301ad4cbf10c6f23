//! The files that the demo packs: real ones, so that the measurements are realistic.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use forerun::build::is_in_memory;
use md5::{Digest, Md5};

use super::measure::hex;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::size;

/// Where large files are found on most machines. The last is always there.
const PLACES: &[&str] = &[
    "/usr/lib",
    "/usr/local/lib",
    "/opt",
    "/usr/bin",
    "/proc/self/exe",
];
/// How deep below these is searched, and in how many directories.
const DEPTH: usize = 4;
const DIRECTORIES: usize = 4000;
/// Bytes of the smallest file that is worth opening.
const SMALLEST: u64 = 256 << 10;
const CHUNK: usize = 1 << 20;

/// The source of the demo's image.
pub struct Made {
    /// md5 of the large file.
    pub md5: String,
    /// The contents of the large file, for the user.
    pub source: String,
}

/// Returns `TMPDIR`, or `/var/tmp` where `TMPDIR` is in memory, since there would be no cold caches to
/// measure.
pub fn default_dir() -> PathBuf {
    let dir = std::env::temp_dir();
    if is_in_memory(&dir) && Path::new("/var/tmp").is_dir() {
        PathBuf::from("/var/tmp")
    } else {
        dir
    }
}

/// Fails early where the files and the image will not fit.
pub fn check_space(dir: &Path, size: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(dir)
        .map_err(|error| Failure::output(&error.into()).of(dir.display()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let needed = size.saturating_mul(2).saturating_add(16 << 20);
    if free >= needed {
        return Ok(());
    }
    let message = format!("{} free, {} needed", size::human(free), size::human(needed));
    let failure = Failure::new(Exit::Output, "output", message).of(dir.display());
    Err(failure.hint("choose another place with --dir, or a smaller file with --size-mb"))
}

/// Makes the directory to be packed: one file of `size` bytes, and a few small ones of every kind.
pub fn make(dir: &Path, big: &str, size: u64) -> Result<Made> {
    let failed = |error: io::Error| Failure::output(&error).of(dir.display());
    fs::create_dir_all(dir.join("etc")).map_err(failed)?;
    fs::create_dir_all(dir.join("docs")).map_err(failed)?;
    let made = assemble(&dir.join(big), size).map_err(failed)?;
    small(dir, big).map_err(failed)?;
    Ok(made)
}

fn small(dir: &Path, big: &str) -> io::Result<()> {
    fs::write(
        dir.join("docs/readme.txt"),
        "Made by forerun demo from files of this machine.\n",
    )?;
    for name in ["os-release", "services", "protocols"] {
        // What this machine does not have is not shown.
        if let Ok(text) = fs::read(Path::new("/etc").join(name)) {
            fs::write(dir.join("etc").join(name), text)?;
        }
    }
    symlink(format!("../{big}"), dir.join("docs/latest"))?;
    fs::hard_link(dir.join("docs/readme.txt"), dir.join("readme.txt"))
}

/// Assembles one file of exactly `size` bytes from the machine's large files, one after the other. It
/// begins again with the first where they do not suffice.
fn assemble(path: &Path, size: u64) -> io::Result<Made> {
    let candidates = large_files(size);
    let mut out = File::create(path)?;
    let mut md5 = Md5::new();
    let mut left = size;
    let mut used = 0_usize;
    let mut chunk = vec![0; CHUNK];
    while left > 0 {
        let before = left;
        for candidate in &candidates {
            let Ok(mut input) = File::open(candidate) else {
                continue;
            };
            used += 1;
            while left > 0 {
                let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                let got = input.read(chunk.get_mut(..want).unwrap_or_default())?;
                let bytes = chunk.get(..got).unwrap_or_default();
                if bytes.is_empty() {
                    break;
                }
                out.write_all(bytes)?;
                md5.update(bytes);
                left = left.saturating_sub(u64::try_from(got).unwrap_or(left));
            }
            if left == 0 {
                break;
            }
        }
        if left == before {
            let message = "no file of this machine can be read";
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
    }
    Ok(Made {
        md5: hex(&md5.finalize()),
        source: format!("{used} programs and libraries, one after the other"),
    })
}

/// Finds files to be put together, until they make up `enough`.
fn large_files(enough: u64) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut bytes = 0_u64;
    let mut visited = 0;
    let mut pending: Vec<_> = PLACES
        .iter()
        .rev()
        .map(|place| (PathBuf::from(place), 0))
        .collect();
    while let Some((path, depth)) = pending.pop() {
        if bytes >= enough || visited >= DIRECTORIES {
            break;
        }
        let metadata = if depth == 0 {
            path.metadata()
        } else {
            path.symlink_metadata()
        };
        let Ok(metadata) = metadata else { continue };
        if metadata.is_file() && metadata.len() >= SMALLEST {
            bytes = bytes.saturating_add(metadata.len());
            found.push(path);
        } else if metadata.is_dir() && depth < DEPTH {
            visited += 1;
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let mut below: Vec<_> = entries.map(|entry| (entry.path(), depth + 1)).collect();
            below.sort();
            pending.extend(below.into_iter().rev());
        }
    }
    if found.is_empty() {
        found.push(PathBuf::from("/proc/self/exe"));
    }
    found
}
