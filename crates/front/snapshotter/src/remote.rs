//! Decides whether a layer can be mounted instead of unpacked.

use crate::labels::{NamedLayer, by_digest, repository_of};
use crate::manifests::Manifests;
use crate::record::{RemoteLayer, Snapshot};
use crate::{Images, ManifestFacts};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Name of the snapshot to commit.
    pub target: String,
    pub layer: RemoteLayer,
}

/// Returns the layer that the labels name if its image can be mounted instead of unpacked. At least
/// one of the image's layers must have a table of contents, and all layers below must be mounted
/// snapshots too, because one mount shows them all.
pub fn wanted(
    images: &dyn Images,
    manifests: &Manifests,
    parent: Option<&Snapshot>,
    named: NamedLayer,
) -> Option<Wanted> {
    let below = match parent {
        None => 0,
        Some(parent) => parent.layer.as_ref()?.digests.len(),
    };
    let image = named.image.as_str();
    let manifest = match manifests.of(images, image) {
        Ok(manifest) => manifest,
        Err(reason) => {
            tracing::info!(image, "layers are unpacked: {reason}");
            return None;
        }
    };
    match layer_at(&manifest, below, &named) {
        Ok(layer) => Some(Wanted {
            target: named.target,
            layer,
        }),
        Err(reason) => {
            tracing::info!(
                image,
                layer = named.digest,
                "the layer is unpacked: {reason}"
            );
            None
        }
    }
}

fn layer_at(
    manifest: &ManifestFacts,
    below: usize,
    named: &NamedLayer,
) -> Result<RemoteLayer, &'static str> {
    let has_table = manifest.layers.iter().any(|layer| layer.table.is_some());
    if !has_table {
        return Err("no layer of the image has a table of contents");
    }
    let layers = manifest.layers.get(..=below);
    let layers = layers.ok_or("the image has fewer layers")?;
    let layer = layers.last().ok_or("the image has no layers")?;
    if layer.digest != named.digest {
        return Err("the image has another layer there");
    }
    // The labels may come from the author of another image, who must not be able to name this
    // image's layers.
    if layer.chain != named.target {
        return Err("the configuration of the image names other layers");
    }
    Ok(RemoteLayer {
        image: by_digest(&named.image, &manifest.digest),
        digests: layers.iter().map(|layer| layer.digest.clone()).collect(),
        table: layer.table.clone(),
        claimed_by: layer.is_claimed.then(|| repository_of(&named.image)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LayerFacts;

    #[test]
    fn a_layer_must_be_the_one_that_the_manifest_has_there() {
        let layer = |digest: &str, table: Option<&str>| LayerFacts {
            digest: digest.to_owned(),
            chain: format!("chain of {digest}"),
            table: table.map(str::to_owned),
            is_claimed: false,
        };
        let manifest = |layers: Vec<LayerFacts>| ManifestFacts {
            digest: "sha256:m".to_owned(),
            layers,
        };
        let mixed = manifest(vec![layer("a", None), layer("b", Some("t"))]);
        let plain = manifest(vec![layer("a", None)]);
        let named = |digest: &str| NamedLayer {
            target: format!("chain of {digest}"),
            image: "oci://h/i:1".to_owned(),
            digest: digest.to_owned(),
        };
        let found = layer_at(&mixed, 1, &named("b"));
        let expected = RemoteLayer {
            image: "oci://h/i@sha256:m".to_owned(),
            digests: vec!["a".to_owned(), "b".to_owned()],
            table: Some("t".to_owned()),
            claimed_by: None,
        };
        assert_eq!(found, Ok(expected.clone()));
        // A table from a referrer is valid only within its repository.
        let mut claimed = mixed.clone();
        claimed.layers[1].is_claimed = true;
        let found = layer_at(&claimed, 1, &named("b")).unwrap();
        assert_eq!(found.claimed_by.as_deref(), Some("oci://h/i"));
        let newer = RemoteLayer {
            table: Some("another".to_owned()),
            ..found.clone()
        };
        let elsewhere = RemoteLayer {
            claimed_by: Some("oci://h/other".to_owned()),
            ..found.clone()
        };
        assert!(found.is_same(&newer) && !found.is_same(&elsewhere));
        assert!(!found.is_same(&expected) && !expected.is_same(&found));
        let other = NamedLayer {
            target: "chain of another image".to_owned(),
            ..named("b")
        };
        assert!(layer_at(&mixed, 1, &other).is_err());
        for (manifest, below, digest) in [
            (&plain, 0, "a"),
            (&mixed, 0, "b"),
            (&mixed, 2, "b"),
            (&mixed, usize::MAX - 1, "b"),
        ] {
            assert!(layer_at(manifest, below, &named(digest)).is_err());
        }
    }
}
