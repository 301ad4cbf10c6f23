//! Indexes and access lists that were pushed beside a container image, for machines that have not
//! cached it.
//!
//! They are found by the digest of the manifest, which they name as their subject. No manifest
//! has their digests: every account that may push to the repository, and every mirror, can store others.
//! So they are used only if the caller asks for them, and an index from an artifact is trusted no
//! more than one from a file.

pub mod index;
pub mod parts;
pub mod remembered;

use bytes::Bytes;
use forerun_cache::{AccessList, Cache, Digest};
use std::sync::Arc;

use crate::address::image_name::ImageName;
use crate::oci::media;
use crate::registry::{FoundContainer, Registry, Repository, Subject};
use crate::resolve::{self, ResolvedName};
use crate::{Reference, RemoteError, RemoteOptions, Result, runtime};

use parts::{Sidecar, WANTED, decoded};
use remembered::{KeptBlob, KeptTable, SidecarRecord};

#[derive(Default)]
pub struct FoundSidecar {
    pub sidecar: Sidecar,
    /// The facts to remember. `None` if the search was not complete.
    pub facts: Option<SidecarRecord>,
}

/// Finds the artifacts beside a container image. If the registry does not answer, uses the
/// artifacts found earlier. If nothing can be used, the image opens as if nothing was pushed.
pub fn find(
    cache: &Cache,
    reference: &Reference,
    (container, registry): (&FoundContainer, &Arc<Registry>),
    options: &RemoteOptions,
) -> FoundSidecar {
    let Reference::Oci(name) = reference else {
        return FoundSidecar::default();
    };
    let subject = Digest::of(&container.manifest);
    let recalled = |error: &RemoteError| {
        tracing::warn!(%error, "the server cannot be asked, so indexes from the cache are used");
        let sidecar = remembered::recall(cache, reference, options);
        FoundSidecar {
            sidecar,
            facts: None,
        }
    };
    let mut found = ArtifactBlobs::default();
    match resolve::within_time(reference, options, ours((registry, name), subject, options)) {
        Ok(ours) => found = ours,
        Err(error) if error.is_no_answer() => return recalled(&error),
        Err(error) => not_used(reference, &error),
    }
    let mut sidecar = Sidecar::default();
    match decoded(&found.blobs, options) {
        Ok(ours) => sidecar = ours,
        Err(reason) => {
            not_used(reference, &reason);
            found.facts.blobs.clear();
        }
    }
    // Forerun's own indexes are preferred, because they verify shorter parts.
    if sidecar.index.layers.is_empty() && !options.require_verified {
        let tables = registry.soci_referrer(name, subject);
        match resolve::within_time(reference, options, tables) {
            Ok(tables) => sidecar.tables = tables,
            Err(error) if error.is_no_answer() => return recalled(&error),
            Err(error) => tracing::warn!(%error, "the index of SOCI beside the image is not used"),
        }
    }
    let tables = sidecar.tables.iter();
    let known = tables.map(|&(layer, table)| KeptTable { layer, table });
    found.facts.tables = known.collect();
    FoundSidecar {
        sidecar,
        facts: Some(found.facts).filter(|_| !options.require_verified),
    }
}

fn not_used(reference: &Reference, reason: &dyn std::fmt::Display) {
    let place = reference.place();
    tracing::warn!(%reason, place, "the index beside the image is not used");
}

#[derive(Default)]
struct ArtifactBlobs {
    facts: SidecarRecord,
    blobs: Vec<Option<Bytes>>,
}

/// Reads the blobs of forerun's own artifact that the cache does not have.
async fn ours(
    (registry, name): (&Arc<Registry>, &ImageName),
    subject: Digest,
    options: &RemoteOptions,
) -> Result<ArtifactBlobs> {
    let mut found = ArtifactBlobs::default();
    for blob in registry
        .referrer(name, subject, media::INDEX, &WANTED)
        .await?
    {
        let known = blob.as_ref().map(|blob| KeptBlob {
            digest: blob.digest,
            len: blob.len,
        });
        let bytes = match (&blob, &known) {
            (Some(blob), Some(known)) => match remembered::kept(options, known) {
                Some(bytes) => Some(bytes),
                None => {
                    let bytes = registry.referrer_blob(name, blob).await?;
                    remembered::keep(options, known, &bytes);
                    Some(bytes)
                }
            },
            _ => None,
        };
        found.facts.blobs.push(known);
        found.blobs.push(bytes);
    }
    Ok(found)
}

/// Stores an index and access lists beside the container image that `reference` names, or beside
/// its manifest for the platform. `created` is an RFC 3339 time in UTC; readers use the newest
/// artifact. Fails with [`RemoteError::Refused`] if the reference is not a container image.
pub fn push_sidecar(
    reference: &Reference,
    sidecar: &Sidecar,
    created: &str,
    options: &RemoteOptions,
) -> Result<ImageName> {
    let refused = |reason: String| RemoteError::Refused {
        place: reference.place(),
        reason,
    };
    let (Reference::Oci(name), ResolvedName::Container(found, registry)) =
        (reference, resolve::named(reference, options)?)
    else {
        return Err(refused(
            "it is not the address of a container image in a registry".to_owned(),
        ));
    };
    let mut blobs = Vec::new();
    if !sidecar.index.layers.is_empty() {
        let bytes = sidecar.index.encode();
        let bytes = bytes.map_err(|error| refused(error.to_string()))?;
        blobs.push((media::LAYER_INDEXES, Bytes::from(bytes)));
    }
    if !sidecar.lists.is_empty() {
        let texts: String = sidecar.lists.iter().map(AccessList::to_text).collect();
        blobs.push((media::ACCESS_LISTS, Bytes::from(texts)));
    }
    let subject = Subject {
        manifest: found.manifest,
    };
    let repository = Repository::new(&registry, name)?;
    let digest =
        runtime::wait_for(repository.put_referrer(&subject, media::INDEX, &blobs, created))?;
    Ok(name.with_digest(digest))
}
