//! Plans of readahead: extents merged into requests, and the blocks to decode once their bytes have
//! arrived.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{Pattern, u64_from};
use forerun_vfs::{BlobId, EncodedBlock, Extent, FileSystem, NodeId, Place};

use crate::read::Moves;

/// The requests to make ahead of a reader, and the blocks in them that the pool decodes.
#[derive(Debug, Default)]
pub struct Plan {
    runs: Vec<PlannedRequest>,
    bytes: u64,
    decoded: u64,
    pattern: Pattern,
}

#[derive(Debug)]
struct PlannedRequest {
    blob: BlobId,
    range: Range<u64>,
    blocks: Vec<EncodedBlock>,
    /// Whether the request holds bytes that are served as they are stored.
    plain: bool,
    /// Whether the request holds bytes of encoded blocks.
    encoded: bool,
}

#[derive(Clone, Copy)]
enum Wanted {
    Stored,
    /// Bytes of a block that its reader decodes, so that the pool only fetches them.
    Encoded,
    /// Bytes of a block that the pool decodes after the fetch.
    Block(EncodedBlock),
}

impl Plan {
    pub fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            ..Self::default()
        }
    }

    /// Returns how many bytes of the sources the plan requests. [`coalesce`](Self::coalesce) does
    /// not update the number.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many bytes of the planned files lie in blocks that the pool decodes.
    pub const fn decoded(&self) -> u64 {
        self.decoded
    }

    pub fn requests(&self) -> impl Iterator<Item = (BlobId, Range<u64>)> {
        self.runs.iter().map(|run| (run.blob, run.range.clone()))
    }

    /// Sorts the requests by their offset in the source and merges those at most `max_gap` bytes
    /// apart. Without this, tails that are stored apart from their files would split the requests
    /// of a list of files, and the same blocks would be requested repeatedly.
    pub fn coalesce(&mut self, max_gap: u64) {
        self.runs.sort_by_key(|run| (run.blob, run.range.start));
        let mut runs: Vec<PlannedRequest> = Vec::with_capacity(self.runs.len());
        for run in self.runs.drain(..) {
            match runs.last_mut() {
                Some(last)
                    if last.blob == run.blob && run.range.start <= last.range.end + max_gap =>
                {
                    last.range.end = last.range.end.max(run.range.end);
                    last.blocks.extend(run.blocks);
                    last.plain |= run.plain;
                    last.encoded |= run.encoded;
                }
                _ => runs.push(run),
            }
        }
        for run in &mut runs {
            run.blocks
                .sort_by_key(|block| (block.offset, block.decoded_len.max()));
            run.blocks.dedup();
        }
        self.runs = runs;
    }

    /// Adds the extents of `range` of a file. The pool decodes the blocks that `decodes` accepts.
    /// Extents that cannot be mapped are left out: the reader that needs them reports the error.
    pub fn add(
        &mut self,
        fs: &dyn FileSystem,
        node: NodeId,
        range: Range<u64>,
        max_gap: u64,
        decodes: &dyn Fn(&Extent) -> bool,
    ) {
        let _left_to_the_reader = fs.map(node, range.clone(), &mut |extent| {
            let from = extent.logical.start.max(range.start);
            let to = extent.logical.end.min(range.end);
            if from >= to || !extent.is_addressable() {
                return ControlFlow::Continue(());
            }
            match extent.place {
                Place::Encoded { block, .. } if !decodes(&extent) => {
                    self.want(block.blob, block.stored(), Wanted::Encoded, max_gap);
                }
                Place::Zero | Place::Inline(_) => {}
                Place::Stored { blob, offset } => {
                    let start = offset + (from - extent.logical.start);
                    self.want(blob, start..start + (to - from), Wanted::Stored, max_gap);
                }
                Place::Encoded { block, .. } => {
                    self.decoded += to - from;
                    self.want(block.blob, block.stored(), Wanted::Block(block), max_gap)
                }
            }
            ControlFlow::Continue(())
        });
    }

    /// Adds the stored bytes of a block that its reader decodes.
    pub fn add_stored(&mut self, block: &EncodedBlock, max_gap: u64) {
        self.want(block.blob, block.stored(), Wanted::Encoded, max_gap);
    }

    fn want(&mut self, blob: BlobId, range: Range<u64>, wanted: Wanted, max_gap: u64) {
        let block = match wanted {
            Wanted::Block(block) => Some(block),
            Wanted::Stored | Wanted::Encoded => None,
        };
        let encoded = !matches!(wanted, Wanted::Stored);
        let joins = |run: &PlannedRequest| {
            run.blob == blob
                && range.start >= run.range.start
                && range.start <= run.range.end + max_gap
        };
        match self.runs.last_mut().filter(|run| joins(run)) {
            Some(run) => {
                let end = run.range.end.max(range.end);
                self.bytes += end - run.range.end;
                run.range.end = end;
                run.plain |= block.is_none();
                run.encoded |= encoded;
                // A block that several files share comes up once for each of them.
                run.blocks
                    .extend(block.filter(|block| run.blocks.last() != Some(block)));
            }
            None => {
                self.bytes += range.end - range.start;
                self.runs.push(PlannedRequest {
                    blob,
                    range,
                    plain: block.is_none(),
                    encoded,
                    blocks: block.into_iter().collect(),
                });
            }
        }
    }
}

/// Submits the requests of a plan to the pool, each followed by the decoding of the blocks that end
/// in it. Does not wait.
pub fn start(moves: &Arc<Moves>, plan: Plan) {
    let geometry = moves.stored.geometry();
    // At least two requests must fit the budget, so that one is read while the other is used.
    let max = geometry
        .max_request()
        .min(moves.stored.segments.budget() / 2)
        .max(geometry.block());
    for mut run in plan.runs {
        let Ok(len) = moves.stored.len(run.blob) else {
            continue;
        };
        run.blocks.retain(|block| moves.decoded.plan(block));
        if !moves.pool.has_threads() {
            // Readers make these large requests themselves, and decode all blocks.
            moves.decoded.leave(&run.blocks);
        }
        if !run.plain {
            // Blocks that are decoded already, or have a job, need not be read again.
            let starts = run.blocks.iter().map(|block| block.offset);
            let ends = run.blocks.iter().map(|block| block.stored().end);
            let (Some(start), Some(end)) = (starts.min(), ends.max()) else {
                continue;
            };
            run.range = start..end;
        }
        let stored = &moves.stored;
        let pattern = match plan.pattern {
            Pattern::Forward if !run.encoded && stored.leaves_cache(run.blob) => Pattern::Once,
            pattern => pattern,
        };
        if pattern == Pattern::Once {
            run.range = whole_pages(&run.range);
        }
        let range = run.range.start..run.range.end.min(len);
        let stats = stored.observer().stats();
        let segments = stored.segments.plan(run.blob, range, max, pattern, stats);
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
        // No segment was planned for these blocks: they lie past the end of the source, in older
        // segments, or beyond the budget.
        moves.decoded.leave(&run.blocks);
    }
}

/// Extends `range` to whole pages, as reads that bypass the page cache need them.
fn whole_pages(range: &Range<u64>) -> Range<u64> {
    let page = u64_from(forerun_io::ALIGNMENT);
    let start = range.start - range.start % page;
    start..range.end.next_multiple_of(page)
}

/// Submits one job per block, so that all threads of the pool share the work.
fn decode_each(moves: &Arc<Moves>, blocks: Vec<EncodedBlock>) {
    for block in blocks {
        let worker = Arc::clone(moves);
        moves
            .pool
            .submit(move || worker.decoded.decode_ahead(&block, &worker.stored));
    }
}
