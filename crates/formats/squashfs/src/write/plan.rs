//! The plan of an image: the order of everything, before anything is written.
//!
//! Unless priorities change it, data lie in the order of a walk: files that are read together lie together.
//! Inodes lie directory by directory, so that a listing with details touches few blocks and few runs of
//! entries are cut.

use std::cmp::Reverse;

use forerun_build::{BuildError, Tree, WalkedTree};

use super::cannot;
use super::options::SquashfsOptions;

pub struct Plan<'t> {
    pub walked: WalkedTree<'t>,
    /// Number of inodes, which is also the number of the root.
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

/// Numbers the nodes in the order of their inodes: those of a directory behind those of all directories below
/// it. Returns how many there are.
fn number(tree: &Tree, walked: &mut WalkedTree<'_>) -> Result<u32, BuildError> {
    let len = walked.nodes.len();
    // The number after the last is the parent of the root.
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
