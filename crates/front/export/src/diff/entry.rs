//! The list of entries of one side.

use std::collections::HashMap;
use std::sync::Arc;

use forerun_build::Patterns;
use forerun_vfs::{Metadata, NodeId};

use super::DiffOptions;

/// Identifies a file on its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Id {
    Node(NodeId),
    /// Device and inode number on the host.
    Host(u64, u64),
}

/// A path and its metadata.
#[derive(Debug)]
pub struct Entry {
    /// Without a leading slash; empty for the root.
    pub path: Vec<u8>,
    pub id: Id,
    pub metadata: Metadata,
    pub target: Vec<u8>,
    /// The first name of the same file, if it has several.
    pub first: Option<Arc<[u8]>>,
}

/// All entries of a side, sorted by path.
pub struct Tree {
    pub entries: Vec<Entry>,
}

impl Tree {
    pub fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        // A corrupt image can contain a name twice; keep the first.
        entries.dedup_by(|later, first| later.path == first.path);
        let mut names: HashMap<Id, Vec<usize>> = HashMap::new();
        for (at, entry) in entries.iter().enumerate() {
            if entry.metadata.kind != forerun_vfs::FileType::Directory {
                names.entry(entry.id).or_default().push(at);
            }
        }
        for at in names.into_values().filter(|names| names.len() > 1) {
            let first = at.first().and_then(|&first| entries.get(first));
            let first = first.map(|entry| Arc::from(entry.path.as_slice()));
            for at in at {
                if let Some(entry) = entries.get_mut(at) {
                    entry.first.clone_from(&first);
                }
            }
        }
        Self { entries }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    Take,
    /// Do not compare it, but look at its entries.
    Pass,
    /// Skip it and everything below it.
    Skip,
}

pub fn choose(path: &[u8], options: &DiffOptions) -> Choice {
    let included = |patterns: &Patterns| patterns.is_empty() || patterns.covers(path);
    if !path.is_empty() && options.exclude.matches(path) {
        Choice::Skip
    } else if included(&options.include) {
        Choice::Take
    } else {
        Choice::Pass
    }
}
