//! Opens cached images while their servers do not answer.
//!
//! Whenever a server resolves a reference, the cache stores the result. It is used if there is no
//! answer: no connection, no answer in time, or a broken server. A refusal (not found, access
//! denied) is an answer and remains an error. The image has the version of the remembered answer.
//! Missing chunks are requested in that version and never mixed with another.

use std::sync::Arc;
use std::time::Duration;

use forerun_cache::{Cache, Digest, Recalled};

use crate::address::image_name::ImageName;
use crate::origin::Absent;
use crate::origin::layout::TableLayout;
use crate::resolve::facts::{self, Facts, Named, Shape, digest};
use crate::resolve::{self, FromMemory, Resolved};
use crate::{
    Description, Identity, LayerContents, Layout, Origin, Part, Pinned, Reference, RemoteBlob,
    RemoteError, RemoteOptions, Result,
};

/// Age at which a remembered answer is written again even if it has not changed.
const RENEWED: Duration = Duration::from_secs(60);

/// Records the image that `reference` names, and the table of contents of a layer. The blob
/// `identity` must be in the cache.
pub(crate) fn remember(
    cache: &Cache,
    reference: &Reference,
    contents: Option<&LayerContents>,
    facts: &Facts,
    identity: &str,
) {
    keep(
        cache,
        &key_by(reference, contents),
        &facts.encode(),
        identity,
    );
}

/// Records the layers of the container image that `reference` names for the platform of `options`.
/// The blob `lowest` of the first layer must be in the cache. Each layer is recorded by its digest,
/// against which later openings verify the cached bytes.
pub(crate) fn remember_layers(
    cache: &Cache,
    reference: &Reference,
    options: &RemoteOptions,
    layers: &[Layout],
    lowest: &str,
) {
    if let Some(facts) = Facts::of_layers(layers) {
        let key = key_of_layers(reference, options);
        keep(cache, &key, &facts.encode(), lowest);
    }
}

/// Returns the recorded layers of the container image that `reference` names, lowest first. Returns
/// `None` if there is no record, or a layer was never in the cache.
///
/// Fails as [`recall`] does, and with [`RemoteError::Offline`] if a layer was evicted and no server
/// may be contacted.
pub(crate) fn recall_layers(
    cache: &Cache,
    reference: &Reference,
    options: &RemoteOptions,
    reason: Option<&RemoteError>,
) -> Result<Option<Vec<Resolved>>> {
    let Reference::Oci(name) = reference else {
        return Ok(None);
    };
    let known = cache.recall(&key_of_layers(reference, options));
    let Some((known, facts)) = known.and_then(|known| {
        let facts = Facts::decode(&known.facts).ok()?;
        Some((known, facts))
    }) else {
        return Ok(None);
    };
    let Shape::Layers { layers } = &facts.shape else {
        return Ok(None);
    };
    // A layer is verified against its digest before it is used.
    let mut of_layer = options.clone();
    of_layer.require_verified = false;
    let mut found = Vec::with_capacity(layers.len());
    for layer in layers {
        let digest = digest(&layer.blob.digest).map_err(|_| contradiction(reference))?;
        let contents = layer.table;
        let layer = Reference::Oci(name.with_digest(digest));
        match recall(cache, &layer, contents.as_ref(), &of_layer, reason.cloned())? {
            Some(mut resolved) => {
                resolved.layout.place = reference.place();
                resolved.layout.contents = contents;
                found.push(resolved);
            }
            None if options.offline => {
                let place = layer.place();
                return Err(RemoteError::Offline { place });
            }
            None => return Ok(None),
        }
    }
    if let Some(lowest) = found.first_mut() {
        lowest.memory = Some(from_memory(reference, &known, reason.cloned()));
    }
    Ok(Some(found))
}

