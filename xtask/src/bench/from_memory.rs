//! A tree that is written from memory: what an extraction takes at the least.
//!
//! Nothing is read, and no block is decoded, unless an image is given. What is left is what the filesystem takes to make the files, two at a time, with the
//! calls that no extraction can do without: one to create a file, one to write it, one to set its time.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use super::decoded::{Decoder, Frames};
use super::work::in_threads;
use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, futimens, openat};

const NEW: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::CLOEXEC);

/// A tree of directories and regular files, read whole.
pub struct TreeInMemory(Vec<Directory>);

/// A directory: parents come before their children.
struct Directory {
    /// Its path below the root.
    path: PathBuf,
    files: Vec<(OsString, Vec<u8>)>,
}

impl TreeInMemory {
    /// Reads a tree. Links and special files are left out.
    pub fn read(root: &Path) -> Result<Self> {
        let mut directories = Vec::new();
        let mut left = vec![PathBuf::new()];
        while let Some(path) = left.pop() {
            let mut files = Vec::new();
            for entry in fs::read_dir(root.join(&path))? {
                let entry = entry?;
                let kind = entry.file_type()?;
                if kind.is_dir() {
                    left.push(path.join(entry.file_name()));
                } else if kind.is_file() {
                    files.push((entry.file_name(), fs::read(entry.path())?));
                }
            }
            files.sort();
            directories.push(Directory { path, files });
        }
        Ok(Self(directories))
    }

    /// Writes the tree to `out`, which is made. With `frames`, threads decode as many bytes of them as they write.
    pub fn write(&self, out: &Path, frames: Option<&Frames>) -> Result<()> {
        for directory in &self.0 {
            fs::create_dir(out.join(&directory.path))?;
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<()> {
            let mut decoding = frames.map(Decoding::new).transpose()?;
            while let Some(directory) = self.0.get(next.fetch_add(1, Ordering::Relaxed)) {
                let path = out.join(&directory.path);
                directory
                    .fill(&path, decoding.as_mut())
                    .with_context(|| path.display().to_string())?;
            }
            Ok(())
        };
        in_threads(work).map(drop)
    }
}

/// The share of a thread in the decoding.
struct Decoding<'f> {
    decoder: Decoder<'f>,
    /// Bytes that were decoded and not yet written.
    ahead: usize,
}

impl<'f> Decoding<'f> {
    fn new(frames: &'f Frames) -> Result<Self> {
        Ok(Self {
            decoder: Decoder::new(frames)?,
            ahead: 0,
        })
    }

    /// Decodes so many bytes, as far as there are.
    fn decode(&mut self, bytes: usize) -> Result<()> {
        while self.ahead < bytes {
            match self.decoder.next()? {
                Some((_, block)) => self.ahead += block.len(),
                None => self.ahead = bytes,
            }
        }
        self.ahead -= bytes;
        Ok(())
    }
}

impl Directory {
    fn fill(&self, path: &Path, mut decoding: Option<&mut Decoding<'_>>) -> Result<()> {
        let dir = File::open(path)?;
        let omitted = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
        let times = Timestamps {
            last_access: omitted,
            last_modification: Timespec {
                tv_sec: 1,
                tv_nsec: 0,
            },
        };
        for (name, bytes) in &self.files {
            if let Some(decoding) = decoding.as_deref_mut() {
                decoding.decode(bytes.len())?;
            }
            let mut file = File::from(openat(&dir, name, NEW, Mode::from_raw_mode(0o644))?);
            file.write_all(bytes)?;
            futimens(&file, &times)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tree::count;

    #[test]
    fn a_tree_is_written_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, out) = (dir.path().join("tree"), dir.path().join("out"));
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::create_dir_all(tree.join("empty")).unwrap();
        for (name, len) in [("top", 0), ("a/one", 5), ("a/b/two", 300_000)] {
            fs::write(tree.join(name), vec![7; len]).unwrap();
        }
        TreeInMemory::read(&tree)
            .unwrap()
            .write(&out, None)
            .unwrap();
        assert_eq!(count(&out).unwrap(), count(&tree).unwrap());
        assert_eq!(fs::read(out.join("a/b/two")).unwrap(), vec![7; 300_000]);
        assert!(out.join("empty").is_dir());
    }
}
