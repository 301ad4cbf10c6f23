//! Container images as they are: the layers of one, each verified as a whole or by its table of contents.

use std::sync::Arc;

use forerun_io::ReadAt as _;
use forerun_remote::{Identity, LayerContents, RemoteImage, RemoteOptions, Result};
use forerun_vfs::{KeepIndex, ProvenTable, TablePlace};

use crate::layers::{BY_CONTENTS, LayerSource, LazyLayer, WHOLE};

/// Bytes at the end of a layer with a footer that are fetched at once: most tables of contents fit.
const TAIL: u64 = 256 << 10;

/// Prepares the layers of a container image for [`Image::from_layers`](crate::Image::from_layers).
///
/// A layer with a table of contents that its manifest vouches for is read by it, and its parts are fetched when they are
/// wanted. Each of the others is fetched, all at once, and verified as a whole: a manifest vouches for nothing finer.
/// These come with the indexes that are kept of their archives. `progress` is called with the bytes of them that are
/// here.
///
/// # Errors
/// Those of fetching them; [`WrongDigest`](forerun_remote::RemoteError::WrongDigest).
pub fn container_layers(
    layers: Vec<Arc<RemoteImage>>,
    options: &RemoteOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<LayerSource>> {
    let mut whole = Vec::new();
    for layer in &layers {
        match table(layer) {
            Some(table) => fetch_table(layer, &table),
            None => {
                layer.prefetch_all();
                whole.push(Arc::clone(layer));
            }
        }
    }
    let here = || whole.iter().map(|layer| layer.status().local_bytes).sum();
    let prepared = layers.into_iter().map(|layer| {
        let lazy = table(&layer).map(|table| LazyLayer {
            table,
            image: Arc::clone(&layer),
        });
        let verified = match lazy {
            Some(_) => BY_CONTENTS,
            None => {
                layer.ensure_whole(&mut || progress(here()))?;
                WHOLE
            }
        };
        let (name, index) = match layer.identity() {
            Identity::Blob(digest) => {
                let digest = digest.to_string();
                let name = format!("{}, layer {digest}", layer.place());
                (name, kept_index(&digest, options))
            }
            Identity::Root(_) | Identity::Version { .. } => (layer.place().to_string(), None),
        };
        Ok(LayerSource {
            name,
            source: layer,
            index,
            verified: Some(verified),
            lazy,
        })
    });
    prepared.collect()
}

/// Returns the table of contents by which a layer can be read.
fn table(layer: &RemoteImage) -> Option<ProvenTable> {
    let contents = layer.contents().filter(|_| cfg!(feature = "tar"))?;
    Some(match *contents {
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

/// Begins to fetch the table of a layer, so that those of several layers come together.
fn fetch_table(layer: &RemoteImage, table: &ProvenTable) {
    let part = match table.place {
        TablePlace::Footer => layer.len().saturating_sub(TAIL)..layer.len(),
        TablePlace::At { offset, len, .. } => offset..offset.saturating_add(len),
    };
    layer.prefetch_part(&part);
}

/// Opens the kept index of an archive with this digest, or a place for one. Without one the archive is read again
/// each time.
#[cfg(feature = "tar")]
pub fn kept_index(digest: &str, options: &RemoteOptions) -> Option<Arc<dyn KeepIndex>> {
    let index = crate::KeptIndex::of_digest(&options.cache_dir()?, digest);
    let index = index.inspect_err(|error| tracing::debug!(%error, "no index of the layer is kept"));
    Some(Arc::new(index.ok()?))
}

/// Returns nothing: no format keeps indexes.
#[cfg(not(feature = "tar"))]
pub fn kept_index(_digest: &str, _options: &RemoteOptions) -> Option<Arc<dyn KeepIndex>> {
    None
}
