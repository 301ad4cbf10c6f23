//! The digests of the chunks of a layer, which are kept once all of the layer had its digest.
//!
//! A manifest has one digest for a layer, so nothing of it is verified before all of it is here. Then each of its
//! chunks is known to be right, and their digests are kept: what is missing when the layer is opened again, since the
//! cache had to make room, is fetched and verified chunk by chunk.

use std::path::Path;
use std::sync::Arc;

use forerun_cache::{ChunkTable, Digest, Geometry, IndexSlot, VerifiedTable};
use forerun_io::MemorySource;

use crate::{RemoteError, Result};

/// The place where the digests of the chunks of one layer are kept.
pub struct LayerTable {
    slot: IndexSlot,
    geometry: Geometry,
}

impl LayerTable {
    /// Opens the place for a layer of this digest. Files are opened here and not later.
    pub fn open(cache: &Path, digest: Digest, geometry: Geometry) -> Result<Self> {
        let (len, size) = (geometry.len(), geometry.chunk_size());
        let identity = format!("chunks of {size} of {len} with digest {digest}");
        let slot = IndexSlot::open(cache, &identity).map_err(|error| RemoteError::Cache {
            reason: error.to_string(),
        })?;
        Ok(Self { slot, geometry })
    }

    /// Returns the table that was kept.
    pub fn load(&self) -> Option<ChunkTable> {
        let digests = self.slot.load(u64::MAX)?;
        ChunkTable::of_digests(self.geometry, digests)
    }

    /// Keeps the table of bytes that had the digest of the layer.
    pub fn keep(&self, table: &ChunkTable) {
        if let Err(error) = self.slot.store(&table.digests()) {
            tracing::debug!(%error, "the digests of the chunks of a layer could not be kept");
        }
    }
}

/// Returns a table for a blob of the cache.
///
/// # Errors
/// [`RemoteError::Refused`], at this place, for one that cannot be.
pub fn verified(table: ChunkTable, place: &str) -> Result<Arc<VerifiedTable>> {
    let (geometry, root) = (table.geometry(), table.root());
    let source = Arc::new(MemorySource::new(table.into_bytes()));
    let table = VerifiedTable::new(source, geometry, root);
    table.map(Arc::new).map_err(|error| RemoteError::Refused {
        place: place.to_owned(),
        reason: error.to_string(),
    })
}