/// Records facts under a key, unless the same facts were recorded recently.
pub(crate) fn keep(cache: &Cache, key: &str, facts: &[u8], identity: &str) {
    let known = cache.recall(key).filter(|known| {
        let is_new = known.at.elapsed().is_ok_and(|age| age < RENEWED);
        is_new && known.facts == facts && known.identity == identity
    });
    if known.is_some() {
        return;
    }
    if let Err(error) = cache.remember(key, identity, facts) {
        tracing::debug!(%error, "what the server said is not remembered");
    }
}

/// Returns the recorded image of `reference` if it is in the cache; for a layer, the one with the
/// right table of contents. `reason` is why the server does not answer. Returns `None` if the
/// record is damaged. Fails if `options` refuse the image or are unusable.
pub(crate) fn recall(
    cache: &Cache,
    reference: &Reference,
    contents: Option<&LayerContents>,
    options: &RemoteOptions,
    reason: Option<RemoteError>,
) -> Result<Option<Resolved>> {
    let Some(known) = cache.recall(&key_by(reference, contents)) else {
        return Ok(None);
    };
    let facts = match Facts::decode(&known.facts) {
        Ok(facts) => facts,
        Err(error) => {
            tracing::warn!(%error, place = reference.place(), "what the cache knows of it is not used");
            return Ok(None);
        }
    };
    if matches!(facts.shape, Shape::Layers { .. }) {
        return Ok(None);
    }
    let Some(identity) = facts
        .identity()
        .ok()
        .filter(|identity| identity.is_named(&known.identity) && facts.len == known.geometry.len())
    else {
        return Ok(None);
    };
    let is_proven = matches!(facts.shape, Shape::Parts { .. });
    if options.require_verified && !is_proven {
        return Err(RemoteError::Refused {
            place: reference.place(),
            reason: "it has no table of digests, so its chunks cannot be verified".to_owned(),
        });
    }
    let mut resolved = if options.offline {
        let place = reference.place();
        let origin = Absent::new(place.clone(), RemoteError::Offline { place });
        let origins: Vec<Arc<dyn Origin>> = vec![Arc::new(origin)];
        let layout = layout(reference, &facts, identity, |_| Ok(origins.clone()))?;
        Resolved::new(layout, None)
    } else {
        online(reference, &facts, identity, options)?
    };
    resolved.chunk_size = Some(known.geometry.chunk_size());
    resolved.memory = Some(from_memory(reference, &known, reason));
    Ok(Some(resolved))
}

/// Returns the recorded length of a version of the file at `address`.
pub(crate) fn known_len(
    cache: &Cache,
    reference: &Reference,
    address: &str,
    version: &str,
) -> Option<u64> {
    let known = cache.recall(&key(reference))?;
    let facts = Facts::decode(&known.facts).ok()?;
    let Shape::File { addresses, .. } = &facts.shape else {
        return None;
    };
    let is_same = |known: &facts::Address| {
        known.address == address && known.version.as_deref() == Some(version)
    };
    addresses.iter().any(is_same).then_some(facts.len)
}

fn from_memory(reference: &Reference, known: &Recalled, reason: Option<RemoteError>) -> FromMemory {
    FromMemory {
        answered: known.at,
        reason,
        by_digest: matches!(reference, Reference::Oci(name) if name.digest.is_some()),
    }
}

/// Resolves the image from its record, with servers from which missing chunks can be fetched later.
fn online(
    reference: &Reference,
    facts: &Facts,
    identity: Identity,
    options: &RemoteOptions,
) -> Result<Resolved> {
    if let Reference::Oci(name) = reference {
        if matches!(facts.shape, Shape::File { .. }) {
            return Err(contradiction(reference));
        }
        let registry = resolve::registry(name, options)?;
        let layout = layout(reference, facts, identity, registry.locator(name)?)?;
        return Ok(Resolved::new(layout, Some(registry)));
    }
    let Shape::File { addresses, .. } = &facts.shape else {
        return Err(contradiction(reference));
    };
    let mut origins: Vec<Arc<dyn Origin>> = Vec::new();
    for candidate in resolve::candidates(reference, options)? {
        let same = |known: &&facts::Address| known.address == candidate.address;
        let Some(known) = addresses.iter().find(same) else {
            continue;
        };
        let description = Description {
            len: facts.len,
            version: known.version.clone(),
            digest: None,
            whole: false,
        };
        origins.push(Arc::new(Pinned::new(candidate.origin, description)));
    }
    if origins.is_empty() {
        let place = reference.place();
        let reason = "no known address has this version".to_owned();
        let error = RemoteError::Refused {
            place: place.clone(),
            reason,
        };
        origins.push(Arc::new(Absent::new(place, error)));
    }
    let layout = layout(reference, facts, identity, |_| Ok(origins.clone()))?;
    Ok(Resolved::new(layout, None))
}

