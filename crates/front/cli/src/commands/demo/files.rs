//! The file that the demo packs: put together from real ones, so that the measurements are realistic.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun::build::{Content, ImageOutput, NewNode, NodeKind, Tree};
use forerun::{Observer, Writer};
use md5::{Digest, Md5};

use super::measure::hex;
use crate::error::{Failure, Result};

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

/// Name of the file in the images.
pub const FILE: &str = "file";

/// A file of programs and libraries of this machine.
pub struct Data {
    path: PathBuf,
    file: Arc<File>,
}

impl Data {
    /// Makes a file of exactly `size` bytes.
    pub fn make(path: PathBuf, size: u64) -> Result<Self> {
        let failed = |error: io::Error| Failure::output(&error).of(path.display());
        assemble(&path, size).map_err(failed)?;
        let file = File::open(&path).map_err(failed)?;
        Ok(Self {
            file: Arc::new(file),
            path,
        })
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes an image at `path` of one file, which has the first `len` bytes.
    pub fn pack(&self, writer: &Writer, path: &Path, len: u64) -> Result<()> {
        let content = Content::Part {
            file: Arc::clone(&self.file),
            offset: 0,
        };
        let mut tree = Tree::default();
        let node = NewNode::new(NodeKind::File { len, content }, 0o644);
        tree.add(Tree::ROOT, FILE.as_bytes(), node)?;
        write(writer, &tree, path)
    }

    /// Computes the md5 of the first `len` bytes.
    pub fn md5(&self, len: u64) -> Result<String> {
        let failed = |error: io::Error| Failure::source(&error).of(self.path.display());
        let mut input = File::open(&self.path).map_err(failed)?.take(len);
        let mut md5 = Md5::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            let got = input.read(&mut chunk).map_err(failed)?;
            match chunk.get(..got) {
                None | Some([]) => return Ok(hex(&md5.finalize())),
                Some(bytes) => md5.update(bytes),
            }
        }
    }
}

/// Writes an image of `tree` to a new file.
pub fn write(writer: &Writer, tree: &Tree, path: &Path) -> Result<()> {
    let failed = |error: io::Error| Failure::output(&error).of(path.display());
    let mut file = File::create(path).map_err(failed)?;
    let out: &mut dyn ImageOutput = &mut file;
    writer.write(tree, out, &Arc::new(Observer::default()))?;
    file.sync_all().map_err(failed)
}

/// Assembles one file of exactly `size` bytes from the machine's large files, one after the other. It
/// begins again with the first where they do not suffice.
fn assemble(path: &Path, size: u64) -> io::Result<()> {
    let candidates = large_files(size);
    let mut out = File::create(path)?;
    let mut left = size;
    let mut chunk = vec![0; CHUNK];
    while left > 0 {
        let before = left;
        for candidate in &candidates {
            let Ok(mut input) = File::open(candidate) else {
                continue;
            };
            while left > 0 {
                let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
                let got = input.read(chunk.get_mut(..want).unwrap_or_default())?;
                let bytes = chunk.get(..got).unwrap_or_default();
                if bytes.is_empty() {
                    break;
                }
                out.write_all(bytes)?;
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
    Ok(())
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
