//! SOCI indexes of container images: manifests whose blobs are tables of contents, one per layer.
//!
//! Versions 1 and 2 have the same blobs. Version 1 is an artifact that refers to the manifest of
//! the image. Version 2 is named, with its digest, by the manifest of a converted image.
//! docs/soci-index-manifest-v2.md of soci-snapshotter describes both.

use forerun_cache::Digest;
use serde::Deserialize;

use crate::LayerContents;
use crate::oci::manifest::{self, BadDocument, Document};

pub use crate::oci::media::SOCI_V1 as V1;
pub use crate::oci::media::SOCI_V2 as V2;
/// Longest accepted table. The table is in memory while a layer is opened.
const MAX_TABLE: u64 = 64 << 20;

/// The digest of a layer, and its table.
pub type SociTable = (Digest, LayerContents);

#[derive(Deserialize)]
struct RawImage {
    #[serde(default)]
    annotations: ImageAnnotations,
}

#[derive(Default, Deserialize)]
struct ImageAnnotations {
    #[serde(rename = "com.amazon.soci.index-digest")]
    index: Option<String>,
}

#[derive(Deserialize)]
struct RawIndex {
    layers: Vec<RawTable>,
}

#[derive(Deserialize)]
struct RawTable {
    digest: String,
    size: u64,
    #[serde(default, rename = "mediaType")]
    media_type: String,
    #[serde(default)]
    annotations: TableAnnotations,
}

#[derive(Default, Deserialize)]
struct TableAnnotations {
    #[serde(rename = "com.amazon.soci.image-layer-digest")]
    layer: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum BadSoci {
    #[error("SOCI index: {0}")]
    Document(#[from] BadDocument),
    #[error("the SOCI index is not of type {0}")]
    Type(&'static str),
}

pub fn index_of(manifest: &[u8]) -> Option<Digest> {
    let raw: RawImage = serde_json::from_slice(manifest).ok()?;
    raw.annotations.index?.parse().ok()
}

/// Parses an index of this type. Skips blobs of other kinds, such as lists of spans to prefetch.
pub fn tables(bytes: &[u8], artifact_type: &'static str) -> Result<Vec<SociTable>, BadSoci> {
    match manifest::parse(bytes, None)? {
        Document::Manifest(manifest)
            if manifest.artifact_type.as_deref() == Some(artifact_type) => {}
        Document::Manifest(_) | Document::Index(_) => return Err(BadSoci::Type(artifact_type)),
    }
    let raw: RawIndex = serde_json::from_slice(bytes).map_err(|error| BadDocument::json(&error))?;
    let tables = raw.layers.into_iter().filter_map(|table| {
        let is_table = table.media_type == "application/octet-stream" && table.size <= MAX_TABLE;
        let layer = table.annotations.layer.filter(|_| is_table)?.parse().ok()?;
        let (digest, len) = (table.digest.parse().ok()?, table.size);
        Some((layer, LayerContents::Soci { digest, len }))
    });
    Ok(tables.collect())
}

pub fn table_of(tables: &[SociTable], layer: Digest) -> Option<LayerContents> {
    let mut tables = tables.iter();
    tables.find(|(of, _)| *of == layer).map(|(_, table)| *table)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{Value, json};

    use super::*;

    fn index(change: impl FnOnce(&mut Value)) -> Result<Vec<SociTable>, BadSoci> {
        let digest = |text: &str| Digest::of(text.as_bytes()).to_string();
        let mut index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "artifactType": V2,
            "config": {"mediaType": V2, "digest": digest("{}"), "size": 2},
            "layers": [{
                "mediaType": "application/octet-stream", "digest": digest("table"), "size": 5,
                "annotations": {"com.amazon.soci.image-layer-digest": digest("layer"), "other": "x"},
            }, {
                "mediaType": "application/vnd.amazon.soci.prefetch.v1+json", "digest": digest("list"), "size": 5,
                "annotations": {"com.amazon.soci.image-layer-digest": digest("layer")},
            }, {"mediaType": "application/octet-stream", "digest": digest("of none"), "size": 5}],
        });
        change(&mut index);
        tables(&serde_json::to_vec(&index).unwrap(), V2)
    }

    #[test]
    fn an_index_has_tables_of_layers() {
        let expected = LayerContents::Soci {
            digest: Digest::of(b"table"),
            len: 5,
        };
        assert_eq!(index(|_| ()).unwrap(), [(Digest::of(b"layer"), expected)]);
        let none = |change: fn(&mut Value)| index(change).unwrap().is_empty();
        assert!(none(
            |index| index["layers"][0]["size"] = json!((64 << 20) + 1)
        ));
        let name = "com.amazon.soci.image-layer-digest";
        assert!(none(|index| index["layers"][0]["annotations"] = json!({})));
        let annotation = json!({ name: "sha512:00" });
        let changed = index(|index| index["layers"][0]["annotations"] = annotation);
        assert!(changed.unwrap().is_empty());
        assert!(index(|index| index["artifactType"] = json!(V1)).is_err());
        assert!(index(|index| index["layers"] = json!(7)).is_err());
        assert!(index(|index| index["schemaVersion"] = json!(1)).is_err());
    }

    #[test]
    fn a_manifest_names_its_index() {
        let of = |text: &str| index_of(text.as_bytes());
        let digest = Digest::of(b"index");
        let named = format!(r#"{{"annotations": {{"com.amazon.soci.index-digest": "{digest}"}}}}"#);
        assert_eq!(of(&named), Some(digest));
        assert_eq!(of(&named.replace("sha256:", "sha512:")), None);
        assert_eq!(of(&named.replace(&format!("{digest:?}"), "7")), None);
        for text in ["{}", "7", "", r#"{"annotations": null}"#] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
