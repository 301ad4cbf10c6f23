//! Chooses how each layer of a container image is read and verified: as a whole, by its table of
//! contents, or by an index made when the layer was last verified as a whole.

use std::sync::Arc;

use forerun_cache::AccessList;
use forerun_io::{ReadAt as _, u64_from, usize_from};
use forerun_remote::{Identity, ImageIndex, LayerIndex, RemoteImage, RemoteOptions};
use forerun_vfs::{Error, KeepIndex, ProvenTable, Result, TablePlace};

use crate::kept_index::{kept_index, proven};
use crate::layer_source::{BY_CONTENTS, BY_INDEX, BY_NAMED_INDEX, LayerSource, LazyLayer};
use crate::whole::ensure_whole;

/// Bytes fetched at once from the end of a layer with a footer. Most tables of contents fit.
const TAIL: u64 = 256 << 10;

/// Prepares the layers of a container image for [`Image::from_layers`](crate::Image::from_layers).
///
/// A layer with a table of contents that its manifest names, or with an index in the cache, is
/// fetched in parts on demand. All other layers are fetched from now on, at the same time: opening
/// the image reads them as they arrive, and waits until each was compared with its digest, because
/// the manifest has no digest for smaller parts.
#[must_use]
pub fn container_layers(
    layers: Vec<Arc<RemoteImage>>,
    options: &RemoteOptions,
) -> Vec<LayerSource> {
    // Request all layers before waiting for the first one.
    let layers: Vec<_> = layers
        .into_iter()
        .map(|layer| {
            let how = How::of(&layer, options);
            match &how {
                How::Contents(table) => fetch_table(&layer, table),
                // The fetch of SOCI's tables has already started.
                How::Index(_) | How::Named(_) | How::Soci(_) => {}
                How::Whole(_) => layer.prefetch_all(),
            }
            (layer, how)
        })
        .collect();
    layers
        .into_iter()
        .map(|(layer, how)| source(layer, how, options))
        .collect()
}

enum How {
    /// By a table of contents whose digest is in the manifest.
    Contents(ProvenTable),
    /// By an index made when the layer was last verified as a whole.
    Index(Arc<dyn KeepIndex>),
    /// By an index from elsewhere, which the caller trusts.
    Named(Arc<dyn KeepIndex>),
    /// By a table of contents that SOCI made.
    Soci(Arc<RemoteImage>),
    /// As a whole, once it was fetched and verified. The index, if any, is stored afterwards.
    Whole(Option<Arc<dyn KeepIndex>>),
}

impl How {
    fn of(layer: &RemoteImage, options: &RemoteOptions) -> Self {
        if let Some(table) = table(layer) {
            return Self::Contents(table);
        }
        let soci = layer.soci_table().filter(|_| cfg!(feature = "tar"));
        if let Some(soci) = soci.filter(|_| layer.contents().is_some()) {
            return Self::Soci(Arc::clone(soci));
        }
        if let Some(archive) = layer.named_index().filter(|_| cfg!(feature = "tar")) {
            return Self::Named(Arc::new(NamedIndex(Arc::clone(archive))));
        }
        let index = digest_of(layer).and_then(|digest| kept_index(&digest, options));
        match index {
            // Without a stored index, opening would read the whole archive.
            Some(index) if layer.verifies_chunks() && index.is_kept() => Self::Index(index),
            index => match soci {
                Some(soci) => Self::Soci(Arc::clone(soci)),
                None => Self::Whole(index),
            },
        }
    }
}

