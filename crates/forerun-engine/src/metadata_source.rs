//! The image as its driver sees it: metadata, cached in blocks.
//!
//! A block is read once. Where blocks are wanted in rising order close to each other, as by a walk
//! over an image whose metadata is dense, the request grows and brings the next ones along; where
//! they are far apart, as headers strewn among large files, each is one small request.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use forerun_io::{
    BlockCache, BlockGeometry, BlockKey, Counted, Counter, Purpose, ReadAt, saturating_usize,
    u64_from,
};

/// A miss this close behind the last one goes on with it. Reading such a gap along costs less than
/// another request, on anything from an SD card up.
const MAX_GAP: u64 = 16 << 10;
/// Close misses in a row before requests grow.
const PATIENCE: u32 = 2;
/// Largest request for blocks that nobody asked for yet.
const MAX_STEP: u64 = 1 << 20;

/// Reads of metadata go through here.
pub struct MetadataSource {
    source: Counted,
    geometry: BlockGeometry,
    purpose: Purpose,
    budget: u64,
    cache: BlockCache<Arc<io::Error>>,
    forward: Mutex<Forward>,
}

impl std::fmt::Debug for MetadataSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetadataSource")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// Misses so far, as far as they follow each other.
#[derive(Default)]
struct Forward {
    end: u64,
    streak: u32,
    step: u64,
}

impl MetadataSource {
    /// Caches at most `budget` bytes of `source`.
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
        }
    }

    /// The same for file data, as the legacy way reads it.
    pub(crate) fn for_data(source: Counted, geometry: BlockGeometry, budget: u64) -> Self {
        Self {
            purpose: Purpose::Demand,
            ..Self::new(source, geometry, budget)
        }
    }

    /// Reads `range` ahead in requests as large as may be. Stops where it would take more than half
    /// the budget, and where the source fails: those who need the bytes will learn of it.
    pub fn prefetch(&self, range: Range<u64>) {
        let end = range.end.min(range.start.saturating_add(self.budget / 2));
        for request in self.geometry.requests(range.start..end) {
            let start = request.start;
            match self.load(request) {
                Ok(first) => self.cache.offer(self.key(start), first),
                Err(_) => return,
            }
        }
    }

    fn block(&self, range: Range<u64>) -> io::Result<Arc<[u8]>> {
        let key = self.key(range.start);
        if let Some(block) = self.cache.get(key) {
            self.count(Counter::MetadataHits);
            return Ok(block);
        }
        let (block, _) = self
            .cache
            .get_or_load(key, || {
                self.count(Counter::MetadataMisses);
                let request = self.grow(range.clone());
                // Where the larger request fails, the block itself may still be readable.
                let grown = (request.end > range.end)
                    .then(|| self.load(request).ok())
                    .flatten();
                grown.map_or_else(|| self.read(range), Ok)
            })
            .map_err(|error: Arc<io::Error>| io::Error::new(error.kind(), error))?;
        Ok(block)
    }

    /// The request to make for a block that is missing: the block, or a step from it on.
    fn grow(&self, block: Range<u64>) -> Range<u64> {
        let mut forward = self.forward.lock().unwrap_or_else(PoisonError::into_inner);
        let len = block.end - block.start;
        let close = block.start >= forward.end && block.start - forward.end <= MAX_GAP;
        if close && forward.end > 0 {
            forward.streak += 1;
        } else {
            *forward = Forward {
                end: 0,
                streak: 0,
                step: len,
            };
        }
        let max = MAX_STEP
            .min(self.geometry.max_request())
            .min(self.budget / 16);
        if forward.streak >= PATIENCE {
            forward.step = forward.step.saturating_mul(2).min(max).max(len);
        }
        let end = block.start.saturating_add(forward.step).min(self.len());
        forward.end = end.max(block.end);
        block.start..forward.end
    }

    /// Reads a request and keeps all its blocks; gives the first one.
    fn load(&self, request: Range<u64>) -> Result<Arc<[u8]>, Arc<io::Error>> {
        let bytes = self.read(request.clone())?;
        let mut first = None;
        let mut at = request.start;
        while at < request.end {
            let block = self.geometry.align(at..at + 1);
            let from = saturating_usize(at - request.start);
            let to = saturating_usize(block.end.min(request.end) - request.start);
            let part: Arc<[u8]> = bytes.get(from..to).unwrap_or_default().into();
            if first.is_none() {
                first = Some(Arc::clone(&part));
            } else if block.end <= request.end {
                self.cache.offer(self.key(at), part);
            }
            at = block.end.max(at + 1);
        }
        Ok(first.unwrap_or_default())
    }

    fn read(&self, range: Range<u64>) -> Result<Arc<[u8]>, Arc<io::Error>> {
        let mut bytes = vec![0; saturating_usize(range.end - range.start)];
        self.source
            .read(range.start, &mut bytes, self.purpose)
            .map_err(Arc::new)?;
        Ok(bytes.into())
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

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        forerun_io::past_end(offset, out.len(), self.len())?;
        let mut done = 0;
        while done < out.len() {
            let at = offset + u64_from(done);
            let range = self.geometry.align(at..at + 1);
            let skip = saturating_usize(at - range.start);
            let block = self.block(range)?;
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
