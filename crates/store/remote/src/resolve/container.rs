//! Manifests of container images, for callers that open no layers.

use forerun_cache::Digest;

use crate::oci::manifest;
use crate::resolve::{self, ResolvedName};
use crate::{Identity, LayerContents, Reference, RemoteError, RemoteOptions, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerManifest {
    /// The digest of the manifest. From an index, the manifest for the platform.
    pub digest: Digest,
    /// The layers, lowest first.
    pub layers: Vec<ContainerLayer>,
    /// The digests of the uncompressed layers, from the configuration of the image.
    pub diff_ids: Vec<Digest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerLayer {
    pub digest: Digest,
    /// The table of contents that the manifest names by digest.
    pub contents: Option<LayerContents>,
}

/// Reads the manifest and the configuration of the container image that `reference` names. Fails
/// with [`RemoteError::Refused`] if it is not a container image.
pub fn container_manifest(
    reference: &Reference,
    options: &RemoteOptions,
) -> Result<ContainerManifest> {
    let refused = |reason: String| RemoteError::Refused {
        place: reference.place(),
        reason,
    };
    let no_image =
        || refused("it is not the address of a container image in a registry".to_owned());
    let (Reference::Oci(name), ResolvedName::Container(found, registry)) =
        (reference, resolve::named(reference, options)?)
    else {
        return Err(no_image());
    };
    let config = resolve::config(reference, name, (&found, &registry), options)?;
    let diff_ids = manifest::diff_ids(&config)
        .map_err(|error| refused(format!("its configuration: {error}")))?;
    let (count, ids) = (found.layers.len(), diff_ids.len());
    if count != ids {
        return Err(refused(format!(
            "it has {count} layers, and its configuration names {ids}"
        )));
    }
    let layers = found.layers.iter().map(|layer| match layer.identity {
        Identity::Blob(digest) => Ok(ContainerLayer {
            digest,
            contents: layer.contents,
        }),
        Identity::Root(_) | Identity::Version { .. } => Err(no_image()),
    });
    Ok(ContainerManifest {
        digest: Digest::of(&found.manifest),
        layers: layers.collect::<Result<_>>()?,
        diff_ids,
    })
}
