//! The manifest of a container image, for callers that open no layer.

use forerun_cache::Digest;

use crate::resolve::{self, ResolvedName};
use crate::{Identity, LayerContents, Reference, RemoteError, RemoteOptions, Result};

/// The manifest of a container image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerManifest {
    /// Its digest. Of an index, the manifest for the platform.
    pub digest: Digest,
    /// The layers, the lowest first.
    pub layers: Vec<ContainerLayer>,
}

/// A layer of a container image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContainerLayer {
    /// Its digest.
    pub digest: Digest,
    /// The table of contents that the manifest vouches for.
    pub contents: Option<LayerContents>,
}

/// Reads the manifest of the container image that `reference` names.
///
/// # Errors
/// Those of the registry; [`RemoteError::Refused`] for what is no container image.
pub fn container_manifest(
    reference: &Reference,
    options: &RemoteOptions,
) -> Result<ContainerManifest> {
    let refused = || RemoteError::Refused {
        place: reference.place(),
        reason: "it is no container image in a registry".to_owned(),
    };
    let ResolvedName::Container(found, _) = resolve::named(reference, options)? else {
        return Err(refused());
    };
    let layers = found.layers.iter().map(|layer| match layer.identity {
        Identity::Blob(digest) => Ok(ContainerLayer {
            digest,
            contents: layer.contents,
        }),
        Identity::Root(_) | Identity::Version { .. } => Err(refused()),
    });
    Ok(ContainerManifest {
        digest: Digest::of(&found.manifest),
        layers: layers.collect::<Result<_>>()?,
    })
}