fn source(layer: Arc<RemoteImage>, how: How, options: &RemoteOptions) -> LayerSource {
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
                is_claimed: false,
                verify_whole: Arc::new(move || ensure_whole(&layer)),
            });
        }
        How::Soci(table) => match table_of_soci(&table) {
            Ok(table) => {
                let is_claimed = layer.contents().is_none();
                source.verified = Some(if is_claimed {
                    BY_NAMED_INDEX
                } else {
                    BY_CONTENTS
                });
                source.lazy = Some(LazyLayer {
                    table,
                    is_claimed,
                    verify_whole: Arc::new(move || ensure_whole(&layer)),
                });
            }
            Err(error) => {
                let name = &source.name;
                tracing::warn!(%error, name, "the table of contents of SOCI is not used");
                layer.prefetch_all();
                let digest = digest_of(&layer);
                source.index = digest.and_then(|digest| kept_index(&digest, options));
                source.is_unverified = true;
            }
        },
        How::Index(index) => {
            source.verified = Some(BY_INDEX);
            source.index = Some(index);
        }
        How::Named(index) => {
            source.verified = Some(BY_NAMED_INDEX);
            source.index = Some(index);
        }
        How::Whole(index) => {
            source.index = index;
            source.is_unverified = true;
        }
    }
    source
}

/// Returns the layer's table of contents if the layer can be read by it.
fn table(layer: &RemoteImage) -> Option<ProvenTable> {
    let contents = layer.contents().filter(|_| cfg!(feature = "tar"))?;
    proven(contents)
}

/// Waits until a table of SOCI is fetched and verified, and returns it.
fn table_of_soci(table: &RemoteImage) -> Result<ProvenTable> {
    ensure_whole(table)?;
    let Identity::Blob(digest) = *table.identity() else {
        return Err(Error::Unsupported("a table without a digest".to_string()));
    };
    let mut bytes = vec![0; usize_from(table.len())];
    let read = table.read_exact_at(0, &mut bytes);
    read.map_err(|error| Error::io(0, bytes.len(), error))?;
    Ok(ProvenTable {
        digest: digest.0,
        place: TablePlace::Beside(bytes.into()),
    })
}

fn digest_of(layer: &RemoteImage) -> Option<String> {
    match layer.identity() {
        Identity::Blob(digest) => Some(digest.to_string()),
        Identity::Root(_) | Identity::Version { .. } => None,
    }
}

/// An index from elsewhere. It is not replaced: an index made from a layer that is not verified as
/// a whole is not more trustworthy.
struct NamedIndex(Arc<[u8]>);

impl KeepIndex for NamedIndex {
    fn load(&self, most: u64) -> Option<Vec<u8>> {
        (u64_from(self.0.len()) <= most).then(|| self.0.to_vec())
    }

    fn store(&self, _index: &[u8]) {}
}

/// Returns the indexes of layers that the cache holds, with the lists of what is read first. Skips
/// layers without a stored index, and layers with tables of contents.
///
/// # Errors
/// The errors of the cache.
pub fn image_index(
    layers: &[Arc<RemoteImage>],
    lists: &[AccessList],
    options: &RemoteOptions,
) -> std::io::Result<ImageIndex> {
    let mut index = ImageIndex::default();
    for layer in layers {
        let Identity::Blob(digest) = *layer.identity() else {
            continue;
        };
        if index.layers.iter().any(|known| known.digest == digest) {
            continue;
        }
        let archive = kept_index(&digest.to_string(), options);
        let archive = archive.and_then(|archive| archive.load(u64::MAX));
        if let (Some(archive), Some(table)) = (archive, layer.made_table()?) {
            let identity = layer.identity().to_string();
            let mut lists = lists.iter();
            index.layers.push(LayerIndex {
                digest,
                table,
                archive,
                accesses: lists.find(|list| list.identity == identity).cloned(),
            });
        }
    }
    Ok(index)
}

/// Starts to fetch the table of a layer, so that the tables of several layers arrive together.
fn fetch_table(layer: &RemoteImage, table: &ProvenTable) {
    let part = match table.place {
        TablePlace::Footer => layer.len().saturating_sub(TAIL)..layer.len(),
        TablePlace::At { offset, len, .. } => match offset.checked_add(len) {
            Some(end) => offset..end,
            // The later read reports that.
            None => return,
        },
        TablePlace::Beside(_) => return,
    };
    layer.prefetch_part(&part);
}