/// Builds the layout of the image that `facts` describe. `origins` returns the origins of each
/// blob.
fn layout(
    reference: &Reference,
    facts: &Facts,
    identity: Identity,
    mut origins: impl FnMut(Digest) -> Result<Vec<Arc<dyn Origin>>>,
) -> Result<Layout> {
    let mut blob = |named: &Named| -> Result<RemoteBlob> {
        let digest = digest(&named.digest).map_err(|_| contradiction(reference))?;
        Ok(RemoteBlob {
            description: Description {
                len: named.len,
                version: None,
                digest: Some(digest),
                whole: false,
            },
            mirrors: origins(digest)?,
        })
    };
    let place = reference.place();
    let (parts, table) = match &facts.shape {
        Shape::Parts {
            chunk_size,
            root,
            table,
            parts,
        } => {
            let mut offset = 0_u64;
            let mut placed = Vec::with_capacity(parts.len());
            for part in parts {
                placed.push(Part {
                    offset,
                    blob: blob(part)?,
                });
                offset += part.len;
            }
            let table = TableLayout {
                chunk_size: *chunk_size,
                root: digest(root).map_err(|_| contradiction(reference))?,
                blob: blob(table)?,
            };
            (placed, Some(table))
        }
        Shape::Blob { digest } => {
            let named = Named {
                digest: digest.clone(),
                len: facts.len,
            };
            let mut layout = Layout::single(place, blob(&named)?, identity);
            layout.format.clone_from(&facts.format);
            return Ok(layout);
        }
        Shape::Layers { .. } => return Err(contradiction(reference)),
        Shape::File { version, .. } => {
            let blob = RemoteBlob {
                description: Description {
                    len: facts.len,
                    version: Some(version.clone()),
                    digest: None,
                    whole: false,
                },
                mirrors: origins(Digest([0; 32]))?,
            };
            return Ok(Layout::single(place, blob, identity));
        }
    };
    Ok(Layout {
        contents: None,
        place,
        len: facts.len,
        identity,
        parts,
        table,
        format: facts.format.clone(),
    })
}

fn contradiction(reference: &Reference) -> RemoteError {
    RemoteError::Cache {
        reason: format!(
            "the cache's record of {} is inconsistent",
            reference.place()
        ),
        is_full: false,
    }
}

/// Returns the key of a reference: everything that selects the image, without credentials.
fn key(reference: &Reference) -> String {
    match reference {
        Reference::Oci(name) => key_of(name),
        Reference::Http(_) | Reference::S3 { .. } => resolve::address(reference),
    }
}

fn key_by(reference: &Reference, contents: Option<&LayerContents>) -> String {
    let key = key(reference);
    match contents {
        Some(contents) => format!("{key} by {}", contents.digest()),
        None => key,
    }
}

/// Returns the key of a container image's layers. It includes the platform.
pub(crate) fn key_of_layers(reference: &Reference, options: &RemoteOptions) -> String {
    let platform = options.registry.platform.as_ref();
    let platform = platform.map_or_else(String::new, ToString::to_string);
    format!("{} layers {platform}", key(reference))
}

/// Returns the key of an image in a registry. It contains the digest if there is one, otherwise the
/// tag or `latest`.
fn key_of(name: &ImageName) -> String {
    format!(
        "oci://{}/{} {}",
        name.registry,
        name.repository,
        name.reference()
    )
}
