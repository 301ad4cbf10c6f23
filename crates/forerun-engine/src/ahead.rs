//! From extents to requests: what is read ahead, merged, and decoded.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_vfs::{BlobId, EncodedBlock, FileSystem, NodeId, Place};

use crate::reader::Moves;

/// Stored bytes to be read ahead, and the blocks in them to be decoded then.
#[derive(Debug, Default)]
pub struct Plan {
    runs: Vec<Run>,
    bytes: u64,
}

#[derive(Debug)]
struct Run {
    blob: BlobId,
    range: Range<u64>,
    blocks: Vec<EncodedBlock>,
}

impl Plan {
    /// Bytes of the source that the plan asks for.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds the extents of `range` of a file. What cannot be mapped is left out: the reader that
    /// gets there will report it.
    pub fn add(&mut self, fs: &dyn FileSystem, node: NodeId, range: Range<u64>, max_gap: u64) {
        let _left_to_the_reader = fs.map(node, range.clone(), &mut |extent| {
            match extent.place {
                Place::Zero | Place::Inline(_) => {}
                Place::Stored { blob, offset } => {
                    let from = extent.logical.start.max(range.start);
                    let to = extent.logical.end.min(range.end);
                    let skip = from.saturating_sub(extent.logical.start);
                    let start = offset.saturating_add(skip);
                    let end = start.saturating_add(to.saturating_sub(from));
                    self.want(blob, start..end, None, max_gap);
                }
                Place::Encoded { block, .. } => {
                    self.want(block.blob, block.stored(), Some(block), max_gap)
                }
            }
            ControlFlow::Continue(())
        });
    }

    fn want(&mut self, blob: BlobId, range: Range<u64>, block: Option<EncodedBlock>, max_gap: u64) {
        let joins = |run: &Run| {
            run.blob == blob
                && range.start >= run.range.start
                && range.start <= run.range.end.saturating_add(max_gap)
        };
        match self.runs.last_mut().filter(|run| joins(run)) {
            Some(run) => {
                let end = run.range.end.max(range.end);
                self.bytes = self.bytes.saturating_add(end - run.range.end);
                run.range.end = end;
                // A block that several files share is met once for each of them.
                run.blocks
                    .extend(block.filter(|block| run.blocks.last() != Some(block)));
            }
            None => {
                self.bytes = self
                    .bytes
                    .saturating_add(range.end.saturating_sub(range.start));
                self.runs.push(Run {
                    blob,
                    range,
                    blocks: block.into_iter().collect(),
                });
            }
        }
    }
}

/// Starts on a plan: gives the requests to the pool, each followed by the decoding of the blocks
/// that end in it. Waits for nothing.
pub fn start(moves: &Arc<Moves>, plan: Plan) {
    let geometry = moves.stored.geometry();
    // Two requests at least fit the budget, so that one is read while the other is used.
    let max = geometry
        .max_request()
        .min(moves.stored.segments.budget() / 2)
        .max(geometry.block());
    for mut run in plan.runs {
        run.blocks.retain(|block| !moves.decoded.contains(block));
        let Ok(len) = moves.stored.len(run.blob) else {
            continue;
        };
        let range = run.range.start..run.range.end.min(len);
        let segments =
            moves
                .stored
                .segments
                .plan(run.blob, range, max, moves.stored.observer().stats());
        for segment in segments {
            let ends_here = |block: &EncodedBlock| block.stored().end <= segment.range.end;
            let (blocks, later) = run.blocks.into_iter().partition(ends_here);
            run.blocks = later;
            let worker = Arc::clone(moves);
            moves.pool.submit(move || {
                if let Some(duty) = segment.start() {
                    worker.stored.load(duty);
                }
                decode_each(&worker, blocks);
            });
        }
    }
}

/// One job a block, so that all threads of the pool share the work.
fn decode_each(moves: &Arc<Moves>, blocks: Vec<EncodedBlock>) {
    for block in blocks {
        let worker = Arc::clone(moves);
        moves.pool.submit(move || {
            if !worker.decoded.contains(&block) {
                // The reader that needs the block gets the error when it comes to it.
                let _left_to_the_reader = worker.decoded.get(&block, &worker.stored);
            }
        });
    }
}
