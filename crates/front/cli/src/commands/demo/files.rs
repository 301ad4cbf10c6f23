//! The file that the demo packs: concatenated from real files, so that the measurements are
//! realistic.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun::build::{Content, ImageOutput, NewNode, NodeKind, Tree};
use forerun::{Observer, Writer};

use crate::error::{Failure, Result};

/// Directories that contain large files on most machines.
const PLACES: [&str; 4] = ["/usr/lib", "/usr/local/lib", "/opt", "/usr/bin"];
/// Smaller files are skipped.
const SMALLEST: u64 = 256 << 10;

pub const FILE: &str = "file";

/// A file made of programs and libraries of this machine.
pub struct Data {
    pub file: Arc<File>,
    pub len: u64,
}

impl Data {
    /// Makes a file of exactly `len` bytes.
    pub fn make(path: &Path, len: u64) -> Result<Self> {
        let made = assemble(path, len).and_then(|()| File::open(path));
        let file = made.map_err(|error| Failure::output(&error).of(path.display()))?;
        Ok(Self {
            file: Arc::new(file),
            len,
        })
    }

    /// Makes an image at `path` with a file of the first `len` bytes and, if `more` is not 0,
    /// another file of `more` bytes.
    pub fn pack(&self, writer: &Writer, path: &Path, len: u64, more: u64) -> Result<()> {
        let mut tree = Tree::default();
        for (name, offset, len) in [(FILE, 0, len), ("more", len, more)] {
            if len > 0 {
                let content = Content::Part {
                    file: Arc::clone(&self.file),
                    offset,
                };
                let node = NewNode::new(NodeKind::File { len, content }, 0o644);
                tree.add(Tree::ROOT, name.as_bytes(), node)?;
            }
        }
        write(writer, &tree, path)
    }
}

pub fn write(writer: &Writer, tree: &Tree, path: &Path) -> Result<()> {
    let failed = |error: io::Error| Failure::output(&error).of(path.display());
    let mut file = File::create(path).map_err(failed)?;
    let out: &mut dyn ImageOutput = &mut file;
    writer.write(tree, out, &Arc::new(Observer::default()))?;
    file.sync_all().map_err(failed)
}

/// Concatenates large files of the machine. If they do not suffice, repeats this program.
fn assemble(path: &Path, len: u64) -> io::Result<()> {
    let mut out = File::create(path)?;
    let mut left = len;
    let mut pending: Vec<PathBuf> = PLACES.iter().rev().map(PathBuf::from).collect();
    while let Some(path) = pending.pop().filter(|_| left > 0) {
        let Ok(metadata) = path.symlink_metadata() else {
            continue;
        };
        if metadata.is_dir() {
            let entries = fs::read_dir(&path).into_iter().flatten().flatten();
            let mut below: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            below.sort_by(|a, b| b.cmp(a));
            pending.extend(below);
        } else if metadata.is_file() && metadata.len() >= SMALLEST {
            // Some files are readable by root only.
            if let Ok(input) = File::open(&path) {
                left -= io::copy(&mut input.take(left), &mut out)?;
            }
        }
    }
    while left > 0 {
        left -= io::copy(&mut File::open("/proc/self/exe")?.take(left), &mut out)?;
    }
    Ok(())
}
