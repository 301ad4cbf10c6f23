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

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use forerun_vfs::{FileSystemMut, NodeId};

/// The table.
#[derive(Debug, Default)]
pub struct Known {
    turnstile: RwLock<()>,
    nodes: Mutex<HashMap<NodeId, Told>>,
}

#[derive(Debug)]
struct Told {
    times: u64,
    /// Where names matter.
    name: Option<Name>,
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
        let told = nodes.entry(node).or_insert(Told {
            times: 0,
            name: None,
        });
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
