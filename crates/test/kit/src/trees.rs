//! Trees for the tests of writers, and outputs that fail.

use std::io::{self, Write};
use std::path::Path;

use forerun_build::{Content, ImageOutput, NewNode, NodeKind, ScanOptions, Tree, scan};

use crate::generate;

pub fn file(bytes: &[u8]) -> NewNode {
    claimed(u64::try_from(bytes.len()).unwrap(), bytes)
}

/// Creates a regular file that claims to have `len` bytes, but has `bytes`.
pub fn claimed(len: u64, bytes: &[u8]) -> NewNode {
    let content = Content::Bytes(bytes.into());
    NewNode::new(NodeKind::File { len, content }, 0o644)
}

pub fn tree_of(files: &[(&str, &[u8])]) -> Tree {
    let mut tree = Tree::default();
    for (name, bytes) in files {
        tree.add(Tree::ROOT, name.as_bytes(), file(bytes)).unwrap();
    }
    tree
}

/// Creates a tree with one node, as `dir/NAME`.
pub fn tree_of_one(name: &[u8], node: NewNode) -> Tree {
    let mut tree = Tree::default();
    let dir = tree.add(Tree::ROOT, b"dir", NewNode::directory()).unwrap();
    tree.add(dir, name, node).unwrap();
    tree
}

/// Creates directories of small files, files of some blocks, one of `long` bytes, duplicates of
/// all, holes.
pub fn mixed(dirs: u64, long: usize) -> Tree {
    let mut tree = Tree::default();
    for dir in 0..dirs {
        let name = format!("dir {dir}");
        let parent = tree.add(Tree::ROOT, name.as_bytes(), NewNode::directory());
        let parent = parent.unwrap();
        for n in 0..40_u16 {
            let seed = match n % 5 {
                0 => u64::from(n),
                _ => dir * 100 + u64::from(n),
            };
            let len = match n % 8 {
                3 => 400_000,
                _ => 700 * usize::from(n),
            };
            let mut node = file(&generate::bytes(seed, len));
            node.uid = n.into();
            let value = (n % 3).to_string().into_bytes();
            node.xattrs.insert(b"user.n".to_vec(), value);
            let name = format!("file {n}");
            tree.add(parent, name.as_bytes(), node).unwrap();
        }
        let hole = file(&vec![0; 300_000]);
        tree.add(parent, b"hole", hole).unwrap();
        let bytes = generate::bytes(dir % 3, long);
        tree.add(parent, b"long", file(&bytes)).unwrap();
    }
    tree
}

/// Creates trees with `dir/file`, which has become shorter or longer, some with an unchanged
/// duplicate; each with the expected error text.
pub fn changed(len: u32) -> Vec<(Tree, &'static str)> {
    let bytes = |len: u32| vec![7; usize::try_from(len).unwrap()];
    let mut trees = Vec::new();
    for twin in [false, true] {
        for (now, expected) in [(len - 1, "shorter"), (len + 1, "longer"), (0, "shorter")] {
            let mut tree = tree_of_one(b"file", claimed(len.into(), &bytes(now)));
            if twin {
                let dir = tree.child(Tree::ROOT, b"dir").unwrap();
                tree.add(dir, b"a", file(&bytes(len))).unwrap();
            }
            trees.push((tree, expected));
        }
    }
    trees
}

/// Scans a host directory, with its extended attributes.
pub fn scanned(dir: &Path) -> Tree {
    let options = ScanOptions {
        xattrs: true,
        ..ScanOptions::default()
    };
    scan(dir, &options).unwrap()
}

/// An output that accepts a limited number of bytes and patches.
#[derive(Clone, Copy, Debug)]
pub struct Full {
    /// Bytes that can still be written.
    pub room: usize,
    /// If 0, every patch fails. Otherwise their number is unlimited.
    pub patches: usize,
}

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = bytes.len().min(self.room);
        self.room -= len;
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ImageOutput for Full {
    fn patch(&mut self, _: u64, _: &[u8]) -> io::Result<()> {
        match self.patches {
            0 => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}
