//! Digests of contents, so that drivers that read something else are noticed.
//!
//! The digest of a tree covers paths, types, contents and targets of links. Formats and drivers differ in
//! what they show of owners, modes and times, and extraction leaves devices out, so these are not in it.
//! It does not depend on the order in which a driver lists a directory.

use std::fs::{self, File, FileType};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// The type of an entry that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory, without contents.
    Directory,
    /// A file, with the digest of its contents.
    File,
    /// A symbolic link, with its target.
    Link,
}

/// The digest of a tree, entry by entry.
#[derive(Debug, Default)]
pub struct TreeDigest {
    /// The sum of the digests of all entries, in four parts.
    sum: [u64; 4],
    entries: u64,
}

impl TreeDigest {
    /// Adds an entry with its path below the root.
    pub fn add(&mut self, path: &[u8], kind: Kind, contents: &[u8]) {
        let mut hasher = blake3::Hasher::new();
        let kind = match kind {
            Kind::Directory => b'd',
            Kind::File => b'f',
            Kind::Link => b'l',
        };
        hasher
            .update(&[kind])
            .update(path)
            .update(&[0])
            .update(contents);
        let digest = hasher.finalize();
        for (sum, part) in self.sum.iter_mut().zip(digest.as_bytes().chunks_exact(8)) {
            let part = part.first_chunk().copied().unwrap_or_default();
            *sum = sum.wrapping_add(u64::from_le_bytes(part));
        }
        self.entries += 1;
    }

    /// Formats the digest and the number of entries.
    pub fn text(&self) -> String {
        let [a, b, c, d] = self.sum;
        format!("{a:016x}{b:016x}{c:016x}{d:016x} {} entries", self.entries)
    }
}

/// Computes the digest of a stream, of `most` bytes of it at the most.
pub fn of_stream(stream: &mut dyn Read, most: u64) -> std::io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut stream = stream.take(most);
    let mut chunk = vec![0; CHUNK];
    loop {
        let got = stream.read(&mut chunk)?;
        if got == 0 {
            return Ok(hasher.finalize());
        }
        hasher.update(chunk.get(..got).unwrap_or_default());
    }
}

/// Computes the digest of a file, of `most` bytes of it at the most.
pub fn of_file(path: &Path, most: u64) -> Result<blake3::Hash> {
    let of = || of_stream(&mut File::open(path)?, most);
    of().with_context(|| path.display().to_string())
}

/// Computes the digest of a directory tree. Files that are devices, pipes or sockets are left out.
pub fn of_tree(root: &Path) -> Result<TreeDigest> {
    let mut digest = TreeDigest::default();
    let mut pending = vec![root.to_path_buf()];
    while let Some(dir) = pending.pop() {
        let named = || dir.display().to_string();
        for entry in fs::read_dir(&dir).with_context(named)? {
            let entry = entry.with_context(named)?;
            let path = entry.path();
            let kind: FileType = entry
                .file_type()
                .with_context(|| path.display().to_string())?;
            let below = path.strip_prefix(root).unwrap_or(&path);
            let below = below.as_os_str().as_bytes();
            if kind.is_dir() {
                digest.add(below, Kind::Directory, &[]);
                pending.push(path);
            } else if kind.is_file() {
                let contents = of_file(&path, u64::MAX)?;
                digest.add(below, Kind::File, contents.as_bytes());
            } else if kind.is_symlink() {
                let target = fs::read_link(&path).with_context(|| path.display().to_string())?;
                digest.add(below, Kind::Link, target.as_os_str().as_bytes());
            }
        }
    }
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        of_tree(dir.path()).unwrap().text()
    }

    #[test]
    fn every_byte_and_name_counts() {
        let one = tree(&[("a", "1"), ("b/c", "2")]);
        assert!(one.ends_with(" 4 entries"), "{one}");
        assert_eq!(one, tree(&[("b/c", "2"), ("a", "1")]));
        for other in [
            [("a", "2"), ("b/c", "1")],
            [("a", "1"), ("b/d", "2")],
            [("a", "1"), ("b/c", "")],
        ] {
            assert_ne!(one, tree(&other), "{other:?}");
        }
    }

    #[test]
    fn a_bound_cuts_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let (long, short) = (dir.path().join("long"), dir.path().join("short"));
        fs::write(&long, vec![7; 3000]).unwrap();
        fs::write(&short, vec![7; 1000]).unwrap();
        assert_eq!(
            of_file(&long, 1000).unwrap(),
            of_file(&short, 5000).unwrap()
        );
        assert_ne!(
            of_file(&long, 1001).unwrap(),
            of_file(&short, 5000).unwrap()
        );
    }
}
