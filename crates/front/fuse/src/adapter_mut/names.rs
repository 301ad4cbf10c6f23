//! Requests that change names, and what they leave in the ledger.
//!
//! A request that the kernel sends again may have been carried out before: the server may have died
//! between the commit of another thread and the answer. No other request can have changed the name
//! meanwhile, since the kernel holds the directory until it has the answer.

use std::ops::ControlFlow;
use std::time::SystemTime;

use forerun_vfs::{DirCursor, Error, FileType, NewNode, NodeId, Result};
use fuser::{FileAttr, Request};

use super::core::{AnsweredEntry, CoreMut, now};
use super::journal::{Commit, Spelled};
use super::known::Name;
use crate::connection::RESENT;
use crate::counts::Operation;

/// A directory and a name in it.
type DirAndName<'a> = (NodeId, &'a [u8]);

/// Returns whether another server may have carried the request out.
pub fn is_resent(request: &Request) -> bool {
    request.unique().0 & RESENT != 0
}

impl CoreMut {
    /// Creates a child, and counts it as told to the kernel.
    pub fn create(
        &self,
        dir: NodeId,
        name: &[u8],
        new: &NewNode,
        (open, resent): (bool, bool),
    ) -> Result<AnsweredEntry> {
        let _until_counted = self.known.looking();
        let commit = self.begin_names();
        let node = match self.fs().create(dir, name, new) {
            Err(Error::Exists) if resent => self.create_again(dir, name, new)?,
            created => created?,
        };
        if open {
            self.fs().open(node)?;
        }
        let entry = self.entry(dir, name, node)?;
        let number = entry.attr.ino.0;
        if open {
            self.known.opened(node);
            self.journal.opened(number);
        }
        if commit.is_none()
            && let Some(name) = self.spelled(dir, name)
        {
            self.journal.made(number, &name);
        }
        self.journal.committed(commit);
        self.journal.flush();
        Ok(entry)
    }

    /// Deals with a name that exists although the kernel wants to create it: the same request has created
    /// it before, or its removal was lost.
    fn create_again(&self, dir: NodeId, name: &[u8], new: &NewNode) -> Result<NodeId> {
        let node = self.fs().lookup(dir, name)?.ok_or(Error::Exists)?;
        let metadata = self.fs().metadata(node)?;
        let is_empty = match metadata.kind {
            FileType::Directory => self.is_empty(node)?,
            _ => metadata.size == 0,
        };
        // The kernel cannot know a node that no answer has named.
        if metadata.kind == new.kind && is_empty && !self.known.knows(node) {
            return Ok(node);
        }
        match metadata.kind {
            FileType::Directory => self.fs().rmdir(dir, name)?,
            _ => self.fs().unlink(dir, name)?,
        }
        self.fs().create(dir, name, new)
    }

    fn is_empty(&self, dir: NodeId) -> Result<bool> {
        let mut is_empty = true;
        self.fs().read_dir(dir, DirCursor(0), &mut |_| {
            is_empty = false;
            ControlFlow::Break(())
        })?;
        Ok(is_empty)
    }

    /// Removes a name, which is a directory's or not.
    pub fn remove(&self, dir: NodeId, name: &[u8], directory: bool, resent: bool) -> Result<()> {
        let node = self.named(dir, name);
        let last = self.last_look(node);
        let commit = self.begin_names();
        let removed = match directory {
            true => self.fs().rmdir(dir, name),
            false => self.fs().unlink(dir, name),
        };
        match removed {
            Err(Error::NotFound) if resent => return Ok(()),
            removed => removed?,
        }
        self.removed(node, last);
        self.moved(node, self.name(dir, name), None);
        self.journal_removed(node, dir, name, commit.is_some());
        self.journal.committed(commit);
        self.journal.flush();
        Ok(())
    }

    /// Renames a node.
    pub fn rename(
        &self,
        from: DirAndName<'_>,
        to: DirAndName<'_>,
        (replace, resent): (bool, bool),
    ) -> Result<()> {
        let (node, replaced) = (self.named(from.0, from.1), self.named(to.0, to.1));
        if resent && node.is_none() && replaced.is_some() {
            return Ok(());
        }
        let replaced = replaced.filter(|_| replaced != node);
        let last = self.last_look(replaced);
        self.journal_moving(node, (from, to), replaced);
        let commit = self.begin_names();
        self.fs().rename(from, to, replace)?;
        if replaced.is_some() {
            self.removed(replaced, last);
            self.moved(replaced, self.name(to.0, to.1), None);
            self.journal_removed(replaced, to.0, to.1, commit.is_some());
        }
        if let Some(node) = node {
            self.inode_changed(node);
        }
        self.moved(node, self.name(from.0, from.1), self.name(to.0, to.1));
        if commit.is_none() {
            // A commit may have begun since it was recorded.
            self.journal_moving(node, (from, to), replaced);
        }
        if let (Some(number), Some(to)) = (self.known_number(node), self.spelled(to.0, to.1)) {
            self.journal.moved(number, &to);
        }
        self.journal.committed(commit);
        self.journal.flush();
        Ok(())
    }

