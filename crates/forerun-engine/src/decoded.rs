//! Encoded blocks: each decoded once, however many want it.

use std::sync::Arc;

use forerun_io::{BlockCache, EventKind, Limits, Lookup, saturating_usize};
use forerun_vfs::{Corrupt, EncodedBlock, Error, Result};

use crate::stored::Stored;

/// What decoded blocks are typically long, for sizing the cache's tables.
const TYPICAL_BLOCK: u64 = 128 << 10;

/// The decode cache.
pub struct Decoded {
    cache: BlockCache<Error>,
    format: &'static str,
    block_limit: u32,
}

impl Decoded {
    /// Decoded blocks of at most `budget` bytes; `format` is named in errors.
    pub fn new(format: &'static str, budget: u64, limits: &Limits) -> Self {
        let cache = BlockCache::new(budget, TYPICAL_BLOCK);
        Self {
            cache,
            format,
            block_limit: limits.block_len,
        }
    }

    /// Name of the image's format.
    pub const fn format(&self) -> &'static str {
        self.format
    }

    pub fn contains(&self, block: &EncodedBlock) -> bool {
        self.cache.contains(block.key())
    }

    /// The decoded bytes, decoded by this call unless that was done or is under way. A block that
    /// does not decode is not kept.
    pub fn get(&self, block: &EncodedBlock, stored: &Stored) -> Result<Arc<[u8]>> {
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

    fn decode(&self, block: &EncodedBlock, stored: &Stored) -> Result<Arc<[u8]>> {
        let largest = block.len.max(block.decoded_len);
        if largest > self.block_limit {
            let what = format!("block of {largest} bytes at offset {:#x}", block.offset);
            return Err(Error::limit(what, u64::from(self.block_limit)));
        }
        let range = block.stored();
        let encoded = match stored.slice(block.blob, &range) {
            Some(slice) => slice,
            None => read_whole(block, stored)?,
        };
        let mut bytes = zeroed(saturating_usize(u64::from(block.decoded_len)));
        // Just made, so nobody shares it.
        let out = Arc::get_mut(&mut bytes).unwrap_or_default();
        let result = block.codec.decode(&encoded, out);
        stored
            .observer()
            .decode(block.key(), u64::from(block.decoded_len), result.is_ok());
        match result {
            Ok(()) => Ok(bytes),
            Err(error) => Err(Corrupt::new(self.format, None, block.offset, error).into()),
        }
    }
}

fn read_whole(block: &EncodedBlock, stored: &Stored) -> Result<crate::Data> {
    let len = saturating_usize(u64::from(block.len));
    let mut buffer = stored.buffers.take(len);
    stored.read(block.blob, block.offset, buffer.as_mut())?;
    let data = crate::Data::of_buffer(Arc::new(buffer), 0..len);
    data.ok_or_else(|| Error::io(block.offset, len, std::io::ErrorKind::UnexpectedEof.into()))
}

/// An `Arc` of zeros made in place: from a `Vec` it would be copied.
fn zeroed(len: usize) -> Arc<[u8]> {
    std::iter::repeat_n(0, len).collect()
}
