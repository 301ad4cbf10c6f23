//! The order of inodes and data, decided before anything is written.
//!
//! Data is in walk order unless priorities change that, so files that are read together are stored
//! together. Inodes lie directory by directory, so that a listing with details touches few blocks
//! and its runs of entries are long.

use std::cmp::Reverse;

use forerun_build::{BuildError, Tree, WalkedTree};

use super::cannot;
use super::options::SquashfsOptions;

pub struct Plan<'t> {
    pub walked: WalkedTree<'t>,
    /// Number of inodes, which is also the root's inode number.
    pub inodes: u32,
}

impl<'t> Plan<'t> {
    pub fn new(tree: &'t Tree, options: &SquashfsOptions) -> Result<Self, BuildError> {
        let mut walked = WalkedTree::new(tree);
        let inodes = number(tree, &mut walked)?;
        if !options.priorities.is_empty() {
            walked.sort_files(|path| Reverse(options.priorities.of(path)));
        }
        Ok(Self { walked, inodes })
    }
}

/// Numbers the nodes in inode order: the entries of a directory come after the entries of all
/// directories below it. Returns the number of inodes.
fn number(tree: &Tree, walked: &mut WalkedTree<'_>) -> Result<u32, BuildError> {
    let len = walked.nodes.len();
    // The number after the last one is the root's parent.
    let inodes = u32::try_from(len).ok().filter(|&len| len < u32::MAX - 1);
    let inodes = inodes.ok_or_else(|| cannot(format!("{len} inodes")))?;
    let children_first = walked.children_first.iter();
    for dir in children_first.filter_map(|&dir| walked.dirs.get(dir)) {
        for (_, node) in tree.children(dir.node) {
            walked.nodes.number(node);
        }
    }
    walked.nodes.number(Tree::ROOT);
    Ok(inodes)
}
