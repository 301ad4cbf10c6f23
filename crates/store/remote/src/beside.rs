//! Indexes and access lists that were pushed beside a container image, for machines that have none of it.
//!
//! They are found by the digest of the manifest, which they name as their subject. No manifest vouches for them: every
//! account that may push to the repository, and every mirror, can put others there. So they are used only where the
//! caller asks for them, and an index counts no more than one in a file.

use bytes::Bytes;
use forerun_cache::{AccessList, Digest};
use std::sync::Arc;

use crate::registry::{FoundContainer, ImageName, Registry, Repository, Subject, media};
use crate::resolve::{self, ResolvedName};
use crate::{ImageIndex, LayerContents, Reference, RemoteError, RemoteOptions, Result, runtime};

/// An index and access lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The indexes of layers.
    pub index: ImageIndex,
    /// The chunks of layers that are read first.
    pub lists: Vec<AccessList>,
    /// Tables of contents that SOCI made of layers, by the digests of these.
    pub tables: Vec<(Digest, LayerContents)>,
}

/// Finds what was pushed beside a container image. Without an answer that can be used, the image is opened as if
/// nothing was.
pub fn find(
    reference: &Reference,
    (container, registry): (&FoundContainer, &Arc<Registry>),
    options: &RemoteOptions,
) -> Beside {
    let Reference::Oci(name) = reference else {
        return Beside::default();
    };
    let found = resolve::within_time(reference, options, async {
        let subject = Digest::of(&container.manifest);
        let wanted = [media::LAYER_INDEXES, media::ACCESS_LISTS];
        let blobs = registry.referrer(name, subject, media::INDEX, &wanted);
        Ok(blobs.await?.map(|blobs| decoded(&blobs, options)))
    });
    let mut beside = match found {
        Ok(Some(Ok(beside))) => beside,
        Ok(None) => Beside::default(),
        Ok(Some(Err(reason))) => {
            tracing::warn!(%reason, place = reference.place(), "what was pushed beside the image is not used");
            Beside::default()
        }
        Err(error) => {
            tracing::warn!(%error, "what was pushed beside the image is not used");
            Beside::default()
        }
    };
    // Our own have digests of shorter parts.
    if beside.index.layers.is_empty() && !options.require_verified {
        let subject = Digest::of(&container.manifest);
        let tables = registry.soci_referrer(name, subject);
        match resolve::within_time(reference, options, tables) {
            Ok(tables) => beside.tables = tables,
            Err(error) => tracing::warn!(%error, "the index of SOCI beside the image is not used"),
        }
    }
    beside
}

/// Decodes the blobs of an artifact. An index is left out where all must be verified.
fn decoded(
    blobs: &[Option<Bytes>],
    options: &RemoteOptions,
) -> std::result::Result<Beside, String> {
    let (index, lists) = match blobs {
        [index, lists] => (index.as_ref(), lists.as_ref()),
        _ => (None, None),
    };
    let index = index.filter(|_| !options.require_verified);
    let index = index.map(|bytes| ImageIndex::decode(bytes)).transpose();
    let lists = lists.map(|bytes| AccessList::parse_all(bytes)).transpose();
    Ok(Beside {
        index: index
            .map_err(|error| error.to_string())?
            .unwrap_or_default(),
        lists: lists
            .map_err(|error| error.to_string())?
            .unwrap_or_default(),
        tables: Vec::new(),
    })
}

/// Stores an index and access lists beside the container image that `reference` names: of an index, beside the one for
/// the platform. `created` is the time, as RFC 3339 has it in UTC. Of several, the newest is used.
///
/// # Errors
/// Those of the registry; [`RemoteError::Refused`] for what is no container image.
pub fn push_beside(
    reference: &Reference,
    beside: &Beside,
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
        return Err(refused("it is no container image in a registry".to_owned()));
    };
    let mut blobs = Vec::new();
    if !beside.index.layers.is_empty() {
        let bytes = beside.index.encode();
        let bytes = bytes.map_err(|error| refused(error.to_string()))?;
        blobs.push((media::LAYER_INDEXES, Bytes::from(bytes)));
    }
    if !beside.lists.is_empty() {
        let texts: String = beside.lists.iter().map(AccessList::to_text).collect();
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
