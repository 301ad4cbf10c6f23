//! The order of inodes and data, decided before anything is written.
//!
//! Inodes lie directory by directory in walk order, so that a walk reads sequentially. Data is in
//! the same order unless the options give another one.

use std::collections::HashMap;

use forerun_build::{BuildError, NodeIndex, NodeKind, Tree, WalkedTree};

use super::cannot;
use super::holes::chunked_for_holes;
use super::options::ErofsOptions;
use super::referenced::{self, Referenced};

/// The longest name that Linux looks up.
const LONGEST_NAME: usize = 255;
/// The longest symlink target that Linux follows.
const LONGEST_TARGET: usize = 4095;

pub struct Plan<'t> {
    /// The tree without empty files.
    pub walked: WalkedTree<'t>,
    /// Nodes in inode order: the root, then for each directory the children that have no earlier
    /// link.
    pub inodes: Vec<NodeIndex>,
    /// Chunk sizes of files that are stored as chunks because of their holes, or because their data
    /// is on other devices.
    pub chunked: HashMap<NodeIndex, u32>,
    /// Devices and blocks of the chunks that are on other devices already.
    pub referenced: HashMap<NodeIndex, Vec<(u16, u32)>>,
}

impl<'t> Plan<'t> {
    pub fn new(tree: &'t Tree, options: &ErofsOptions) -> Result<Self, BuildError> {
        let mut walked = WalkedTree::new(tree);
        walked.files.retain(|file| file.len > 0);
        let inodes = number(tree, &mut walked)?;
        check(tree, &walked)?;
        if !options.order.is_empty() {
            walked.sort_files(|path| options.order.of(path));
        }
        let Referenced {
            mut chunked,
            starts,
        } = referenced::take(&mut walked, options)?;
        chunked.extend(chunked_for_holes(&walked, options)?);
        Ok(Self {
            walked,
            inodes,
            chunked,
            referenced: starts,
        })
    }
}

/// Numbers the nodes in inode order, and returns them in that order.
fn number(tree: &Tree, walked: &mut WalkedTree<'_>) -> Result<Vec<NodeIndex>, BuildError> {
    let len = walked.nodes.len();
    if u32::try_from(len).is_err() {
        return Err(cannot(format!("{len} inodes")));
    }
    let mut inodes = Vec::with_capacity(len);
    let children = walked.dirs.iter().flat_map(|dir| tree.children(dir.node));
    for node in std::iter::once(Tree::ROOT).chain(children.map(|(_, node)| node)) {
        if walked.nodes.number(node) {
            inodes.push(node);
        }
    }
    Ok(inodes)
}

/// Rejects a tree that the format or a reader cannot hold, before anything is written.
fn check(tree: &Tree, walked: &WalkedTree<'_>) -> Result<(), BuildError> {
    for (at, dir) in walked.dirs.iter().enumerate() {
        for (name, node) in tree.children(dir.node) {
            if let Some(reason) = unfit(name, &tree.node(node).kind) {
                let path = walked.path(at, name);
                let path = String::from_utf8_lossy(&path);
                return Err(cannot(format!("{path}: {reason}")));
            }
        }
    }
    Ok(())
}

fn unfit(name: &[u8], kind: &NodeKind) -> Option<String> {
    if name.len() > LONGEST_NAME {
        return Some(format!("a name of {} bytes", name.len()));
    }
    match kind {
        NodeKind::Symlink(target) if !(1..=LONGEST_TARGET).contains(&target.len()) => {
            Some(format!("a link to {} bytes", target.len()))
        }
        NodeKind::BlockDevice(device) | NodeKind::CharDevice(device) if device.pack().is_none() => {
            let (major, minor) = (device.major, device.minor);
            Some(format!("the device number {major}:{minor}"))
        }
        _ => None,
    }
}
