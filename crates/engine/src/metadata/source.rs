//! The source through which a driver reads metadata, cached in blocks.
//!
//! Parts that the driver names as metadata are read in large requests from the first access on
//! (`dense.rs`). Other blocks are read on demand, those of one read in one request. If they are
//! wanted in ascending order, close to each other, the request grows and covers the next ones. If
//! they are interleaved with data, each is one small request; after many of them, the kernel reads
//! ahead the parts around them (`hints.rs`).

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use forerun_io::{
    BlockCache, BlockGeometry, BlockKey, Counted, Counter, Purpose, ReadAt, Unpoisoned, u64_from,
    usize_from,
};

use forerun_vfs::{FileSystem, NodeId};

use super::dense::Dense;
use super::hints::Hints;
use crate::tuning::{CLOSE_MISSES, METADATA_CHUNK, METADATA_GAP, METADATA_STEP};

/// Smallest block size with hints. The legacy mode has smaller blocks and no readahead.
const MIN_HINTED_BLOCK: u64 = 4096;

pub struct MetadataSource {
    source: Counted,
    geometry: BlockGeometry,
    purpose: Purpose,
    budget: u64,
    cache: BlockCache<Arc<io::Error>>,
    forward: Mutex<Forward>,
    dense: OnceLock<Dense>,
    guesses: bool,
}

impl std::fmt::Debug for MetadataSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetadataSource")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// The current sequential run of misses, and the state of hints.
#[derive(Default)]
struct Forward {
    end: u64,
    streak: u32,
    step: u64,
    hints: Hints,
    ignores_hints: bool,
    /// Whether callers announce what they want with [`MetadataSource::expect`], so that this source
    /// need not guess.
    has_expectations: bool,
}

impl MetadataSource {
    #[must_use]
    pub fn new(source: Counted, geometry: BlockGeometry, budget: u64) -> Self {
        let cache = BlockCache::new(budget, geometry.block());
        let forward = Mutex::default();
        Self {
            source,
            geometry,
            purpose: Purpose::Metadata,
            budget,
            cache,
            forward,
            dense: OnceLock::new(),
            guesses: true,
        }
    }

