//! The form of each inode and its length with xattrs, which are known before its data.

use std::collections::HashMap;

use forerun_build::{NewNode, NodeIndex, NodeKind, Tree};
use forerun_io::u64_from;
use forerun_vfs::Timestamp;

use super::dir::Listing;
use super::inode::{core_len, is_extended};
use super::plan::Plan;
use super::xattr::Xattrs;

pub struct Shapes {
    extended: HashMap<NodeIndex, bool>,
    heads: HashMap<NodeIndex, u64>,
    /// The directories, in the order of the plan.
    pub listings: Vec<Listing>,
}

impl Shapes {
    pub fn new(
        tree: &Tree,
        plan: &Plan<'_>,
        xattrs: &Xattrs,
        epoch: Timestamp,
        block: usize,
    ) -> Self {
        let listings = plan
            .walked
            .dirs
            .iter()
            .map(|dir| Listing::new(tree, plan, dir, block));
        let listings: Vec<Listing> = listings.collect();
        let lens = plan.walked.dirs.iter().map(|dir| dir.node).zip(&listings);
        let lens: HashMap<_, _> = lens.map(|(node, listing)| (node, listing.len)).collect();
        let mut shapes = Self {
            extended: HashMap::with_capacity(plan.inodes.len()),
            heads: HashMap::with_capacity(plan.inodes.len()),
            listings,
        };
        for &index in &plan.inodes {
            let node = tree.node(index);
            let size = lens.get(&index).copied().unwrap_or_else(|| size(node));
            let extended = is_extended(node, plan.walked.nodes.get(index), size, epoch);
            let head = core_len(extended) + u64_from(xattrs.of(index).len());
            shapes.extended.insert(index, extended);
            shapes.heads.insert(index, head);
        }
        shapes
    }

    pub fn is_extended(&self, node: NodeIndex) -> bool {
        self.extended.get(&node).copied().unwrap_or(true)
    }

    /// Returns the length of the inode and its xattrs.
    pub fn head(&self, node: NodeIndex) -> u64 {
        self.heads.get(&node).copied().unwrap_or(0)
    }
}

/// Returns the length of a file or symlink target; 0 for other nodes.
pub fn size(node: &NewNode) -> u64 {
    match &node.kind {
        NodeKind::File { len, .. } => *len,
        NodeKind::Symlink(target) => u64_from(target.len()),
        _ => 0,
    }
}

/// Returns the time that most nodes have. Of equally frequent times, returns the latest.
pub fn most_frequent_time(tree: &Tree, plan: &Plan<'_>) -> Timestamp {
    let mut counts: HashMap<Timestamp, u64> = HashMap::new();
    for &node in &plan.inodes {
        *counts.entry(tree.node(node).mtime).or_default() += 1;
    }
    let most = counts
        .into_iter()
        .max_by_key(|&(time, count)| (count, time));
    most.map(|(time, _)| time).unwrap_or_default()
}
