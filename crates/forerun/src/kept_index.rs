//! Stored indexes of container layers by digest, and tables of contents that manifests name.

use std::sync::Arc;

use forerun_remote::{LayerContents, RemoteOptions};
use forerun_vfs::{KeepIndex, ProvenTable, TablePlace};

/// Opens the stored index of an archive with this digest, or prepares to store a new one. Without
/// it, the archive is read completely each time.
#[cfg(feature = "tar")]
pub fn kept_index(digest: &str, options: &RemoteOptions) -> Option<Arc<dyn KeepIndex>> {
    let index = crate::kept::KeptIndex::of_digest(&options.cache_dir()?, digest);
    let index = index.inspect_err(|error| tracing::debug!(%error, "no index of the layer is kept"));
    Some(Arc::new(index.ok()?))
}

/// Returns `None`: without archives, no format stores indexes.
#[cfg(not(feature = "tar"))]
pub fn kept_index(_digest: &str, _options: &RemoteOptions) -> Option<Arc<dyn KeepIndex>> {
    None
}

/// Returns the table of contents that a manifest gives for a layer.
pub fn proven(contents: &LayerContents) -> Option<ProvenTable> {
    Some(match *contents {
        LayerContents::Soci { .. } => return None,
        LayerContents::EStargz { digest } => ProvenTable {
            digest: digest.0,
            place: TablePlace::Footer,
        },
        LayerContents::ZstdChunked {
            digest,
            offset,
            len,
            decoded_len,
        } => ProvenTable {
            digest: digest.0,
            place: TablePlace::At {
                offset,
                len,
                decoded_len,
            },
        },
    })
}
