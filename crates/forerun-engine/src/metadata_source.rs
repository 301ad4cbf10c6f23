//! The image as its driver sees it: metadata, cached in blocks.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use forerun_io::{
    BlockCache, BlockGeometry, BlockKey, Counted, Purpose, ReadAt, saturating_usize, u64_from,
};

/// Reads of metadata go through here, so that a block of it is read once.
pub struct MetadataSource {
    source: Counted,
    geometry: BlockGeometry,
    cache: BlockCache<Arc<io::Error>>,
}

impl MetadataSource {
    /// Caches at most `budget` bytes of `source`.
    #[must_use]
    pub fn new(source: Counted, geometry: BlockGeometry, budget: u64) -> Self {
        Self {
            source,
            geometry,
            cache: BlockCache::new(budget, geometry.block()),
        }
    }

    fn block(&self, range: Range<u64>) -> io::Result<Arc<[u8]>> {
        let key = BlockKey {
            blob: self.source.blob(),
            offset: range.start,
        };
        let loaded = self.cache.get_or_load(key, || {
            let mut block = vec![0; saturating_usize(range.end - range.start)];
            self.source
                .read(range.start, &mut block, Purpose::Metadata)?;
            Ok(block.into())
        });
        Ok(loaded
            .map_err(|error: Arc<io::Error>| io::Error::new(error.kind(), error))?
            .0)
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
            let block = self.block(range.clone())?;
            let from = block
                .get(saturating_usize(at - range.start)..)
                .unwrap_or_default();
            let len = from.len().min(out.len() - done);
            out[done..done + len].copy_from_slice(&from[..len]);
            done += len;
        }
        Ok(())
    }
}
