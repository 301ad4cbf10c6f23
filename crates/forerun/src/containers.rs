//! Container images as they are: the layers of one, verified.

use std::sync::Arc;

use forerun_remote::{Identity, RemoteImage, RemoteOptions, Result};
use forerun_vfs::KeepIndex;

use crate::layers::LayerSource;

/// Fetches the layers of a container image, all at once, and verifies each as a whole: a manifest vouches for
/// nothing finer. Returns them, for [`Image::from_layers`](crate::Image::from_layers), with the indexes that are kept
/// of their archives. `progress` is called with the bytes of all that are here.
///
/// # Errors
/// Those of fetching them; [`WrongDigest`](forerun_remote::RemoteError::WrongDigest).
pub fn container_layers(
    layers: Vec<Arc<RemoteImage>>,
    options: &RemoteOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<Vec<LayerSource>> {
    for layer in &layers {
        layer.prefetch_all();
    }
    let all = layers.clone();
    let here = || all.iter().map(|layer| layer.status().local_bytes).sum();
    let verified = layers.into_iter().map(|layer| {
        layer.ensure_whole(&mut || progress(here()))?;
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
        })
    });
    verified.collect()
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
