//! The decode cache: each block is decoded once, however many reads want it.
//!
//! A block of which every byte was served is seldom wanted again: a stream has passed it, and the
//! caller caches the data (a mount's page cache). So once a small fraction of the cache is full,
//! such blocks are evicted first. Their memory, still warm, takes the next blocks: the page faults
//! of fresh memory cost about as much as decoding LZ4.
//!
//! A long list of small files wants each block once, for all of its files, and serves few blocks to
//! the end. Such a block is cached only when it is decoded a second time.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::{
    BlockCache, BlockKey, EventKind, Limits, Lookup, Unpoisoned, u64_from, usize_from,
};
use forerun_vfs::{Bound, Corrupt, EncodedBlock, Error, Result};

use super::claims::{Claims, Planning};
use super::in_flight::InFlight;
use super::stored::{Stored, Use};
use crate::Data;
use crate::recent::Recent;
use crate::tuning::{DECODING_SHARE, PASSED_BLOCKS, PASSING_SHARE, SERVED_BLOCKS, SERVED_SHARE};

/// Typical length of a decoded block, from which the cache sizes its tables.
const TYPICAL_BLOCK: u64 = 128 << 10;

pub struct Decoded {
    cache: BlockCache<Error, Block>,
    claims: Claims,
    /// Blocks served to the end that may still be cached, oldest first.
    served: Mutex<VecDeque<BlockKey>>,
    passed: Mutex<Recent<BlockKey, ()>>,
    /// Bytes in the cache above which blocks served to the end are evicted.
    comfortable: u64,
    /// Bytes that one list may add to the cache in blocks that it wants once.
    passing: u64,
    in_flight: InFlight,
    format: &'static str,
    block_limit: u32,
}

#[derive(Clone)]
pub struct Block {
    key: BlockKey,
    data: Data,
    served: Arc<AtomicU64>,
}

impl Block {
    pub fn into_data(self) -> Data {
        self.data
    }
}

impl Deref for Block {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data
    }
}

/// Bytes that a list may still add to the cache.
#[derive(Debug)]
pub struct Allowance(AtomicU64);

impl Allowance {
    /// Takes `bytes` from the allowance. Returns false, and takes nothing, if too few are left.
    fn take(&self, bytes: u64) -> bool {
        let order = Ordering::Relaxed;
        let take = |left: u64| left.checked_sub(bytes);
        self.0.fetch_update(order, order, take).is_ok()
    }
}

impl Decoded {
    /// Creates a cache of at most `budget` bytes of decoded blocks. Error messages name `format`.
    pub fn new(format: &'static str, budget: u64, limits: &Limits) -> Self {
        let cache = BlockCache::new(budget, TYPICAL_BLOCK);
        Self {
            cache,
            claims: Claims::default(),
            served: Mutex::default(),
            passed: Mutex::new(Recent::new(PASSED_BLOCKS)),
            comfortable: budget / SERVED_SHARE,
            passing: budget / PASSING_SHARE,
            in_flight: InFlight::new(budget / DECODING_SHARE),
            format,
            block_limit: limits.block_len,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.cache.bytes()
    }

    pub const fn format(&self) -> &'static str {
        self.format
    }

    pub fn is_cached(&self, block: &EncodedBlock) -> bool {
        self.cache.contains(block.key())
    }

