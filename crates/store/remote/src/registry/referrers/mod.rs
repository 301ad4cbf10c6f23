//! Referrers: artifacts beside a container image that name its manifest as their subject (OCI 1.1).
//!
//! A registry with the referrers API lists them itself. On other registries, the program that
//! pushes keeps the list as an index under the tag `sha256-...`; entries of other programs stay in
//! it.

mod list;

use std::sync::Arc;

use bytes::Bytes;
use forerun_cache::Digest;
use forerun_io::u64_from;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::address::image_name::ImageName;
use crate::oci::manifest::{Descriptor, MAX_MANIFEST};
use crate::oci::media;
use crate::oci::referrer::artifact_of;
use crate::oci::soci::{self, SociTable};
use crate::registry::Registry;
use crate::registry::endpoint::Endpoint;
use crate::registry::read::RawManifest;
use crate::registry::upload::Repository;
use crate::{RemoteError, Result};

use list::fallback_tag;

/// Longest blob of a referrer that is read into memory.
const MAX_BLOB: u64 = 64 << 20;
/// The annotation with the creation time of an artifact.
const CREATED: &str = "org.opencontainers.image.created";

#[derive(Clone, Debug)]
pub struct Subject {
    pub manifest: Bytes,
}

pub type TypedBlob = (&'static str, Bytes);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnType {
    media_type: Option<String>,
}

impl Subject {
    pub fn digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    fn descriptor(&self) -> Value {
        let own: Option<OwnType> = serde_json::from_slice(&self.manifest).ok();
        let own = own.and_then(|own| own.media_type);
        json!({
            "mediaType": own.as_deref().unwrap_or(media::OCI_MANIFEST),
            "digest": self.digest().to_string(),
            "size": self.manifest.len(),
        })
    }
}

impl Registry {
    /// Finds the blobs of the newest artifact of this type that refers to the manifest `subject`.
    /// Returns the blobs of the media types `wanted`, in that order, or none if there is no such
    /// artifact.
    pub async fn referrer(
        self: &Arc<Self>,
        name: &ImageName,
        subject: Digest,
        artifact_type: &str,
        wanted: &[&str],
    ) -> Result<Vec<Option<Descriptor>>> {
        let endpoints = self.endpoints(name)?;
        let newest = self.newest_referrer(&endpoints, subject, artifact_type);
        let Some(raw) = newest.await? else {
            return Ok(Vec::new());
        };
        let refused = |reason: String| RemoteError::Refused {
            place: raw.place.clone(),
            reason,
        };
        let layers =
            artifact_of(&raw.bytes, subject).map_err(|error| refused(error.to_string()))?;
        let of_type = |wanted: &&str| {
            let mut layers = layers.iter();
            layers.find(|layer| layer.media_type == *wanted).cloned()
        };
        let blobs: Vec<_> = wanted.iter().map(of_type).collect();
        let lens = blobs.iter().flatten().map(|blob| blob.len);
        match lens.max().filter(|len| *len > MAX_BLOB) {
            Some(len) => Err(refused(format!(
                "a referrer has {len} bytes; at most {MAX_BLOB} are allowed"
            ))),
            None => Ok(blobs),
        }
    }

    pub async fn referrer_blob(
        self: &Arc<Self>,
        name: &ImageName,
        blob: &Descriptor,
    ) -> Result<Bytes> {
        let endpoints = self.endpoints(name)?;
        self.small_blob(&endpoints, blob, limit(blob)).await
    }

