//! Directory listings.
//!
//! The kernel identifies a position in a directory by a cookie: 0 is the start, 1 follows `.`, 2
//! follows `..`, and then come the driver's cursors plus 2. The inode number of `..` is not real: a
//! node does not know its parent, and the kernel resolves `..` itself.

use std::ops::ControlFlow;

use forerun_io::wait;
use forerun_vfs::{DirCursor, DirEntry, NodeId, Result};
use fuser::{FileAttr, FileType};

use crate::attr;
use crate::core::Core;
use crate::counts::Operation;

/// Inode number of `..` in listings; FUSE filesystems use this value for unknown numbers.
const UNKNOWN: u64 = 0xffff_ffff;
/// Offset of the driver's cursors.
const DOTS: u64 = 2;
/// Entries per fetch: about as many as fit into a page, the kernel's smallest buffer. Doubles with
/// each fetch, for kernels with larger buffers.
const FIRST_FETCH: usize = 32;
const LARGEST_FETCH: usize = 1024;

pub type VisitEntries<'a> = &'a mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>;

pub type ReadDir<'a> = &'a dyn Fn(NodeId, DirCursor, VisitEntries<'_>) -> Result<()>;

#[derive(Debug)]
pub struct ListedEntry {
    pub name: Vec<u8>,
    pub number: u64,
    pub kind: FileType,
    /// Cookie of the position after this entry.
    pub cookie: u64,
    /// The node; `None` for `..`.
    pub node: Option<NodeId>,
}

impl ListedEntry {
    pub const fn is_child(&self) -> bool {
        self.cookie > DOTS
    }
}

/// Passes a directory's entries from `cookie` on to `add` until it returns true (full).
///
/// # Errors
/// The driver's error if no entry was added. Otherwise the entries before the damage are returned,
/// and the next call fails.
pub fn list(
    read_dir: ReadDir<'_>,
    number_of: &dyn Fn(NodeId) -> Option<u64>,
    (number, dir): (u64, NodeId),
    cookie: u64,
    add: &mut dyn FnMut(&ListedEntry) -> bool,
) -> Result<()> {
    for (at, name, number) in [(1, &b"."[..], number), (2, b"..", UNKNOWN)] {
        let entry = ListedEntry {
            name: name.to_vec(),
            number,
            kind: FileType::Directory,
            cookie: at,
            node: (at == 1).then_some(dir),
        };
        if cookie < at && add(&entry) {
            return Ok(());
        }
    }
    let mut added = cookie < DOTS;
    let mut cursor = DirCursor(cookie.saturating_sub(DOTS));
    let mut count = FIRST_FETCH;
    loop {
        // Attributes are looked up after the visit, because a driver may hold a lock during it.
        let (entries, result) = fetch(read_dir, number_of, dir, cursor, count);
        for entry in &entries {
            if add(entry) {
                return Ok(());
            }
            added = true;
            cursor = DirCursor(entry.cookie - DOTS);
        }
        match result {
            Err(error) if !added => return Err(error),
            Ok(()) if entries.len() == count => count = LARGEST_FETCH.min(2 * count),
            Err(_) | Ok(()) => return Ok(()),
        }
    }
}

fn fetch(
    read_dir: ReadDir<'_>,
    number_of: &dyn Fn(NodeId) -> Option<u64>,
    dir: NodeId,
    from: DirCursor,
    count: usize,
) -> (Vec<ListedEntry>, Result<()>) {
    let mut entries = Vec::with_capacity(count);
    let result = read_dir(dir, from, &mut |entry| {
        let number = number_of(entry.node);
        let (Some(cookie), Some(number)) = (entry.next.0.checked_add(DOTS), number) else {
            return ControlFlow::Break(());
        };
        entries.push(ListedEntry {
            name: entry.name.to_vec(),
            number,
            kind: attr::kind(entry.kind),
            cookie,
            node: Some(entry.node),
        });
        if entries.len() < count {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    (entries, result)
}

impl Core {
    /// Lists a directory of this image as [`list`] does. If this thread must not wait, stops at the
    /// first entry that needs a wait.
    pub fn list(
        &self,
        number: u64,
        cookie: u64,
        add: &mut dyn FnMut(&ListedEntry) -> bool,
    ) -> Result<()> {
        self.reader.prefetch_metadata();
        let number_of = |node| self.inodes.number(node);
        let read_dir =
            |dir, from, visit: VisitEntries<'_>| self.reader.fs().read_dir(dir, from, visit);
        let dir = (number, self.node(number));
        let mut added = false;
        let mut add = |entry: &ListedEntry| {
            let is_full = add(entry);
            added |= !is_full;
            is_full
        };
        let listed = list(&read_dir, &number_of, dir, cookie, &mut add);
        if added {
            wait::accept();
        }
        listed
    }

    /// Passes an entry's name to the trace.
    pub fn note_name(&self, dir: u64, entry: &ListedEntry) {
        if let Some(node) = entry.node.filter(|_| entry.is_child()) {
            let observer = self.reader.observer();
            observer.name(node.0, self.node(dir).0, &entry.name);
        }
    }

    /// Returns the attributes of an entry, or `None` if they are unknown or unreadable. The listing
    /// is complete without them; a program that looks at the file gets the error.
    pub fn entry_attr(&self, entry: &ListedEntry) -> Option<FileAttr> {
        let attr = self.attr(entry.node?);
        if wait::was_refused() {
            return attr.ok();
        }
        self.noted(Operation::Readdirplus, entry.number, attr).ok()
    }
}
