//! Facts about a layer that are not in its manifest: from the cache, from a user's file, or from an
//! artifact beside the image.

use std::path::Path;
use std::sync::Arc;

use forerun_cache::{ChunkTable, Digest, Geometry, TableTrust};

use crate::fetch::layer_digests::LayerTable;
use crate::image::RemoteImage;
use crate::image::access_list::Listing;
use crate::{LayerContents, LayerIndex};

#[derive(Default)]
pub struct LayerFacts {
    /// The chunk digests, and how far they are trusted.
    pub table: Option<(ChunkTable, TableTrust)>,
    /// The file for a table that this process computes.
    pub keep: Option<LayerTable>,
    /// The access lists; `None` for an image that is not a layer.
    pub listing: Option<Listing>,
    /// The archive's index that belongs to a table from a user's file or an artifact.
    pub archive: Option<Arc<[u8]>>,
    pub soci: Option<Arc<RemoteImage>>,
}

impl LayerFacts {
    pub fn kept(cache: &Path, digest: Digest, geometry: Geometry) -> Self {
        // An empty layer has no chunk.
        if geometry.is_empty() {
            return Self::default();
        }
        match LayerTable::open(cache, digest, geometry) {
            Ok(keep) => Self {
                table: keep.load().map(|table| (table, TableTrust::Made)),
                keep: Some(keep),
                ..Self::default()
            },
            Err(error) => {
                tracing::debug!(%error, "the digests of the chunks of a layer are not kept");
                Self::default()
            }
        }
    }

    /// Returns the digest of the table that verifies parts of the layer (`contents` or another
    /// one), unless the digest of the layer itself verifies them.
    pub fn proof(&self, contents: Option<&LayerContents>) -> Option<Digest> {
        match (contents, &self.table, &self.soci) {
            (Some(contents), _, _) => Some(contents.digest()),
            (None, Some((table, TableTrust::Claimed)), _) => Some(table.root()),
            (None, _, Some(soci)) => soci.identity.digest(),
            (None, _, None) => None,
        }
    }

    /// Uses `index` from a file or artifact, unless the cache has its own.
    pub fn or_named(mut self, index: Option<&LayerIndex>) -> Self {
        if let Some(index) = index.filter(|_| self.table.is_none()) {
            self.table = Some((index.table.clone(), TableTrust::Claimed));
            self.archive = Some(index.archive.as_slice().into());
        }
        self
    }
}