    /// Reads the newest SOCI index that refers to the manifest `subject`. Returns its tables of
    /// contents by layer, or none if there is no such index.
    pub async fn soci_referrer(
        self: &Arc<Self>,
        name: &ImageName,
        subject: Digest,
    ) -> Result<Vec<SociTable>> {
        let endpoints = self.endpoints(name)?;
        let newest = self.newest_referrer(&endpoints, subject, soci::V1);
        let Some(raw) = newest.await? else {
            return Ok(Vec::new());
        };
        let tables = match artifact_of(&raw.bytes, subject) {
            Ok(_) => soci::tables(&raw.bytes, soci::V1).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        tables.map_err(|reason| RemoteError::Refused {
            place: raw.place,
            reason,
        })
    }

    /// Reads the manifest of the newest artifact of this type that refers to the manifest
    /// `subject`.
    async fn newest_referrer(
        &self,
        endpoints: &[Arc<Endpoint>],
        subject: Digest,
        artifact_type: &str,
    ) -> Result<Option<RawManifest>> {
        let newest = self.newest_entry(endpoints, subject, artifact_type);
        let Some(entry) = newest.await? else {
            return Ok(None);
        };
        let digest = entry.descriptor.digest;
        let reference = digest.to_string();
        let raw = self.manifest(endpoints, &reference, Some(digest)).await?;
        Ok(Some(raw))
    }
}

fn limit(layer: &Descriptor) -> usize {
    forerun_io::usize_from(layer.len.min(MAX_BLOB))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushedArtifact<'a> {
    schema_version: u32,
    media_type: &'static str,
    artifact_type: &'a str,
    config: Value,
    layers: Vec<Value>,
    subject: Value,
    annotations: Value,
}

impl Repository {
    /// Stores an artifact with these blobs that refers to `subject`. Replaces an earlier artifact
    /// of this type. Returns its digest.
    pub async fn put_referrer(
        &self,
        subject: &Subject,
        artifact_type: &str,
        blobs: &[TypedBlob],
        created: &str,
    ) -> Result<Digest> {
        let empty = Bytes::from_static(b"{}");
        self.put_blob(Digest::of(&empty), &empty).await?;
        for (_, bytes) in blobs {
            self.put_blob(Digest::of(bytes), bytes).await?;
        }
        let annotations = json!({ CREATED: created });
        let document = PushedArtifact {
            schema_version: 2,
            media_type: media::OCI_MANIFEST,
            artifact_type,
            config: described(media::EMPTY, &empty),
            layers: blobs
                .iter()
                .map(|(kind, bytes)| described(kind, bytes))
                .collect(),
            subject: subject.descriptor(),
            annotations: annotations.clone(),
        };
        // Only keys that are not text make this fail, and there are none.
        let bytes = Bytes::from(serde_json::to_vec(&document).unwrap_or_default());
        let digest = Digest::of(&bytes);
        let is_listed = self
            .put_document(&digest.to_string(), media::OCI_MANIFEST, &bytes)
            .await?;
        if !is_listed {
            let mut entry = described(media::OCI_MANIFEST, &bytes);
            entry["artifactType"] = artifact_type.into();
            entry["annotations"] = annotations;
            self.list_referrer(&subject.digest(), entry).await?;
        }
        Ok(digest)
    }

    /// Adds an artifact to the list on a registry without a referrers API.
    async fn list_referrer(&self, subject: &Digest, entry: Value) -> Result<()> {
        let tag = fallback_tag(subject);
        let known = match self.read_manifest(&tag).await {
            Ok(known) => Some(known),
            Err(RemoteError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let refused = |reason: &str| RemoteError::Refused {
            place: format!("{}, tag {tag}", self.place()),
            reason: reason.to_string(),
        };
        let known = known.as_ref().map(|known| &known.bytes[..]);
        let index = with_referrer(known, entry)
            .ok_or_else(|| refused("the list of referrers in the registry is not an index"))?;
        if index.len() > MAX_MANIFEST {
            return Err(refused("the list of referrers is too long"));
        }
        self.put_document(&tag, media::OCI_INDEX, &Bytes::from(index))
            .await?;
        Ok(())
    }
}

/// Returns the list with a new artifact in place of those of the same type, or `None` if the list
/// is not an index.
fn with_referrer(known: Option<&[u8]>, entry: Value) -> Option<Vec<u8>> {
    let mut index: Map<String, Value> = match known {
        Some(known) => serde_json::from_slice(known).ok()?,
        None => Map::new(),
    };
    if known.is_some() && !index.contains_key("manifests") {
        return None;
    }
    index.insert("schemaVersion".to_owned(), 2.into());
    index.insert("mediaType".to_owned(), media::OCI_INDEX.into());
    let manifests = index.entry("manifests").or_insert_with(|| json!([]));
    let manifests = manifests.as_array_mut()?;
    manifests.retain(|other| other["artifactType"] != entry["artifactType"]);
    manifests.push(entry);
    serde_json::to_vec(&index).ok()
}

fn described(media_type: &str, bytes: &Bytes) -> Value {
    json!({
        "mediaType": media_type,
        "digest": Digest::of(bytes).to_string(),
        "size": u64_from(bytes.len()),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_list_keeps_the_artifacts_of_other_programs() {
        let entry = |kind: &str, at: &str| json!({"artifactType": kind, "digest": at, "x": 1});
        let first = with_referrer(None, entry("ours", "1")).unwrap();
        let mut index: Value = serde_json::from_slice(&first).unwrap();
        assert_eq!(index["mediaType"], media::OCI_INDEX);
        index["manifests"] = json!([entry("theirs", "2"), entry("ours", "1"), {"digest": "3"}]);
        index["annotations"] = json!({"a": "b"});
        let bytes = serde_json::to_vec(&index).unwrap();
        let next = with_referrer(Some(&bytes), entry("ours", "4")).unwrap();
        index["manifests"] = json!([entry("theirs", "2"), {"digest": "3"}, entry("ours", "4")]);
        assert_eq!(serde_json::from_slice::<Value>(&next).unwrap(), index);
        for other in ["[]", "{}", "7", "{\"manifests\": {}}", ""] {
            let refused = with_referrer(Some(other.as_bytes()), entry("ours", "1"));
            assert_eq!(refused, None, "{other}");
        }
    }
}
