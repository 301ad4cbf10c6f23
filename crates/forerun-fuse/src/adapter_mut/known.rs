//! What the kernel was told of, until it forgets it.
//!
//! Each answer that names a node counts; when the kernel has forgotten as often as it was told,
//! nobody holds the id any more and the driver may drop what it keeps for it. A lookup that is under
//! way when the last count goes must not be told an id that is dropped: lookups hold the turnstile
//! while they ask the driver and count, forgetting takes it alone.
//!
//! On volumes that fold case one node has many names, and the kernel takes each for a name of its
//! own. The first that it is told is remembered; any other is an alias, given no time to live, and
//! when the node goes or moves by an alias, the kernel is told that the first name has gone too.
//!
//! Some of what stat(2) tells is kept by no driver: when an inode was changed last, and the attributes
//! of a node that has no name left and is open in a way that the driver is not told of (directories,
//! `O_PATH`). Both are kept here, as long as the kernel knows the node.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use forerun_vfs::{FileSystemMut, NodeId, Timestamp};
use fuser::FileAttr;

/// The table.
#[derive(Debug, Default)]
pub struct Known {
    turnstile: RwLock<()>,
    nodes: Mutex<HashMap<NodeId, Told>>,
}

#[derive(Debug, Default)]
struct Told {
    times: u64,
    /// Where names matter.
    name: Option<Name>,
    changed: Option<Box<Changed>>,
    removed: Option<Box<FileAttr>>,
}

/// A change of an inode.
#[derive(Debug)]
struct Changed {
    at: Timestamp,
    /// The time of last change of the contents at that moment.
    modified: Timestamp,
}

/// A name that the kernel keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The directory.
    pub dir: NodeId,
    /// The bytes.
    pub name: Box<[u8]>,
}

impl Known {
    /// To be held from before a node is asked for until the answer is counted.
    pub fn looking(&self) -> RwLockReadGuard<'_, ()> {
        self.turnstile
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<NodeId, Told>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is told of `node`. Gives whether it knows it by another name already; always no
    /// where `name` is not given.
    pub fn told(&self, node: NodeId, name: Option<Name>) -> bool {
        let mut nodes = self.nodes();
        let told = nodes.entry(node).or_default();
        told.times += 1;
        match (&told.name, name) {
            (Some(first), Some(name)) => *first != name,
            (None, name) => {
                told.name = name;
                false
            }
            (Some(_), None) => false,
        }
    }

    /// Whether telling of `node` by this name would give `true`.
    pub fn is_alias(&self, node: NodeId, name: Option<&Name>) -> bool {
        let nodes = self.nodes();
        let first = nodes.get(&node).and_then(|told| told.name.as_ref());
        matches!((first, name), (Some(first), Some(name)) if first != name)
    }

    /// Records that the inode of `node`, whose contents changed last at `modified`, changed at `at`.
    pub fn changed(&self, node: NodeId, at: Timestamp, modified: Timestamp) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.changed = Some(Box::new(Changed { at, modified }));
        }
    }

    /// Returns when the inode of `node` changed last, given when its contents did. A change of the
    /// contents is one of the inode, so that the contents' time holds where nothing else is known.
    pub fn change_time(&self, node: NodeId, modified: Timestamp) -> Timestamp {
        let nodes = self.nodes();
        match nodes.get(&node).and_then(|told| told.changed.as_ref()) {
            Some(last) if last.modified == modified => last.at,
            Some(last) => last.at.max(modified),
            None => modified,
        }
    }

    /// Records what stat(2) tells of `node` from now on, unless the driver still knows it.
    pub fn removed(&self, node: NodeId, attr: FileAttr) {
        if let Some(told) = self.nodes().get_mut(&node) {
            told.removed = Some(Box::new(attr));
        }
    }

    /// Returns what was recorded with [`removed`](Self::removed).
    pub fn remains(&self, node: NodeId) -> Option<FileAttr> {
        let nodes = self.nodes();
        nodes.get(&node)?.removed.as_deref().copied()
    }

    /// The kernel has forgotten `node`, so often.
    pub fn forgotten(&self, fs: &dyn FileSystemMut, node: NodeId, times: u64) {
        if self.count_down(node, times) {
            let _nobody_looks = self
                .turnstile
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            // It may have been told again meanwhile.
            let mut nodes = self.nodes();
            if nodes.get(&node).is_some_and(|told| told.times == 0) {
                nodes.remove(&node);
                drop(nodes);
                fs.forget(node);
            }
        }
    }

    /// Gives whether nobody is left.
    fn count_down(&self, node: NodeId, times: u64) -> bool {
        let mut nodes = self.nodes();
        let Some(told) = nodes.get_mut(&node) else {
            return false;
        };
        told.times = told.times.saturating_sub(times);
        told.times == 0
    }

    /// `node` goes by the name `used`, and is to be known as `new` from now on. Gives the name that
    /// the kernel keeps although it has gone.
    pub fn renamed(&self, node: NodeId, used: &Name, new: Option<Name>) -> Option<Name> {
        let mut nodes = self.nodes();
        let told = nodes.get_mut(&node)?;
        let first = std::mem::replace(&mut told.name, new);
        first.filter(|first| first != used)
    }
}

#[cfg(test)]
mod tests {
    use forerun_testkit::MemVolume;

    use super::*;

    fn name(text: &str) -> Name {
        Name {
            dir: NodeId(1),
            name: text.as_bytes().into(),
        }
    }

    #[test]
    fn told_as_often_as_forgotten() {
        let fs = MemVolume::in_memory(4096, 512);
        let known = Known::default();
        for _ in 0..3 {
            known.told(NodeId(7), None);
        }
        known.forgotten(&fs, NodeId(7), 2);
        assert_eq!(known.nodes().len(), 1);
        known.forgotten(&fs, NodeId(7), 1);
        assert!(known.nodes().is_empty());
        known.forgotten(&fs, NodeId(7), 1);
    }

    #[test]
    fn an_inode_changes_with_its_contents_and_without() {
        let fs = MemVolume::in_memory(4096, 512);
        let at = |seconds| Timestamp {
            seconds,
            nanoseconds: 0,
        };
        let known = Known::default();
        known.changed(NodeId(7), at(5), at(1));
        assert_eq!(known.change_time(NodeId(7), at(1)), at(1), "not known");
        known.told(NodeId(7), None);
        assert_eq!(known.change_time(NodeId(7), at(3)), at(3));
        for (modified, then, expected) in [(3, 3, 5), (9, 9, 5), (9, 7, 7), (3, 4, 5)] {
            known.changed(NodeId(7), at(5), at(modified));
            assert_eq!(known.change_time(NodeId(7), at(then)), at(expected));
        }
        known.forgotten(&fs, NodeId(7), 1);
        known.told(NodeId(7), None);
        assert_eq!(known.change_time(NodeId(7), at(3)), at(3));
    }

    #[test]
    fn other_names_are_aliases() {
        let known = Known::default();
        assert!(!known.told(NodeId(7), Some(name("a"))));
        assert!(known.told(NodeId(7), Some(name("A"))));
        assert!(!known.told(NodeId(7), Some(name("a"))));
        let stale = known.renamed(NodeId(7), &name("A"), Some(name("b")));
        assert_eq!(stale, Some(name("a")));
        assert_eq!(known.renamed(NodeId(7), &name("b"), None), None);
        assert_eq!(known.renamed(NodeId(8), &name("b"), None), None);
    }
}
