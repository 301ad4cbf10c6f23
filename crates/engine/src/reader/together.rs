//! Adjacent blocks that one read wants, fetched in one request to the source.
//!
//! In a format with small blocks, such as EROFS with clusters of 4 KiB, about half of all pages
//! span two blocks. On a disk the second request takes as long as the first, and longer than
//! decoding both. Readahead of long reads covers most blocks, but not those of the first read of a
//! file, or of a read that overtakes earlier ones.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{BlobId, EncodedBlock, Extent, NodeId, Place, Result};

use super::Reader;
use crate::read::{Assembly, Moves};
use crate::tuning::EXTENTS_TOGETHER;

struct Neighbours {
    blob: BlobId,
    range: Range<u64>,
    blocks: u64,
}

impl Reader {
    /// Makes the requests that several extents of `range` share, and then adds the extents to
    /// `assembly`.
    pub(super) fn collect(
        &self,
        node: NodeId,
        range: Range<u64>,
        assembly: &mut Assembly<'_>,
    ) -> Result<()> {
        let moves = &self.inner.moves;
        let mut extents = Vec::new();
        let end = range.end;
        self.visit(node, range, &mut |extent| {
            // One extent covers the rest of the read, the usual case.
            if extents.is_empty() && extent.logical.end >= end {
                return assembly.add(extent);
            }
            extents.push(extent);
            if extents.len() < EXTENTS_TOGETHER {
                ControlFlow::Continue(())
            } else {
                add_all(moves, &mut extents, assembly)
            }
        })?;
        let _said_by_finish = add_all(moves, &mut extents, assembly);
        Ok(())
    }
}

/// Fetches the blocks of `extents` together, and then moves the extents to `assembly`.
fn add_all(
    moves: &Moves,
    extents: &mut Vec<Extent>,
    assembly: &mut Assembly<'_>,
) -> ControlFlow<()> {
    read_together(moves, extents);
    extents
        .drain(..)
        .try_for_each(|extent| assembly.add(extent))
}

/// Reads the stored bytes of adjacent blocks that are not decoded yet, each run of them with one
/// request.
fn read_together(moves: &Moves, extents: &[Extent]) {
    if extents.len() < 2 {
        return;
    }
    let mut run: Option<Neighbours> = None;
    for extent in extents {
        let Place::Encoded { block, .. } = &extent.place else {
            continue;
        };
        if moves.decoded.is_cached(block) || run.as_mut().is_some_and(|run| run.takes(block)) {
            continue;
        }
        if let Some(run) = run.replace(Neighbours::of(block)) {
            run.read(moves);
        }
    }
    if let Some(run) = run {
        run.read(moves);
    }
}

impl Neighbours {
    fn of(block: &EncodedBlock) -> Self {
        Self {
            blob: block.blob,
            range: block.stored(),
            blocks: 1,
        }
    }

    /// Adds a block if it is adjacent to the last one. Returns whether it is.
    fn takes(&mut self, block: &EncodedBlock) -> bool {
        let stored = block.stored();
        let follows = self.blob == block.blob && self.range.end == stored.start;
        if follows {
            self.range.end = stored.end;
            self.blocks += 1;
        }
        follows
    }

    fn read(self, moves: &Moves) {
        if self.blocks > 1 {
            moves.stored.read_together(self.blob, self.range);
        }
    }
}