    /// Records that a plan is being made, until the result is dropped.
    pub fn planning(&self) -> Planning<'_> {
        self.claims.planning()
    }

    /// Plans to decode a block ahead. Returns whether it needs a job.
    pub fn plan(&self, block: &EncodedBlock) -> bool {
        !self.cache.contains(block.key()) && self.claims.plan(block.key())
    }

    /// Withdraws planned blocks, so that their readers decode them.
    pub fn leave(&self, blocks: &[EncodedBlock]) {
        for block in blocks {
            self.claims.leave(block.key());
        }
    }

    /// Runs the job of a planned block, unless a reader has claimed the block.
    pub fn decode_ahead(&self, block: &EncodedBlock, stored: &Stored) {
        self.claims.work(block.key(), || {
            // The reader that needs the block reports the error.
            let _left_to_the_reader = self.get(block, stored);
        });
    }

    /// Claims a block for a reader that will decode it into its answer. Returns false if the block
    /// is cached or is being decoded into the cache.
    pub fn take(&self, block: &EncodedBlock) -> bool {
        // The order matters: a job caches the block before its claim ends.
        self.claims.take(block.key()) && !self.cache.contains(block.key())
    }

    fn lock_served(&self) -> MutexGuard<'_, VecDeque<BlockKey>> {
        self.served.lock().unpoisoned()
    }

    /// Returns a decoded block. Decodes it unless it is cached or another thread is decoding it. A
    /// block that fails to decode is not cached.
    pub fn get(&self, block: &EncodedBlock, stored: &Stored) -> Result<Block> {
        let observer = stored.observer();
        let (bytes, lookup) = self.cache.get_or_load(block.key(), || {
            let _is_its_job_or_takes_it = self.claims.take(block.key());
            self.decode(block, stored)
        })?;
        let kind = match lookup {
            Lookup::Hit => EventKind::CacheHit,
            Lookup::Loaded => EventKind::CacheMiss,
        };
        observer.cache(kind, block.blob, block.offset, u64::from(block.len));
        Ok(bytes)
    }

    pub const fn allowance(&self) -> Allowance {
        Allowance(AtomicU64::new(self.passing))
    }

    /// Returns a decoded block as [`get`](Self::get) does, for a list that wants it once. A block
    /// that is neither cached nor decoded before is cached only within the allowance. Otherwise the
    /// memory of another block takes it.
    pub fn get_in_passing(
        &self,
        block: &EncodedBlock,
        stored: &Stored,
        allowance: &Allowance,
    ) -> Result<Block> {
        let len = u64::from(block.decoded_len.max());
        if !self.take(block) || allowance.take(len) || self.has_passed(block.key()) {
            return self.get(block, stored);
        }
        note_once(block, stored);
        self.decode(block, stored)
    }

    /// Returns whether a block was decoded before without being cached, and remembers it.
    fn has_passed(&self, key: BlockKey) -> bool {
        let mut passed = self.passed.lock().unpoisoned();
        let is_known = passed.get(key).is_some();
        if !is_known {
            passed.insert(key, ());
        }
        is_known
    }

    /// Decodes a block that the caller has [claimed](Self::take), without caching it. In the cache,
    /// the block would use cold memory and evict blocks that other reads share.
    pub fn once(&self, block: &EncodedBlock, stored: &Stored) -> Result<Data> {
        note_once(block, stored);
        Ok(self.decode(block, stored)?.into_data())
    }

    /// Decodes a claimed block of known length into `out`, which must be as long.
    pub fn once_into(&self, block: &EncodedBlock, stored: &Stored, out: &mut [u8]) -> Result<()> {
        self.check_limit(block)?;
        note_once(block, stored);
        let _counted = self.in_flight.enter(u64::from(block.len));
        self.decode_into(block, stored, out).map(|_all| ())
    }

    /// Records that `bytes` of a block were served. Evicts blocks served to the end while the cache
    /// is too full.
    pub fn served(&self, block: &Block, bytes: u64) {
        let len = u64_from(block.len());
        let before = block.served.fetch_add(bytes, Ordering::Relaxed);
        if before >= len || before + bytes < len {
            return;
        }
        let mut served = self.lock_served();
        served.push_back(block.key);
        // Each new key removes up to two old ones, until the cache has room again. Keys of blocks
        // that the cache has evicted itself leave the list the same way.
        for _ in 0..2 {
            if self.cache.bytes() <= self.comfortable && served.len() < SERVED_BLOCKS {
                break;
            }
            let Some(key) = served.pop_front() else {
                break;
            };
            self.cache.remove(key);
        }
    }

    /// Returns a cached block, unless it was served to its end.
    pub fn unserved(&self, block: &EncodedBlock) -> Option<Block> {
        let block = self.cache.get(block.key())?;
        let served = block.served.load(Ordering::Relaxed);
        (served < u64_from(block.len())).then_some(block)
    }

    fn decode(&self, block: &EncodedBlock, stored: &Stored) -> Result<Block> {
        self.check_limit(block)?;
        let decoded_len = u64::from(block.decoded_len.max());
        let _counted = self.in_flight.enter(u64::from(block.len) + decoded_len);
        let max = usize_from(decoded_len);
        let mut buffer = stored.buffers.take(max);
        let len = self.decode_into(block, stored, buffer.as_mut())?;
        Ok(Block {
            key: block.key(),
            data: Data::of_buffer(Arc::new(buffer), 0..len).unwrap_or_default(),
            served: Arc::default(),
        })
    }

    fn check_limit(&self, block: &EncodedBlock) -> Result<()> {
        let largest = block.len.max(block.decoded_len.max());
        if largest > self.block_limit {
            let what = format!("block of {largest} bytes at offset {:#x}", block.offset);
            return Err(Error::limit(
                Bound::Other,
                what,
                u64::from(self.block_limit),
            ));
        }
        Ok(())
    }

    /// Decodes a block into the start of `out`, verifies it, and returns its length.
    fn decode_into(&self, block: &EncodedBlock, stored: &Stored, out: &mut [u8]) -> Result<usize> {
        let range = block.stored();
        let encoded = match stored.slice(block.blob, &range, Use::Decode) {
            Some(slice) => slice,
            None => read_whole(block, stored)?,
        };
        let driver = stored.capabilities();
        if let Some(verifier) = driver.verifier {
            let verified = verifier.verify_stored(block, &encoded);
            verified.inspect_err(|_| stored.distrust(block.blob, &range))?;
        }
        let history = match driver.history {
            Some(history) if block.codec.refers_back() => history.history(block)?,
            _ => Vec::new(),
        };
        let timer = stored.observer().timer();
        let result = block.decode_after(&history, &encoded, out);
        let len = result.as_ref().map_or(0, |&len| len);
        stored
            .observer()
            .decode(timer, block.key(), u64_from(len), result.is_ok());
        let decoded = result.map_err(|error| {
            let corrupt = Corrupt::new(self.format, None, block.offset, error);
            stored.in_image(block.blob, corrupt.into())
        });
        let verified = decoded.and_then(|len| {
            if let Some(verifier) = driver.verifier {
                verifier.verify(block, &out[..len])?;
            }
            Ok(len)
        });
        verified.inspect_err(|_| stored.distrust(block.blob, &range))
    }
}

fn note_once(block: &EncodedBlock, stored: &Stored) {
    let (offset, len) = (block.offset, u64::from(block.len));
    let observer = stored.observer();
    observer.cache(EventKind::CacheMiss, block.blob, offset, len);
}

fn read_whole(block: &EncodedBlock, stored: &Stored) -> Result<Data> {
    let len = usize_from(u64::from(block.len));
    let mut buffer = stored.buffers.take(len);
    stored.read(block.blob, block.offset, buffer.as_mut(), Use::Decode)?;
    let data = Data::of_buffer(Arc::new(buffer), 0..len);
    data.ok_or_else(|| Error::io(block.offset, len, std::io::ErrorKind::UnexpectedEof.into()))
}
