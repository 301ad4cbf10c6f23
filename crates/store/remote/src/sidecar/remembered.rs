//! Remembers the artifacts beside a container image, for when its registry is not contacted or does
//! not answer.
//!
//! A small record under the name of the image has the digests of the artifacts. The blobs of
//! forerun's own artifacts are stored like layer indexes, under their digests; SOCI tables are
//! cached like layers. Remembered artifacts, too, are used only if the caller asks for them.

use bytes::Bytes;
use forerun_cache::{Cache, Digest, IndexSlot};
use forerun_io::u64_from;
use serde::{Deserialize, Serialize};

use crate::oci::layer_contents::{MAX_LAYERS, as_text, of_text};
use crate::resolve::remembered;
use crate::sidecar::parts::{self, Sidecar};
use crate::{LayerContents, Reference, RemoteOptions};

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SidecarRecord {
    /// The blobs of forerun's own artifact: the indexes and the access lists.
    pub blobs: Vec<Option<KeptBlob>>,
    #[serde(default)]
    pub tables: Vec<KeptTable>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptBlob {
    #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
    pub digest: Digest,
    pub len: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTable {
    #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
    pub layer: Digest,
    pub table: LayerContents,
}

pub fn kept(options: &RemoteOptions, blob: &KeptBlob) -> Option<Bytes> {
    let slot = slot(options, blob)?;
    let bytes = slot.load(blob.len)?;
    // The slot detects damage, but does not verify this digest.
    let is_it = u64_from(bytes.len()) == blob.len && Digest::of(bytes) == blob.digest;
    is_it.then(|| Bytes::copy_from_slice(bytes))
}

pub fn keep(options: &RemoteOptions, blob: &KeptBlob, bytes: &[u8]) {
    let stored = slot(options, blob).map(|slot| slot.store(bytes));
    if let Some(Err(error)) = stored {
        tracing::debug!(%error, "what was found beside the image is not kept");
    }
}

fn slot(options: &RemoteOptions, blob: &KeptBlob) -> Option<IndexSlot> {
    let identity = format!("beside images {}", blob.digest);
    let slot = IndexSlot::open(&options.cache_dir()?, &identity);
    let failed = |error: &_| tracing::debug!(%error, "what is beside images is not kept");
    slot.inspect_err(failed).ok()
}

/// Records the artifacts beside the image that `reference` names. The image's lowest layer must be
/// in the cache.
pub fn remember(
    cache: &Cache,
    reference: &Reference,
    options: &RemoteOptions,
    (facts, lowest): (&SidecarRecord, &str),
) {
    // Digests and numbers always convert.
    let text = serde_json::to_vec(facts).unwrap_or_default();
    remembered::keep(cache, &key(reference, options), &text, lowest);
}

/// Returns the recorded artifacts beside the image. Skips artifacts that are no longer in the
/// cache, with a warning.
pub fn recall(cache: &Cache, reference: &Reference, options: &RemoteOptions) -> Sidecar {
    let known = cache.recall(&key(reference, options));
    let facts = known.and_then(|known| decode(&known.facts));
    let Some(facts) = facts else {
        tracing::warn!(
            place = reference.place(),
            "--offline forbids asking for indexes beside the image, and the cache has none"
        );
        return Sidecar::default();
    };
    let blobs: Vec<Option<Bytes>> = facts
        .blobs
        .iter()
        .map(|blob| {
            let blob = blob.as_ref()?;
            let kept = kept(options, blob);
            if kept.is_none() {
                let (digest, place) = (blob.digest, reference.place());
                tracing::warn!(%digest, place, "the index beside the image is no longer in the cache");
            }
            kept
        })
        .collect();
    let sidecar = parts::decoded(&blobs, options);
    let mut sidecar = sidecar.unwrap_or_else(|reason| {
        tracing::warn!(%reason, place = reference.place(), "the index beside the image is not used");
        Sidecar::default()
    });
    if !options.require_verified {
        let tables = facts.tables.iter();
        sidecar.tables = tables.map(|known| (known.layer, known.table)).collect();
    }
    sidecar
}

fn decode(text: &[u8]) -> Option<SidecarRecord> {
    let facts: SidecarRecord = serde_json::from_slice(text).ok()?;
    let is_sound = facts.blobs.len() <= parts::WANTED.len() && facts.tables.len() <= MAX_LAYERS;
    is_sound.then_some(facts)
}

fn key(reference: &Reference, options: &RemoteOptions) -> String {
    format!("{} beside", remembered::key_of_layers(reference, options))
}