    /// Sets whether metadata at unknown offsets is read ahead by guess. Without guesses each wanted
    /// block is one request, and only the parts that a driver names are read ahead.
    #[must_use]
    pub const fn guessing(mut self, guesses: bool) -> Self {
        self.guesses = guesses;
        self
    }

    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        self.cache.bytes()
    }

    /// Sets the parts that are metadata. Only the first non-empty call counts. Without it, all
    /// metadata is read as if it were interleaved with data.
    pub fn set_ranges(&self, ranges: Vec<Range<u64>>) {
        if ranges.is_empty() {
            return;
        }
        let _only_the_first = self.dense.get_or_init(|| {
            let most = self.geometry.max_request();
            Dense::new(ranges, self.len(), self.budget / 4 * 3, most)
        });
    }

    /// Creates a source for file data, as the legacy mode reads it.
    pub(crate) fn for_data(source: Counted, geometry: BlockGeometry, budget: u64) -> Self {
        Self {
            purpose: Purpose::Demand,
            ..Self::new(source, geometry, budget)
        }
    }

    #[must_use]
    pub fn has_ranges(&self) -> bool {
        self.dense.get().is_some()
    }

    /// Reads ahead the parts that are metadata, in the largest possible requests, but of each part
    /// at most half the capacity of the chunk cache. Stops if the source fails: the reader that
    /// needs the bytes gets the error.
    pub fn prefetch(&self) {
        if let Some(dense) = self.dense.get() {
            let _left_to_the_reader = dense.prefetch(&|request| self.fill(&request));
        }
    }

    /// Announces that the inodes of these nodes will be wanted, if the driver can locate them.
    /// Inodes at most `max_gap` bytes apart share one request, which includes the bytes between
    /// them.
    pub fn expect_inodes(&self, fs: &dyn FileSystem, nodes: &[NodeId], max_gap: u64) {
        if let Some(layout) = fs.capabilities().layout {
            let places = nodes.iter().filter_map(|&node| layout.inode_offset(node));
            self.expect(places.collect(), max_gap);
        }
    }

    /// Returns whether [`expect`](Self::expect) has an effect. It has none if metadata is read in
    /// large requests, if blocks are smaller than a page, or if the source ignores hints.
    pub fn takes_expectations(&self) -> bool {
        let is_read_by_pages = self.geometry.block() >= MIN_HINTED_BLOCK;
        is_read_by_pages && !self.has_ranges() && !self.lock_forward().ignores_hints
    }

    /// Announces that the blocks at `places` will be wanted soon. Requests all that are not cached
    /// from the store below, so that a reader does not wait for each in turn. Blocks at most
    /// `max_gap` bytes apart share one request, which includes the bytes between them.
    pub fn expect(&self, mut places: Vec<u64>, max_gap: u64) {
        if !self.takes_expectations() {
            return;
        }
        places.retain(|&place| place < self.len());
        if !places.is_empty() {
            self.lock_forward().has_expectations = true;
        }
        places.sort_unstable();
        let mut wanted: Option<Range<u64>> = None;
        for place in places {
            let block = self.geometry.align(place..place + 1);
            let is_in = |range: &Range<u64>| block.end <= range.end;
            if wanted.as_ref().is_some_and(is_in) || self.cache.contains(self.key(block.start)) {
                continue;
            }
            match &mut wanted {
                Some(range) if block.start - range.end <= max_gap => range.end = block.end,
                _ => {
                    let whole = wanted.replace(block);
                    if whole.is_some_and(|range| !self.ask_for(range)) {
                        return;
                    }
                }
            }
        }
        wanted.map(|range| self.ask_for(range));
    }

    /// Hints `range` to the store. Returns false if the store ignores hints.
    fn ask_for(&self, range: Range<u64>) -> bool {
        if self.lock_forward().ignores_hints {
            return false;
        }
        let is_taken = self.source.will_need(range);
        self.lock_forward().ignores_hints = !is_taken;
        is_taken
    }

    /// Returns whether a read of several blocks is one request.
    fn joins_blocks(&self) -> bool {
        self.purpose == Purpose::Metadata && self.geometry.block() >= MIN_HINTED_BLOCK
    }

    fn lock_forward(&self) -> MutexGuard<'_, Forward> {
        self.forward.lock().unpoisoned()
    }

    /// Returns the offset and the bytes of the metadata chunk around `offset`, or `None` if
    /// `offset` is in no chunk or the chunk cannot be read.
    fn dense(&self, offset: u64) -> Option<(u64, Arc<[u8]>)> {
        let missed = Cell::new(false);
        let found = self.dense.get()?.get(offset, &|request| {
            missed.set(true);
            self.fill(&request)
        })?;
        self.count(if missed.get() {
            Counter::MetadataMisses
        } else {
            Counter::MetadataHits
        });
        // If the chunk cannot be read, the wanted block may still be readable.
        found.ok()
    }

    /// Returns the block at `range`. On a miss, the request also covers the blocks up to `wanted`,
    /// which the same read needs next.
    fn block(&self, range: Range<u64>, wanted: u64) -> io::Result<Arc<[u8]>> {
        let key = self.key(range.start);
        if let Some(block) = self.cache.get(key) {
            self.count(Counter::MetadataHits);
            return Ok(block);
        }
        let (block, _) = self
            .cache
            .get_or_load(key, || {
                self.count(Counter::MetadataMisses);
                // The kernel reads this part ahead. Larger requests would be no cheaper and would
                // mostly read file data.
                let guess = if !self.guesses || self.hint(&range) {
                    range.clone()
                } else {
                    self.grow(range.clone())
                };
                let most = range.start + self.geometry.max_request();
                let request = range.start..guess.end.max(wanted.min(most).min(self.len()));
                // If the larger request fails, the block itself may still be readable.
                let grown = (request.end > range.end)
                    .then(|| self.load(request).ok())
                    .flatten();
                grown.map_or_else(|| self.read_block(range), Ok)
            })
            .map_err(|error: Arc<io::Error>| io::Error::new(error.kind(), error))?;
        Ok(block)
    }

    /// Returns the request to make for a missing block: the block alone, or a longer range that
    /// starts with it.
    fn grow(&self, block: Range<u64>) -> Range<u64> {
        let mut forward = self.lock_forward();
        let len = block.end - block.start;
        let close = block.start >= forward.end && block.start - forward.end <= METADATA_GAP;
        if close && forward.end > 0 {
            forward.streak += 1;
        } else {
            (forward.end, forward.streak, forward.step) = (0, 0, len);
        }
        let max = METADATA_STEP
            .min(self.geometry.max_request())
            .min(self.budget / 16);
        if forward.streak >= CLOSE_MISSES {
            forward.step = (forward.step * 2).min(max).max(len);
        }
        let end = (block.start + forward.step).min(self.len());
        forward.end = end.max(block.end);
        block.start..forward.end
    }

    /// Hints the part of the image that will probably be wanted. Returns true if only `block` need
    /// be read, because it was hinted or because callers announce what they want.
    fn hint(&self, block: &Range<u64>) -> bool {
        if !self.joins_blocks() {
            return false;
        }
        let mut forward = self.lock_forward();
        if forward.ignores_hints {
            return false;
        }
        if forward.has_expectations {
            return true;
        }
        let hint = forward.hints.on_miss(block.start, self.len());
        let is_hinted = forward.hints.covers(block.start);
        drop(forward);
        hint.is_none_or(|hint| self.ask_for(hint)) && is_hinted
    }

    /// Reads a request, caches its blocks, and returns the first.
    fn load(&self, request: Range<u64>) -> Result<Arc<[u8]>, Arc<io::Error>> {
        let bytes = self.read(request.clone())?;
        let mut first: Option<Arc<[u8]>> = None;
        let mut at = request.start;
        while at < request.end {
            let block = self.geometry.align(at..at + 1);
            let from = usize_from(at - request.start);
            let to = usize_from(block.end.min(request.end) - request.start);
            let part: Arc<[u8]> = bytes[from..to].into();
            if first.is_none() {
                first = Some(Arc::clone(&part));
            } else if block.end <= request.end {
                self.cache.offer(self.key(at), part);
            }
            at = block.end.max(at + 1);
        }
        Ok(first.unwrap_or_default())
    }

    /// Reads `range`, except for blocks that were cached before the driver named its metadata. A
    /// few cached blocks between others are read again if that costs less than one more request.
    fn fill(&self, range: &Range<u64>) -> Result<Vec<u8>, Arc<io::Error>> {
        let mut bytes = vec![0; usize_from(range.end - range.start)];
        self.fill_into(range, &mut bytes).map_err(Arc::new)?;
        Ok(bytes)
    }

    fn fill_into(&self, range: &Range<u64>, bytes: &mut [u8]) -> io::Result<()> {
        let place = |part: &Range<u64>| {
            usize_from(part.start - range.start)..usize_from(part.end - range.start)
        };
        let mut missing: Vec<Range<u64>> = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let block = self.geometry.align(at..at + 1);
            let part = at..block.end.min(range.end);
            at = part.end;
            let cached = (part == block).then(|| self.cache.get(self.key(block.start)));
            match (cached.flatten(), missing.last_mut()) {
                (Some(there), _) => bytes[place(&part)].copy_from_slice(&there),
                (None, Some(last)) if part.start - last.end < METADATA_GAP => last.end = part.end,
                (None, _) => missing.push(part),
            }
        }
        for part in missing {
            let mut at = part.start;
            let most = usize_from(self.geometry.max_request());
            for out in bytes[place(&part)].chunks_mut(most) {
                self.source.read(at, out, self.purpose)?;
                at += u64_from(out.len());
            }
        }
        Ok(())
    }

    /// Reads a block directly into the memory that the cache keeps.
    fn read_block(&self, range: Range<u64>) -> Result<Arc<[u8]>, Arc<io::Error>> {
        let len = usize_from(range.end - range.start);
        let mut block: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        let out = Arc::make_mut(&mut block);
        self.source
            .read(range.start, out, self.purpose)
            .map_err(Arc::new)?;
        Ok(block)
    }

    fn read(&self, range: Range<u64>) -> Result<Vec<u8>, Arc<io::Error>> {
        let mut bytes = vec![0; usize_from(range.end - range.start)];
        self.source
            .read(range.start, &mut bytes, self.purpose)
            .map_err(Arc::new)?;
        Ok(bytes)
    }

    fn count(&self, counter: Counter) {
        if self.purpose == Purpose::Metadata {
            self.source.observer().stats().add(counter, 1);
        }
    }

    const fn key(&self, offset: u64) -> BlockKey {
        BlockKey::at(self.source.blob(), offset)
    }
}