    /// Returns the node of a name, if the lookup succeeds.
    pub fn named(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        self.fs().lookup(dir, name).ok()?
    }

    /// Returns the attributes of a node that is about to be removed.
    fn last_look(&self, node: Option<NodeId>) -> Option<FileAttr> {
        self.attr(node?).ok()
    }

    /// Records that a node lost its last name. The kernel may hold it all the same.
    fn removed(&self, node: Option<NodeId>, last: Option<FileAttr>) {
        if let (Some(node), Some(mut attr)) = (node, last) {
            self.inode_changed(node);
            (attr.nlink, attr.ctime) = (0, SystemTime::now());
            self.known.removed(node, attr);
        }
    }

    /// Records that attributes of a node, or its names, have changed.
    pub fn inode_changed(&self, node: NodeId) {
        if let Ok(metadata) = self.fs().metadata(node) {
            self.known.changed(node, now(), metadata.mtime);
        }
    }

    fn moved(&self, node: Option<NodeId>, used: Option<Name>, new: Option<Name>) {
        if let (Some(node), Some(used)) = (node, used)
            && let Some(gone) = self.known.renamed(node, &used, new)
            && let Some(stale) = self.stale.get()
        {
            stale.drop_name(gone);
        }
    }

    /// Notes that a commit begins, where each change of names is one.
    fn begin_names(&self) -> Option<Commit> {
        match self.durable.0 {
            true => self.journal.begin(),
            false => None,
        }
    }

    /// Records an answer that names an inode.
    pub fn journal_told(&self, dir: NodeId, name: &[u8], attr: &FileAttr) {
        if !self.journal.is_kept() {
            return;
        }
        if let Some(parent) = self.numbers.number(dir) {
            let is_directory = attr.kind == fuser::FileType::Directory;
            let form = || self.fs().fold_name(name);
            let name = (parent, name);
            self.journal.told(attr.ino.0, name, is_directory, form);
        }
    }

    fn journal_removed(&self, node: Option<NodeId>, dir: NodeId, name: &[u8], durable: bool) {
        if let (Some(number), Some(name)) = (self.known_number(node), self.spelled(dir, name)) {
            self.journal.removed(number, &name, durable);
        }
    }

    fn journal_moving(
        &self,
        node: Option<NodeId>,
        (from, to): (DirAndName<'_>, DirAndName<'_>),
        replaced: Option<NodeId>,
    ) {
        if let Some(number) = self.known_number(node)
            && let (Some(from), Some(to)) = (self.spelled(from.0, from.1), self.spelled(to.0, to.1))
        {
            let replaced = self.known_number(replaced);
            self.journal.moving(number, [&from, &to], replaced);
        }
    }

    fn known_number(&self, node: Option<NodeId>) -> Option<u64> {
        self.numbers.number(node?)
    }

    /// Returns a name in the ledger's form, where a ledger is kept.
    fn spelled<'a>(&self, dir: NodeId, name: &'a [u8]) -> Option<Spelled<'a>> {
        if !self.journal.is_kept() {
            return None;
        }
        Some(Spelled {
            parent: self.numbers.number(dir)?,
            name,
            form: self.fs().fold_name(name),
        })
    }

    /// Makes everything durable by `sync`, and records that.
    pub fn commit<T>(&self, sync: impl FnOnce() -> Result<T>) -> Result<T> {
        let commit = self.journal.begin();
        let done = sync()?;
        self.journal.committed(commit);
        Ok(done)
    }

    /// Records that contents or attributes were changed, unless that is durable.
    pub fn wrote<T>(&self, number: u64, durable: bool, result: Result<T>) -> Result<T> {
        if result.is_ok() && !durable {
            self.journal.wrote(number);
        }
        result
    }

    /// Takes back `times` of the references that the kernel holds to an inode.
    pub fn forget(&self, number: u64, times: u64) {
        let node = self.node(number);
        self.journal.forgot(number, times);
        if node == super::numbers::LOST {
            self.numbers.forget_lost(number, times);
            return;
        }
        self.known.forgotten(node, times, |opens| {
            for _ in 0..opens {
                let released = self.fs().release(node);
                let _is_logged = self.changed(Operation::Release, number, released);
            }
            self.fs().forget(node);
            self.numbers.forget(number);
            self.aftermath.forget(number);
        });
    }
}
