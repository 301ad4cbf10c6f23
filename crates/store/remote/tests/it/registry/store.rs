//! Contents of a registry, as data: manifests and blobs that a [`Fake`](super::fake::Fake) serves.

use std::collections::HashMap;

use forerun_cache::{Digest, TableBuilder};
use serde_json::{Value, json};

use super::fake::{Answer, Request};
use super::support::{CHUNK, PART};

pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";

#[derive(Clone, Default)]
pub struct Store {
    pub manifests: HashMap<String, (String, Vec<u8>)>,
    pub blobs: HashMap<Digest, Vec<u8>>,
}

impl Store {
    /// Adds a blob, and returns its descriptor for a manifest.
    pub fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = Digest::of(bytes);
        self.blobs.insert(digest, bytes.to_vec());
        json!({"mediaType": media_type, "digest": digest.to_string(), "size": bytes.len()})
    }

    /// Adds a manifest under a tag and its digest.
    pub fn manifest(&mut self, tag: &str, media_type: &str, document: &Value) -> Digest {
        let bytes = serde_json::to_vec(document).unwrap();
        let digest = Digest::of(&bytes);
        for key in [tag.to_string(), digest.to_string()] {
            self.manifests
                .insert(key, (media_type.to_string(), bytes.clone()));
        }
        digest
    }

    /// Creates a store with a manifest of one layer, which is a plain image.
    pub fn single(media_type: &str, layer: &[u8]) -> Self {
        let mut store = Self::default();
        let config = store.blob("application/vnd.oci.empty.v1+json", b"{}");
        let layer = store.blob(media_type, layer);
        let document = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": config, "layers": [layer]
        });
        store.manifest("v1", OCI_MANIFEST, &document);
        store
    }

    /// Creates a store with `image` in forerun's form. The closures change the documents before
    /// they are stored.
    pub fn artifact(
        image: &[u8],
        change_config: impl Fn(&mut Value),
        change_manifest: impl Fn(&mut Value),
    ) -> Self {
        let mut store = Self::default();
        let mut builder = TableBuilder::new(CHUNK).unwrap();
        builder.push(image).unwrap();
        let table = builder.finish().unwrap();
        let mut config = json!({
            "imageLength": image.len(), "chunkSize": CHUNK, "partLength": PART,
            "verityRoot": table.root().to_string(), "format": "erofs"
        });
        change_config(&mut config);
        let config = serde_json::to_vec(&config).unwrap();
        let config = store.blob("application/vnd.forerun.config.v1+json", &config);
        let mut layers = vec![store.blob("application/vnd.forerun.table.v1", table.bytes())];
        for part in image.chunks(PART as usize) {
            layers.push(store.blob("application/vnd.forerun.part.v1", part));
        }
        let mut document = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST,
            "artifactType": "application/vnd.forerun.image.v1",
            "config": config, "layers": layers
        });
        change_manifest(&mut document);
        store.manifest("v1", OCI_MANIFEST, &document);
        store
    }

    pub fn answer(&self, request: &Request) -> Answer {
        let not_found = || Answer::new(404, r#"{"errors":[{"code":"NOT_FOUND","message":"no"}]}"#);
        let (kind, key) = match request.path.rsplit_once('/') {
            Some((rest, key)) => (rest.rsplit('/').next().unwrap(), key),
            None => return not_found(),
        };
        if kind == "manifests" {
            return match self.manifests.get(key) {
                Some((media_type, bytes)) => Answer::new(200, &**bytes)
                    .with("Content-Type", media_type)
                    .with("Docker-Content-Digest", Digest::of(bytes)),
                None => not_found(),
            };
        }
        let blob = key
            .parse()
            .ok()
            .and_then(|digest: Digest| self.blobs.get(&digest));
        blob.map_or_else(not_found, |blob| ranged(blob, request))
    }
}

/// Answers with `blob`, or with the requested range of it.
pub fn ranged(blob: &[u8], request: &Request) -> Answer {
    let range = request.header("range").and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
    });
    let Some((first, last)) = range else {
        return Answer::new(200, blob).with("Content-Length", blob.len());
    };
    match blob.get(first..=last) {
        Some(part) => Answer::new(206, part).with(
            "Content-Range",
            format!("bytes {first}-{last}/{}", blob.len()),
        ),
        None => Answer::new(416, ""),
    }
}
