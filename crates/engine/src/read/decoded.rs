//! Encoded blocks: each decoded once, however many want it.
//!
//! A block of which every byte was served is most often not wanted again: a stream has passed it,
//! and what is above keeps pages of its own. So once a small part of the cache is full, such blocks go
//! first, and their memory, still warm, takes the next ones: page faults for fresh memory cost about
//! as much as decoding LZ4 does.

use std::collections::{HashSet, VecDeque};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun_io::{BlockCache, BlockKey, EventKind, Limits, Lookup, saturating_usize, u64_from};
use forerun_vfs::{Bound, Corrupt, EncodedBlock, Error, Result};

use super::in_flight::InFlight;
use super::stored::{Stored, Use};
use crate::Data;

/// What decoded blocks are typically long, for sizing the cache's tables.
const TYPICAL_BLOCK: u64 = 128 << 10;

/// The part of the budget from which on blocks served to the end are dropped.
const COMFORTABLE: u64 = 16;

/// The part of the budget that blocks may take while they are decoded, besides what is kept.
const IN_FLIGHT: u64 = 4;

/// Blocks served to the end that are remembered at the most.
const SPENT: usize = 1 << 16;

/// Blocks served to the end.
#[derive(Default)]
struct Spent {
    /// Those that may still be in the cache, the oldest first.
    kept: VecDeque<BlockKey>,
    /// Those that were dropped: a job that was to decode one ahead comes too late.
    dropped: HashSet<BlockKey>,
}

/// The decode cache.
pub struct Decoded {
    cache: BlockCache<Error, Block>,
    spent: Mutex<Spent>,
    /// Bytes in the cache from which on blocks served to the end are dropped.
    comfortable: u64,
    in_flight: InFlight,
    format: &'static str,
    block_limit: u32,
}

/// A decoded block.
#[derive(Clone)]
pub struct Block {
    key: BlockKey,
    data: Data,
    /// Bytes served so far.
    served: Arc<AtomicU64>,
}

impl Block {
    /// The decoded bytes.
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

impl Decoded {
    /// Decoded blocks of at most `budget` bytes; `format` is named in errors.
    pub fn new(format: &'static str, budget: u64, limits: &Limits) -> Self {
        let cache = BlockCache::new(budget, TYPICAL_BLOCK);
        Self {
            cache,
            spent: Mutex::default(),
            comfortable: budget / COMFORTABLE,
            in_flight: InFlight::new(budget / IN_FLIGHT),
            format,
            block_limit: limits.block_len,
        }
    }

    /// Name of the image's format.
    pub const fn format(&self) -> &'static str {
        self.format
    }

    /// Returns whether a block that is being planned has to be decoded ahead.
    pub fn plan(&self, block: &EncodedBlock) -> bool {
        self.lock_spent().dropped.remove(&block.key());
        !self.cache.contains(block.key())
    }

    /// Decodes a planned block, unless somebody has done so since, and perhaps is done with it.
    pub fn decode_ahead(&self, block: &EncodedBlock, stored: &Stored) {
        let key = block.key();
        if !self.cache.contains(key) && !self.lock_spent().dropped.contains(&key) {
            // The reader that needs the block gets the error when it comes to it.
            let _left_to_the_reader = self.get(block, stored);
        }
    }

    fn lock_spent(&self) -> MutexGuard<'_, Spent> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The decoded bytes, decoded by this call unless that was done or is under way. A block that
    /// does not decode is not kept.
    pub fn get(&self, block: &EncodedBlock, stored: &Stored) -> Result<Block> {
        let observer = stored.observer();
        let (bytes, lookup) = self
            .cache
            .get_or_load(block.key(), || self.decode(block, stored))?;
        let kind = match lookup {
            Lookup::Hit => EventKind::CacheHit,
            Lookup::Loaded => EventKind::CacheMiss,
        };
        observer.cache(kind, block.blob, block.offset, u64::from(block.len));
        Ok(bytes)
    }

    /// The decoded bytes for their only reader: neither looked for among what is kept, nor kept. On
    /// the way through the cache they would go to memory that no CPU has at hand, and push out what
    /// others share.
    pub fn once(&self, block: &EncodedBlock, stored: &Stored) -> Result<Data> {
        note_once(block, stored);
        Ok(self.decode(block, stored)?.into_data())
    }

    /// The same, for a block whose decoded length is known: decoded to where its reader wants it,
    /// `out`, which is as long.
    pub fn once_into(&self, block: &EncodedBlock, stored: &Stored, out: &mut [u8]) -> Result<()> {
        self.check_limit(block)?;
        note_once(block, stored);
        let _counted = self.in_flight.enter(u64::from(block.len));
        self.decode_into(block, stored, out).map(|_all| ())
    }

    /// Notes that `bytes` of a block were served.
    pub fn served(&self, block: &Block, bytes: u64) {
        let len = u64_from(block.len());
        let before = block.served.fetch_add(bytes, Ordering::Relaxed);
        if before >= len || before + bytes < len {
            return;
        }
        let mut spent = self.lock_spent();
        spent.kept.push_back(block.key);
        // One that went in takes two out, until there is room again; what the cache has dropped by
        // itself goes from the list the same way.
        for _ in 0..2 {
            if self.cache.bytes() <= self.comfortable && spent.kept.len() < SPENT {
                break;
            }
            let Some(key) = spent.kept.pop_front() else {
                break;
            };
            self.cache.remove(key);
            if spent.dropped.len() >= SPENT {
                spent.dropped.clear();
            }
            spent.dropped.insert(key);
        }
    }

    fn decode(&self, block: &EncodedBlock, stored: &Stored) -> Result<Block> {
        self.check_limit(block)?;
        let decoded_len = u64::from(block.decoded_len.max());
        let _counted = self.in_flight.enter(u64::from(block.len) + decoded_len);
        let max = saturating_usize(decoded_len);
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

    /// Decodes to the start of `out`, and gives the length.
    fn decode_into(&self, block: &EncodedBlock, stored: &Stored, out: &mut [u8]) -> Result<usize> {
        let range = block.stored();
        let encoded = match stored.slice(block.blob, &range, Use::Decode) {
            Some(slice) => slice,
            None => read_whole(block, stored)?,
        };
        let result = block.decode(&encoded, out);
        let len = result.as_ref().map_or(0, |&len| len);
        stored
            .observer()
            .decode(block.key(), u64_from(len), result.is_ok());
        result.map_err(|error| Corrupt::new(self.format, None, block.offset, error).into())
    }
}

fn note_once(block: &EncodedBlock, stored: &Stored) {
    let (offset, len) = (block.offset, u64::from(block.len));
    let observer = stored.observer();
    observer.cache(EventKind::CacheMiss, block.blob, offset, len);
}

fn read_whole(block: &EncodedBlock, stored: &Stored) -> Result<Data> {
    let len = saturating_usize(u64::from(block.len));
    let mut buffer = stored.buffers.take(len);
    stored.read(block.blob, block.offset, buffer.as_mut(), Use::Decode)?;
    let data = Data::of_buffer(Arc::new(buffer), 0..len);
    data.ok_or_else(|| Error::io(block.offset, len, std::io::ErrorKind::UnexpectedEof.into()))
}
