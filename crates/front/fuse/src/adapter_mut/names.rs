//! Requests that change names.
//!
//! The kernel repeats a request if the server died after it committed the change but before it
//! answered. No other request can have changed the name in between, because the kernel holds the
//! directory until it has the answer.

use std::io;
use std::ops::ControlFlow;
use std::time::SystemTime;

use forerun_vfs::{DirCursor, Error, FileType, NewNode, NodeId, Result};
use fuser::{FileAttr, Request};

use super::core::{AnsweredEntry, CoreMut, now};
use super::known::Name;
use crate::connection::RESENT;

type DirAndName<'a> = (NodeId, &'a [u8]);

/// Returns whether another server may have executed the request already.
pub fn is_resent(request: &Request) -> bool {
    request.unique().0 & RESENT != 0
}

impl CoreMut {
    pub fn create(
        &self,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
        (open, resent): (bool, bool),
    ) -> Result<AnsweredEntry> {
        let _until_counted = self.known.looking();
        let node = match self.fs().create(dir, name, new) {
            Err(Error::Exists) if resent => self.create_again(dir, name, new)?,
            created => created?,
        };
        self.names_changed(dir);
        if open {
            self.fs().open(node)?;
        }
        let entry = self.entry(dir, name, node)?;
        if open {
            self.known.opened(node);
        }
        Ok(entry)
    }

    /// Handles a name that exists although the kernel wants to create it. An empty node of the same
    /// kind may come from the same request, so it is returned. Anything else is older: the dead
    /// server's removal or rename was lost, and the node may be the only copy of synced data.
    fn create_again(&self, dir: NodeId, name: &[u8], new: &NewNode) -> Result<NodeId> {
        let node = self.fs().lookup(dir, name)?.ok_or(Error::Exists)?;
        let metadata = self.fs().metadata(node)?;
        let is_empty = match metadata.kind {
            FileType::Directory => self.is_empty(node)?,
            _ => metadata.size == 0,
        };
        if metadata.kind == new.kind && is_empty {
            return Ok(node);
        }
        Err(match new.kind {
            FileType::Directory => Error::Exists,
            // ESTALE makes the kernel look the name up again and find the file.
            _ => Error::StaleNode(node),
        })
    }

    /// Refuses a repeated removal or rename after the previous server died with unwritten changes.
    /// Its unwritten renames are undone, so the name may belong to an older file again.
    fn refuse_on_rolled_back(&self, resent: bool) -> Result<()> {
        if resent && self.is_rolled_back {
            let lost =
                "names that were not synced were lost with the process that served the mount";
            return Err(Error::io(0, 0, io::Error::other(lost)));
        }
        Ok(())
    }

    fn is_empty(&self, dir: NodeId) -> Result<bool> {
        let mut is_empty = true;
        self.fs().read_dir(dir, DirCursor(0), &mut |_| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        Ok(is_empty)
    }

    /// Removes a file's name, or with `directory` a directory.
    pub fn remove(&self, dir: NodeId, name: &[u8], directory: bool, resent: bool) -> Result<()> {
        self.refuse_on_rolled_back(resent)?;
        let node = self.named(dir, name);
        let last = self.last_look(node);
        let removed = if directory {
            self.fs().rmdir(dir, name)
        } else {
            self.fs().unlink(dir, name)
        };
        match removed {
            Err(Error::NotFound) if resent => return Ok(()),
            removed => removed?,
        }
        self.names_changed(dir);
        self.removed(node, last);
        self.moved(node, (dir, name), None);
        Ok(())
    }

    pub fn rename(
        &self,
        from: DirAndName<'_>,
        to: DirAndName<'_>,
        (replace, resent): (bool, bool),
    ) -> Result<()> {
        self.refuse_on_rolled_back(resent)?;
        let (node, replaced) = (self.named(from.0, from.1), self.named(to.0, to.1));
        if resent && node.is_none() && replaced.is_some() {
            return Ok(());
        }
        let replaced = replaced.filter(|_| replaced != node);
        let last = self.last_look(replaced);
        self.fs().rename(from, to, replace)?;
        self.names_changed(from.0);
        self.names_changed(to.0);
        if replaced.is_some() {
            self.removed(replaced, last);
            self.moved(replaced, to, None);
        }
        if let Some(node) = node {
            self.inode_changed(node);
        }
        self.moved(node, from, Some(to));
        Ok(())
    }

    /// Records that a directory's names have changed, which may be lost if this process dies.
    fn names_changed(&self, dir: NodeId) {
        if self.known.is_kept() && !self.durable.0 {
            self.known.reports.changed(dir);
        }
    }

    pub fn is_named(&self, node: NodeId, name: &Name) -> bool {
        self.named(name.dir, &name.name) == Some(node)
    }

    /// Looks up a name; `None` on error.
    pub fn named(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.fs().lookup(dir, name).ok()?
    }

    fn last_look(&self, node: Option<NodeId>) -> Option<FileAttr> {
        self.attr(node?).ok()
    }

    /// Records that a node lost its last name. The kernel may still reference it.
    fn removed(&self, node: Option<NodeId>, last: Option<FileAttr>) {
        if let (Some(node), Some(mut attr)) = (node, last) {
            self.inode_changed(node);
            (attr.nlink, attr.ctime) = (0, SystemTime::now());
            self.known.removed(node, attr);
        }
    }

    /// Records that the attributes or names of a node have changed.
    pub fn inode_changed(&self, node: NodeId) {
        if let Ok(metadata) = self.fs().metadata(node) {
            self.known.changed(node, now(), metadata.mtime);
        }
    }

    fn moved(&self, node: Option<NodeId>, used: DirAndName<'_>, new: Option<DirAndName<'_>>) {
        let new = new.map(|(dir, name)| Name::new(dir, name));
        if let Some(node) = node
            && let Some(gone) = self.known.renamed(node, &Name::new(used.0, used.1), new)
            && let Some(stale) = self.stale.get()
        {
            stale.drop_name(gone);
        }
    }

    /// Subtracts `times` of the kernel's references to an inode.
    pub fn forget(&self, number: u64, times: u64) {
        let node = self.node(number);
        let forget = |gone| self.fs().forget(gone);
        self.known.forgotten(node, times, forget);
    }
}
