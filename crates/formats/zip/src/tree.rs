//! The tree that an archive unpacks to. Later members replace earlier ones.
//!
//! Symbolic links are not followed: a member below one is left out.

use forerun_vfs::{
    FileType, Limits, ListedBuilder, ListedPlace, ListedTree, Ownership, PathRefused, Result,
};

use crate::entry::Member;
use crate::error::{Check, lossy};
use crate::node::Node;

pub type Tree = ListedTree<Node>;

/// A tree that is being built.
pub struct Builder {
    tree: ListedBuilder<Node>,
    ownership: Ownership,
}

impl Builder {
    pub fn new(limits: &Limits, ownership: Ownership) -> Self {
        let implied = Node::directory(&ownership);
        Self {
            tree: ListedBuilder::new(limits, implied),
            ownership,
        }
    }

    /// Adds a member, whose entry is at `at`. Returns why it was left out or deviates from the
    /// format. Fails with `Limit`.
    pub fn add(&mut self, member: &Member<'_>, at: u64) -> Result<Option<Check>> {
        let path = || lossy(&member.path);
        if member.disk != 0 {
            let (path, disk) = (path(), member.disk);
            return Ok(Some(Check::Disk { path, disk }));
        }
        let components = match self.tree.components(&member.path)? {
            Ok(components) => components,
            Err(PathRefused::Climbs) => return Ok(Some(Check::Climbs { path: path() })),
            Err(PathRefused::Name(source)) => {
                let path = path();
                return Ok(Some(Check::Name { path, source }));
            }
        };
        let is_dir = member.kind == FileType::Directory;
        let Some((name, parents)) = components.split_last() else {
            // Some programs store the root too.
            if is_dir {
                self.set(ListedPlace::ROOT, member, at);
            }
            return Ok((!is_dir).then(|| Check::Root { path: path() }));
        };
        let Some(parent) = self.tree.directory(parents)? else {
            return Ok(Some(Check::Parent { path: path() }));
        };
        let old = self.tree.child(parent, name);
        let place = match old {
            Some(old) if is_dir && self.tree.is_dir(old) => old,
            _ => {
                match old {
                    Some(old) => drop(self.tree.remove(old)),
                    None => self.tree.reserve(parent)?,
                }
                let place = self.tree.create(member.kind)?;
                self.tree.link(parent, name, place)?;
                place
            }
        };
        let was_described = self.set(place, member, at);
        let is_twice = old.is_some_and(|old| old != place) || was_described;
        Ok(match member.odd_kind {
            Some(kind) => Some(Check::Kind { path: path(), kind }),
            None => is_twice.then(|| Check::Twice { path: path() }),
        })
    }

    /// Sets the properties of a node. Returns whether an earlier member has set them.
    fn set(&mut self, place: ListedPlace, member: &Member<'_>, at: u64) -> bool {
        let owner = (self.ownership.uid, self.ownership.gid);
        let Some(node) = self.tree.get_mut(place) else {
            return false;
        };
        let was_described = node.entry.replace(at).is_some();
        node.kind = member.kind;
        node.mode = member.mode;
        (node.uid, node.gid) = member.owner.unwrap_or(owner);
        node.mtime = member.mtime;
        node.size = match member.kind {
            FileType::Regular | FileType::Symlink => member.size,
            _ => 0,
        };
        node.data = member.data;
        was_described
    }

    pub fn finish(self) -> Tree {
        self.tree.finish()
    }
}
