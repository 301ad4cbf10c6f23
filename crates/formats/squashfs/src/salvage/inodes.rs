//! Finds the readable inodes, and which of them no listing names.

use std::collections::HashSet;
use std::ops::ControlFlow;

use forerun_io::u64_from;
use forerun_vfs::{DirCursor, FileType, NodeId, Result};

use crate::cursor::Cursor;
use crate::dir;
use crate::image::Image;
use crate::inode::{Inode, InodeBody};
use crate::ondisk::DirIndex;
use crate::reference::Reference;

pub struct Known {
    /// Their references, sorted.
    pub inodes: Vec<u64>,
    /// Inodes that no listing names, except the root.
    pub orphans: Vec<Orphan>,
    /// Whether the root is a readable directory.
    pub has_root: bool,
    /// Whether all inodes that the superblock counts were found.
    pub is_complete: bool,
    /// Whether the search stopped at its limit.
    pub is_cut: bool,
}

pub struct Orphan {
    pub node: NodeId,
    pub number: u32,
    pub kind: FileType,
}

/// Finds inodes by their order in the table, by the export table and by listings. Keeps at most
/// `most` inodes.
pub fn search(image: &Image, most: usize) -> Known {
    let mut inodes = in_order(image, most);
    let declared = u64::from(image.superblock.inodes);
    if u64_from(inodes.len()) < declared {
        inodes.extend(exported(image, most.saturating_sub(inodes.len())));
        sort(&mut inodes);
    }
    let root = image.superblock.root.raw();
    let has_root = image.dir(NodeId(root)).is_ok();
    if has_root {
        inodes.push(root);
    }
    let mut named = named(image, &inodes, most);
    sort(&mut named);
    for &node in &named {
        if inodes.len() < most && image.inode(NodeId(node)).is_ok() {
            inodes.push(node);
        }
    }
    sort(&mut inodes);
    let mut orphans = Vec::new();
    for &node in &inodes {
        if (node == root && has_root) || named.binary_search(&node).is_ok() {
            continue;
        }
        let node = NodeId(node);
        if let Ok(inode) = image.inode(node) {
            let (number, kind) = (inode.number, inode.file_type);
            orphans.push(Orphan { node, number, kind });
        }
    }
    Known {
        is_complete: u64_from(inodes.len()) == declared,
        is_cut: inodes.len() >= most || named.len() >= most,
        inodes,
        orphans,
        has_root,
    }
}

fn sort(nodes: &mut Vec<u64>) {
    nodes.sort_unstable();
    nodes.dedup();
}

/// Reads consecutive inodes from the start of the table up to the first damage.
fn in_order(image: &Image, most: usize) -> Vec<u64> {
    let mut found = Vec::new();
    let Ok(mut cursor) = image.inodes_at(Reference::from_raw(0), NodeId(0)) else {
        return found;
    };
    while found.len() < most && cursor.settle().is_ok() {
        let at = cursor.reference().raw();
        let block_size = image.superblock.block_size;
        let Ok(inode) = Inode::read(&mut cursor, &image.inodes, NodeId(at), block_size) else {
            break;
        };
        found.push(at);
        if skip_rest(&inode, &mut cursor).is_err() {
            break;
        }
    }
    found
}

/// Skips the variable part of an inode.
fn skip_rest(inode: &Inode, cursor: &mut Cursor<'_>) -> Result<()> {
    match &inode.body {
        InodeBody::File(file) => cursor.skip(file.blocks * 4),
        InodeBody::Dir(dir) => {
            for _ in 0..dir.indexes {
                let index: DirIndex = cursor.read()?;
                cursor.skip(u64::from(index.size.get()) + 1)?;
            }
            Ok(())
        }
        InodeBody::Symlink { len, .. } if !inode.is_extended => cursor.skip(u64::from(*len)),
        InodeBody::Symlink { .. } | InodeBody::Device(_) | InodeBody::Ipc => Ok(()),
    }
}

/// Returns the inodes of the export table that have the expected number.
fn exported(image: &Image, most: usize) -> Vec<u64> {
    let numbers = (1..=image.superblock.inodes).take(most);
    let mut found = Vec::new();
    for number in numbers {
        let place = match image.exported(number, NodeId(0)) {
            Ok(Some(place)) => NodeId(place.raw()),
            Ok(None) => break,
            Err(_) => continue,
        };
        if image.inode(place).is_ok_and(|inode| inode.number == number) {
            found.push(place.0);
        }
    }
    found
}

/// Returns the inodes that listings name, in the directories among `inodes` and in those below
/// them.
fn named(image: &Image, inodes: &[u64], most: usize) -> Vec<u64> {
    let is_dir = |&&node: &&u64| image.dir(NodeId(node)).is_ok();
    let mut dirs: Vec<u64> = inodes.iter().filter(is_dir).copied().collect();
    let mut seen: HashSet<u64> = dirs.iter().copied().collect();
    let mut named = Vec::new();
    while let Some(dir) = dirs.pop() {
        // After damage in a listing, the rest of it is unknown.
        let _read = dir::read(image, NodeId(dir), DirCursor::START, &mut |entry| {
            named.push(entry.node.0);
            if entry.kind == FileType::Directory && seen.insert(entry.node.0) {
                dirs.push(entry.node.0);
            }
            if named.len() < most {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });
        if named.len() >= most {
            break;
        }
    }
    named
}