impl ReadAt for MetadataSource {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        self.source.will_need(range)
    }

    fn distrust(&self, range: Range<u64>) {
        self.source.distrust(range);
    }

    fn is_slow(&self) -> bool {
        self.source.is_slow()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        forerun_io::past_end(offset, out.len(), self.len())?;
        let end = offset + u64_from(out.len());
        let joins = self.joins_blocks();
        if joins && u64_from(out.len()) >= METADATA_CHUNK && !self.has_ranges() {
            // Its caller goes through it once: in the cache it would only replace other blocks.
            self.count(Counter::MetadataMisses);
            return self.fill_into(&(offset..end), out);
        }
        let mut done = 0;
        while done < out.len() {
            let at = offset + u64_from(done);
            let (start, block) = match self.dense(at) {
                Some(found) => found,
                None => {
                    let range = self.geometry.align(at..at + 1);
                    let together = if joins { end } else { range.end };
                    let wanted = self.geometry.align(at..together).end;
                    (range.start, self.block(range, wanted)?)
                }
            };
            let skip = usize_from(at - start);
            let from = block.get(skip..).unwrap_or_default();
            let len = from.len().min(out.len() - done);
            if len == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            out[done..done + len].copy_from_slice(&from[..len]);
            done += len;
        }
        Ok(())
    }
}
