//! The device as it was last read or written, cached in blocks of 4 KiB.

use std::io;
use std::ops::Range;
use std::sync::{Arc, RwLock};

use crate::Unpoisoned;
use crate::{
    BlobId, BlockCache, BlockKey, CountedDevice, Counter, Purpose, Structure, u64_from, usize_from,
};

/// The shortest read, which is cached as one block.
const BLOCK: u64 = 4096;
pub const MAX_REQUEST: u64 = 1 << 20;

/// A cache of reads of the device, and the names of its regions.
#[derive(Debug)]
pub struct Clean {
    device: CountedDevice,
    blocks: BlockCache<()>,
    regions: RwLock<Vec<(Range<u64>, Structure)>>,
}

impl Clean {
    pub fn new(device: CountedDevice, budget: u64) -> Self {
        Self {
            device,
            blocks: BlockCache::new(budget, BLOCK),
            regions: RwLock::default(),
        }
    }

    pub const fn device(&self) -> &CountedDevice {
        &self.device
    }

    /// Sets the structures of regions, for the trace.
    pub fn name(&self, regions: Vec<(Range<u64>, Structure)>) {
        *self.regions.write().unpoisoned() = regions;
    }

    pub fn structure(&self, offset: u64) -> Structure {
        let regions = self.regions.read().unpoisoned();
        let found = regions.iter().find(|(range, _)| range.contains(&offset));
        found.map_or(Structure::Metadata, |(_, structure)| *structure)
    }

    /// Reads through the cache, with as few requests as possible for the missing blocks. The range
    /// lies inside the device.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + u64_from(out.len());
        let mut at = range.start - range.start % BLOCK;
        let mut missing = at..at;
        while at < range.end {
            match self.blocks.get(key(at)) {
                Some(block) => {
                    self.device.observer().stats().add(Counter::MetadataHits, 1);
                    self.load(&missing, offset, out)?;
                    give(&block, at, offset, out);
                    missing = at + BLOCK..at + BLOCK;
                }
                None => missing.end = at + BLOCK,
            }
            at += BLOCK;
            if missing.end - missing.start >= MAX_REQUEST {
                self.load(&missing, offset, out)?;
                missing = at..at;
            }
        }
        self.load(&missing, offset, out)
    }

    fn load(&self, missing: &Range<u64>, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = missing.end.min(self.device.len());
        if missing.start >= end {
            return Ok(());
        }
        let mut bytes = vec![0; usize_from(end - missing.start)];
        let structure = self.structure(missing.start);
        self.device
            .read(missing.start, &mut bytes, Purpose::Metadata, structure)?;
        let stats = self.device.observer().stats();
        for (block, at) in bytes
            .chunks(usize_from(BLOCK))
            .zip((missing.start..).step_by(usize_from(BLOCK)))
        {
            stats.add(Counter::MetadataMisses, 1);
            self.blocks.offer(key(at), Arc::from(block));
        }
        give(&bytes, missing.start, offset, out);
        Ok(())
    }

    /// Records that `written` is on the device now. No thread may read meanwhile.
    pub fn update(&self, offset: u64, written: &[u8]) {
        let end = offset + u64_from(written.len());
        let mut at = offset - offset % BLOCK;
        while at < end {
            if let Some(block) = self.blocks.get(key(at)) {
                let mut changed = block.to_vec();
                give(written, offset, at, &mut changed);
                self.blocks.remove(key(at));
                self.blocks.offer(key(at), changed.into());
            }
            at += BLOCK;
        }
    }
}

const fn key(at: u64) -> BlockKey {
    BlockKey::at(BlobId::IMAGE, at)
}

/// Copies the bytes of `from` that overlap `out`. `from_at` and `out_at` are the offsets of both.
pub fn give(from: &[u8], from_at: u64, out_at: u64, out: &mut [u8]) {
    let start = from_at.max(out_at);
    let skipped = usize_from(start - from_at);
    let source = from.get(skipped..).unwrap_or_default();
    let ahead = usize_from(start - out_at);
    let target = out.get_mut(ahead..).unwrap_or_default();
    let len = target.len().min(source.len());
    if let (Some(target), Some(source)) = (target.get_mut(..len), source.get(..len)) {
        target.copy_from_slice(source);
    }
}
