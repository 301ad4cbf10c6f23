//! Container images as they are: the layers of one, each verified as a whole, by its table of contents, or by an index
//! that was made when it was verified as a whole.

use std::sync::Arc;

use forerun_io::ReadAt as _;
use forerun_remote::{Identity, LayerContents, RemoteImage, RemoteOptions};
use forerun_vfs::{KeepIndex, ProvenTable, TablePlace};

use crate::layer_source::{BY_CONTENTS, BY_INDEX, LayerSource, LazyLayer};

/// Bytes at the end of a layer with a footer that are fetched at once: most tables of contents fit.
const TAIL: u64 = 256 << 10;

/// Prepares the layers of a container image for [`Image::from_layers`](crate::Image::from_layers).
///
/// A layer with a table of contents that its manifest vouches for is read by it, and a layer whose index the cache has
/// by that. Their parts are fetched when they are wanted. Each of the others is fetched from now on, all at once:
/// opening the image reads it as it comes, and waits until all of it was compared with its digest, since a manifest
/// vouches for nothing finer.
#[must_use]
pub fn container_layers(
    layers: Vec<Arc<RemoteImage>>,
    options: &RemoteOptions,
) -> Vec<LayerSource> {
    // All are asked for before the first is waited for.
    let layers: Vec<_> = layers
        .into_iter()
        .map(|layer| {
            let how = How::of(&layer, options);
            match &how {
                How::Contents(table) => fetch_table(&layer, table),
                How::Index(_) => {}
                How::Whole(_) => layer.prefetch_all(),
            }
            (layer, how)
        })
        .collect();
    layers
        .into_iter()
        .map(|(layer, how)| source(layer, how))
        .collect()
}

/// How a layer is read.
enum How {
    /// By a table of contents that its manifest vouches for.
    Contents(ProvenTable),
    /// By an index that was made when it was verified as a whole.
    Index(Arc<dyn KeepIndex>),
    /// Once all of it is here and was verified. Its index has a place.
    Whole(Option<Arc<dyn KeepIndex>>),
}

impl How {
    fn of(layer: &RemoteImage, options: &RemoteOptions) -> Self {
        if let Some(table) = table(layer) {
            return Self::Contents(table);
        }
        let index = match layer.identity() {
            Identity::Blob(digest) => kept_index(&digest.to_string(), options),
            Identity::Root(_) | Identity::Version { .. } => None,
        };
        match index {
            // Without the index of the archive, opening it would read all of it.
            Some(index) if layer.verifies_chunks() && index.is_kept() => Self::Index(index),
            index => Self::Whole(index),
        }
    }
}

fn source(layer: Arc<RemoteImage>, how: How) -> LayerSource {
    let name = match layer.identity() {
        Identity::Blob(digest) => format!("{}, layer {digest}", layer.place()),
        Identity::Root(_) | Identity::Version { .. } => layer.place().to_string(),
    };
    let mut source = LayerSource::new(name, Arc::<RemoteImage>::clone(&layer));
    source.server = Some(Arc::clone(&layer));
    match how {
        How::Contents(table) => {
            source.verified = Some(BY_CONTENTS);
            source.lazy = Some(LazyLayer {
                table,
                image: layer,
            });
        }
        How::Index(index) => {
            source.verified = Some(BY_INDEX);
            source.index = Some(index);
        }
        How::Whole(index) => {
            source.index = index;
            source.is_unverified = true;
        }
    }
    source
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
