//! Listings of merged directories, and of directories that a single layer has.
//!
//! A merged directory shows the entries of its topmost directory in that layer's order, then the
//! new entries of the next directory, and so on. The cursor consists of the index of a directory
//! and the cursor in it.

use std::ops::ControlFlow;

use forerun_io::{u16_from, u64_from};
use forerun_vfs::{DirCursor, DirEntry, FileType, NodeId, Result};

use crate::covered::{Covered, Listings};
use crate::dirs::{MergedDir, Table};
use crate::find::{find, redirected};
use crate::ids::{self, LayerNode, Named};
use crate::stack::Stack;

pub type VisitEntry<'v> = &'v mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>;

/// Returns the id for the result of [`find`]; `None` if nothing was found.
pub fn id_of(table: &Table, found: Vec<LayerNode>) -> Result<Option<NodeId>> {
    match *found.as_slice() {
        [] => Ok(None),
        [single] => Named::Single(single).id().map(Some),
        [top, ..] => table.add(top, found).map(Some),
    }
}

/// Returns the id of a directory whose parent only one layer has.
pub fn dir_id(stack: &Stack, table: &Table, at: LayerNode) -> Result<NodeId> {
    match redirected(stack, None, at)? {
        Some(lower) if !lower.is_empty() => {
            let all = std::iter::once(at).chain(lower).collect();
            table.add(at, all)
        }
        Some(_) | None => Named::Single(at).id(),
    }
}

pub fn read_single(
    (stack, table): (&Stack, &Table),
    dir: LayerNode,
    from: DirCursor,
    visit: VisitEntry<'_>,
) -> Result<()> {
    stack.expect_no_redirect(dir)?;
    let mut failed = Ok(());
    stack.read_dir(dir, from, &mut |at, entry| {
        let shown = stack.is_shown(at, entry.name, entry.kind);
        let node = shown.and_then(|shown| match (shown, entry.kind) {
            (true, FileType::Directory) => dir_id(stack, table, at).map(Some),
            (true, _) => Named::Single(at).id().map(Some),
            (false, _) => Ok(None),
        });
        match node {
            Ok(Some(node)) => visit(DirEntry { node, ..entry }),
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Err(error);
                ControlFlow::Break(())
            }
        }
    })?;
    failed
}

/// The parts that list a merged directory.
#[derive(Clone, Copy)]
pub struct Lister<'l> {
    pub stack: &'l Stack,
    pub table: &'l Table,
    pub listings: &'l Listings,
}

impl Lister<'_> {
    /// Visits the entries of a merged directory. Fails with [`Limit`](forerun_vfs::Error::Limit) if
    /// the names take too much memory.
    pub fn read_merged(
        self,
        dir: &MergedDir,
        from: DirCursor,
        visit: VisitEntry<'_>,
    ) -> Result<()> {
        let dirs = dir.visible(self.stack)?;
        let (first, mut from) = ids::split_cursor(from);
        for (index, &part) in dirs.iter().enumerate().skip(usize::from(first)) {
            // Nothing covers the topmost directory.
            let covered = match dir.top().filter(|_| index > 0) {
                Some(top) => Some(self.listings.get(self.stack, top, dirs)?),
                None => None,
            };
            let mut flow = Ok(ControlFlow::Continue(()));
            self.stack.read_dir(part, from, &mut |at, entry| {
                flow = self.visit(dirs, (index, covered.as_deref()), (at, entry), visit);
                match flow {
                    Ok(flow) => flow,
                    Err(_) => ControlFlow::Break(()),
                }
            })?;
            if flow?.is_break() {
                break;
            }
            from = DirCursor::START;
        }
        Ok(())
    }

    /// Visits an entry of the directory at `index`, unless a higher directory covers it.
    fn visit(
        self,
        dirs: &[LayerNode],
        (index, covered): (usize, Option<&Covered>),
        (at, entry): (LayerNode, DirEntry<'_>),
        visit: VisitEntry<'_>,
    ) -> Result<ControlFlow<()>> {
        let Some((_, below)) = dirs.get(index..).and_then(<[_]>::split_first) else {
            return Ok(ControlFlow::Break(()));
        };
        let is_covered = covered.is_some_and(|covered| covered.covers(index, entry.name));
        if is_covered || !self.stack.is_shown(at, entry.name, entry.kind)? {
            return Ok(ControlFlow::Continue(()));
        }
        let found = match entry.kind {
            FileType::Directory if !below.is_empty() || at.layer > 0 => {
                find(self.stack, &dirs[index..], entry.name, Some(at))?
            }
            _ => vec![at],
        };
        let Some(node) = id_of(self.table, found)? else {
            return Ok(ControlFlow::Continue(()));
        };
        let next = ids::cursor(u16_from(u64_from(index)), entry.next)?;
        Ok(visit(DirEntry {
            node,
            next,
            ..entry
        }))
    }
}
