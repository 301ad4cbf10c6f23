//! Stores the digests of a layer's chunks once the whole layer was verified.
//!
//! A manifest has one digest for a layer, so no byte is verified before the whole layer has
//! arrived. Then each chunk is known to be right, and the digests of the chunks are stored. If the
//! cache evicts the layer, it can later be fetched and verified chunk by chunk.

use std::path::Path;
use std::sync::Arc;

use forerun_cache::{ChunkTable, Digest, Geometry, IndexSlot, VerifiedTable};
use forerun_io::MemorySource;

use crate::error::cache_error;
use crate::{RemoteError, Result};

/// The file that stores the chunk digests of one layer.
pub struct LayerTable {
    slot: IndexSlot,
    geometry: Geometry,
}

impl LayerTable {
    /// Opens the file for the layer with this digest. Later calls open no further files.
    pub fn open(cache: &Path, digest: Digest, geometry: Geometry) -> Result<Self> {
        let (len, size) = (geometry.len(), geometry.chunk_size());
        let identity = format!("chunks of {size} of {len} with digest {digest}");
        let slot = IndexSlot::open(cache, &identity).map_err(|error| cache_error(&error))?;
        Ok(Self { slot, geometry })
    }

    pub fn load(&self) -> Option<ChunkTable> {
        let digests = self.slot.load(u64::MAX)?;
        ChunkTable::of_digests(self.geometry, digests)
    }

    pub fn keep(&self, table: &ChunkTable) {
        if let Err(error) = self.slot.store(&table.digests()) {
            tracing::debug!(%error, "the digests of the chunks of a layer could not be kept");
        }
    }
}

/// Converts a table for use by a blob of the cache. Refuses an inconsistent table; `place` is for
/// the error.
pub fn verified(table: ChunkTable, place: &str) -> Result<Arc<VerifiedTable>> {
    let (geometry, root) = (table.geometry(), table.root());
    let source = Arc::new(MemorySource::new(table.into_bytes()));
    let table = VerifiedTable::new(source, geometry, root);
    table.map(Arc::new).map_err(|error| RemoteError::Refused {
        place: place.to_owned(),
        reason: error.to_string(),
    })
}
