//! Adjacent blocks that one read wants: one request to the source for all of them.
//!
//! A format with small blocks, as EROFS with clusters of 4 KiB, has the bytes of one page in two
//! blocks as often as not. On a disk the second request takes as long as the first, and longer than
//! decoding both. Larger requests ahead of long reads have most of their blocks, but not those of
//! the first read of a file, or of a read that overtakes earlier ones.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{BlobId, EncodedBlock, Extent, NodeId, Place, Result};

use super::Reader;
use crate::read::{Assembly, Moves};
use crate::tuning::EXTENTS_TOGETHER;

/// Stored bytes of blocks that follow each other.
struct Neighbours {
    blob: BlobId,
    range: Range<u64>,
    blocks: u64,
}

impl Reader {
    /// Makes the requests that several extents of `range` share, and then gives the extents to
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
            // Alone, as most are.
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

/// Makes the requests that several extents share, and then moves the extents to `assembly`.
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

/// Reads the stored bytes of blocks that follow each other and are not decoded yet, each run with one request.
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

    /// Adds a block if it is adjacent to the last one.
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
