//! Builds the configuration and the manifest. The same image always gives the same bytes.

use std::collections::BTreeMap;

use forerun_cache::Digest;
use forerun_io::u64_from;
use serde::Serialize;

use crate::oci::artifact::ImageConfig;
use crate::oci::media;

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlobDescriptor {
    media_type: &'static str,
    digest: String,
    size: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushedManifest<'a> {
    schema_version: u32,
    media_type: &'static str,
    artifact_type: &'static str,
    config: &'a BlobDescriptor,
    layers: &'a [BlobDescriptor],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    annotations: &'a BTreeMap<String, String>,
}

/// Creates the descriptor of `bytes`, whose digest is known.
pub(super) fn descriptor(media_type: &'static str, digest: Digest, bytes: &[u8]) -> BlobDescriptor {
    BlobDescriptor {
        media_type,
        digest: digest.to_string(),
        size: u64_from(bytes.len()),
    }
}

pub(super) fn config(config: &ImageConfig) -> Vec<u8> {
    json(config)
}

pub(super) fn manifest(
    config: &BlobDescriptor,
    layers: &[BlobDescriptor],
    annotations: &BTreeMap<String, String>,
) -> Vec<u8> {
    json(&PushedManifest {
        schema_version: 2,
        media_type: media::OCI_MANIFEST,
        artifact_type: media::ARTIFACT,
        config,
        layers,
        annotations,
    })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    // Only keys that are not text and failing writers make this fail, and there are none.
    serde_json::to_vec(value).unwrap_or_default()
}
