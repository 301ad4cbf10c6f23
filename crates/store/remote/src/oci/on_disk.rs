//! Container images on disk: OCI image layouts, and the archives of `docker save`.
//!
//! The caller reads the files; this module parses and verifies documents. It contacts no server.

use std::io;

use forerun_cache::Digest;
use serde::Deserialize;

use crate::LayerContents;
use crate::oci::choose::choose;
use crate::oci::manifest::{
    self, BadDocument, Descriptor, Document, Entry, MAX_LAYERS, MAX_MANIFEST, shown,
};
use crate::oci::media::{self, Layer};
use crate::oci::on_disk_soci::{self, Imaged};
use crate::oci::platform::Platform;

/// Most nested indexes that are followed.
const MAX_DEPTH: usize = 4;

/// Reads a file by its path. The second argument is the maximum length.
pub type ReadDocument<'r> = dyn FnMut(&str, usize) -> io::Result<Vec<u8>> + 'r;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerFile {
    /// Path in the layout or archive.
    pub path: String,
    /// The digest of the layer as stored.
    pub digest: Digest,
    /// The length in bytes, if a document gives it.
    pub len: Option<u64>,
    /// The table of contents that the manifest names by digest.
    pub contents: Option<LayerContents>,
    /// The table of contents from an artifact that refers to the image. No manifest has its digest.
    pub claimed: Option<LayerContents>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundLayers {
    /// Lowest layer first.
    pub layers: Vec<LayerFile>,
    /// Why the SOCI tables that the manifest names are not used.
    pub unused_tables: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum OnDiskError {
    #[error("{path}: {source}")]
    Read { path: String, source: io::Error },
    #[error("{path}: {reason}")]
    Refused { path: String, reason: String },
    /// No image has this name, or several could be meant.
    #[error("{path}: {reason}")]
    Unchosen { path: String, reason: String },
}

fn unchosen(path: &str, reason: impl Into<String>) -> OnDiskError {
    OnDiskError::Unchosen {
        path: path.to_string(),
        reason: reason.into(),
    }
}

fn refused(path: &str, reason: impl Into<String>) -> OnDiskError {
    OnDiskError::Refused {
        path: path.to_string(),
        reason: reason.into(),
    }
}

/// Finds the layers of an image in an OCI image layout, lowest first. `name` is the image's name in
/// the index or the digest of its manifest. Without a name, the image must be the only one, or the
/// only one for the platform. With `referrers`, tables of contents are also taken from manifests
/// that refer to the image.
///
/// Fails if a document cannot be read, is damaged or does not have its digest, if there is no such
/// image, or if a layer is neither an archive nor an image.
pub fn layers_of_layout(
    name: Option<&str>,
    platform: Option<&Platform>,
    referrers: bool,
    read: &mut ReadDocument<'_>,
) -> Result<FoundLayers, OnDiskError> {
    const INDEX: &str = "index.json";
    let bytes = document(INDEX, read)?;
    let mut found = Followed {
        path: INDEX.to_string(),
        document: parsed(INDEX, &bytes)?,
        bytes,
    };
    let (mut name, mut top) = (name, None);
    for _ in 0..=MAX_DEPTH {
        let entries = match found.document {
            Document::Manifest(manifest) => {
                let mut layers = layers(&found.path, &manifest.layers)?;
                let image = Imaged {
                    digest: Digest::of(&found.bytes),
                    manifest: &found.bytes,
                    entries: top.as_deref().unwrap_or_default(),
                };
                let attached = on_disk_soci::attach(&image, &mut layers, referrers, read);
                return Ok(FoundLayers {
                    layers,
                    unused_tables: attached.err(),
                });
            }
            Document::Index(entries) => entries,
        };
        let entry = {
            let named = match name.take() {
                Some(name) => named(&found.path, &entries, name)?,
                None => entries.clone(),
            };
            let chosen = choose(&named, platform);
            chosen
                .map_err(|reason| unchosen(&found.path, reason))?
                .clone()
        };
        top.get_or_insert(entries);
        found = follow(&entry.descriptor, read)?;
    }
    Err(refused(
        &found.path,
        format!("indexes refer to indexes more than {MAX_DEPTH} times"),
    ))
}

fn named(path: &str, entries: &[Entry], name: &str) -> Result<Vec<Entry>, OnDiskError> {
    let digest: Option<Digest> = name.parse().ok();
    let is_named = |entry: &Entry| {
        entry.name.as_deref() == Some(name) || digest == Some(entry.descriptor.digest)
    };
    let known: Vec<String> = entries
        .iter()
        .filter_map(|entry| entry.name.as_deref())
        .take(12)
        .map(shown)
        .collect();
    let named: Vec<Entry> = entries
        .iter()
        .filter(|entry| is_named(entry))
        .cloned()
        .collect();
    if named.is_empty() {
        Err(not_named(path, name, &known))
    } else {
        Ok(named)
    }
}

fn not_named(path: &str, name: &str, known: &[String]) -> OnDiskError {
    let known = if known.is_empty() {
        "no image has a name".to_string()
    } else {
        format!("there are {}", known.join(", "))
    };
    let name = shown(name);
    unchosen(path, format!("no image is named {name:?}; {known}"))
}

/// A document of a layout that a descriptor names.
struct Followed {
    path: String,
    bytes: Vec<u8>,
    document: Document,
}

fn follow(descriptor: &Descriptor, read: &mut ReadDocument<'_>) -> Result<Followed, OnDiskError> {
    let path = blob_path(&descriptor.digest);
    let bytes = document(&path, read)?;
    let digest = Digest::of(&bytes);
    if digest != descriptor.digest {
        return Err(refused(&path, format!("its digest is {digest}")));
    }
    Ok(Followed {
        document: parsed(&path, &bytes)?,
        path,
        bytes,
    })
}

#[must_use]
pub fn blob_path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn document(path: &str, read: &mut ReadDocument<'_>) -> Result<Vec<u8>, OnDiskError> {
    read(path, MAX_MANIFEST).map_err(|source| OnDiskError::Read {
        path: path.to_string(),
        source,
    })
}

fn parsed(path: &str, bytes: &[u8]) -> Result<Document, OnDiskError> {
    manifest::parse(bytes, None).map_err(|error| refused(path, error.to_string()))
}

fn layers(path: &str, layers: &[Descriptor]) -> Result<Vec<LayerFile>, OnDiskError> {
    bounded(path, layers.len())?;
    let layers = layers
        .iter()
        .map(|layer| match media::layer(&layer.media_type) {
            Layer::Tar | Layer::Image => Ok(LayerFile {
                path: blob_path(&layer.digest),
                digest: layer.digest,
                len: Some(layer.len),
                contents: layer.contents,
                claimed: None,
            }),
            Layer::Wrapped => Err(refused(
                path,
                format!(
                    "its layer {} is compressed or encrypted in an unknown way",
                    shown(&layer.media_type)
                ),
            )),
        });
    layers.collect()
}

fn bounded(path: &str, count: usize) -> Result<(), OnDiskError> {
    match count {
        0 => Err(refused(path, "it has no layers")),
        1..=MAX_LAYERS => Ok(()),
        count => Err(refused(
            path,
            format!("it has {count} layers; at most {MAX_LAYERS} are allowed"),
        )),
    }
}

/// An image in the `manifest.json` of `docker save`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Finds the layers of an image in an archive of `docker save`, lowest first. `name` is one of the
/// image's tags; without a name, the image must be the only one. The digests are those of the
/// uncompressed layers.
pub fn layers_of_docker_archive(
    name: Option<&str>,
    read: &mut ReadDocument<'_>,
) -> Result<FoundLayers, OnDiskError> {
    const MANIFEST: &str = "manifest.json";
    let bytes = document(MANIFEST, read)?;
    let images: Vec<SavedImage> = serde_json::from_slice(&bytes)
        .map_err(|error| refused(MANIFEST, BadDocument::json(&error).to_string()))?;
    let tags = |image: &SavedImage| image.repo_tags.clone().unwrap_or_default();
    let known: Vec<String> = images
        .iter()
        .flat_map(tags)
        .take(12)
        .map(|tag| shown(&tag))
        .collect();
    let mut named = images.into_iter().filter(|image| match name {
        Some(name) => tags(image).iter().any(|tag| tag == name),
        None => true,
    });
    let Some(image) = named.next() else {
        return Err(match name {
            Some(name) => not_named(MANIFEST, name, &known),
            None => unchosen(MANIFEST, "it has no image"),
        });
    };
    if named.next().is_some() {
        let known = known.join(", ");
        let reason = format!("it has several images: name one of {known}");
        return Err(unchosen(MANIFEST, reason));
    }
    bounded(MANIFEST, image.layers.len())?;
    let bytes = document(&image.config, read)?;
    let digests = manifest::diff_ids(&bytes)
        .map_err(|error| refused(&shown(&image.config), error.to_string()))?;
    if digests.len() != image.layers.len() {
        let reason = format!(
            "{} layers, and digests of {}",
            image.layers.len(),
            digests.len()
        );
        return Err(refused(&shown(&image.config), reason));
    }
    let layers = image.layers.into_iter().zip(digests);
    let layers = layers.map(|(path, digest)| LayerFile {
        path,
        digest,
        len: None,
        contents: None,
        claimed: None,
    });
    Ok(FoundLayers {
        layers: layers.collect(),
        unused_tables: None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::HashMap;

    use serde_json::{Value, json};

    use super::*;

    #[derive(Default)]
    struct Files(HashMap<String, Vec<u8>>);

    impl Files {
        fn blob(&mut self, media_type: &str, document: &Value) -> Value {
            let bytes = serde_json::to_vec(document).unwrap();
            let digest = Digest::of(&bytes);
            let descriptor =
                json!({"mediaType": media_type, "digest": digest.to_string(), "size": bytes.len()});
            self.0.insert(blob_path(&digest), bytes);
            descriptor
        }

        fn manifest(&mut self, layers: &[Value]) -> Value {
            let config = self.blob(media::OCI_CONFIG, &json!({}));
            let document = json!({"schemaVersion": 2, "config": config, "layers": layers});
            self.blob(media::OCI_MANIFEST, &document)
        }

        fn index(&mut self, manifests: &[Value]) {
            let document = json!({"schemaVersion": 2, "manifests": manifests});
            self.0
                .insert("index.json".into(), serde_json::to_vec(&document).unwrap());
        }

        fn read(&self, path: &str, most: usize) -> io::Result<Vec<u8>> {
            assert!(most <= MAX_MANIFEST);
            self.0
                .get(path)
                .cloned()
                .ok_or_else(|| io::ErrorKind::NotFound.into())
        }

        fn layers(&self, name: Option<&str>) -> Result<Vec<LayerFile>, String> {
            let mut read = |path: &str, most| self.read(path, most);
            let found = layers_of_layout(name, None, false, &mut read);
            found
                .map(|found| found.layers)
                .map_err(|error| error.to_string())
        }
    }

    fn layer(name: &str) -> Value {
        json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
            "digest": Digest::of(name.as_bytes()).to_string(), "size": 7
        })
    }

    #[test]
    fn an_image_is_found_by_name_by_digest_or_alone() {
        let mut files = Files::default();
        let mut first = files.manifest(&[layer("a"), layer("b")]);
        files.index(std::slice::from_ref(&first));
        let found = files.layers(None).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].path, blob_path(&Digest::of(b"a")));
        assert_eq!((found[1].digest, found[1].len), (Digest::of(b"b"), Some(7)));
        first["annotations"] = json!({"org.opencontainers.image.ref.name": "v1"});
        let digest = first["digest"].as_str().unwrap().to_string();
        let second = files.manifest(&[layer("c")]);
        files.index(&[first, second]);
        assert_eq!(files.layers(Some("v1")), Ok(found.clone()));
        assert_eq!(files.layers(Some(&digest)), Ok(found));
        assert!(
            files
                .layers(Some("v2"))
                .unwrap_err()
                .contains("there are v1")
        );
        assert!(
            files
                .layers(None)
                .unwrap_err()
                .contains("index of 2 manifests")
        );
    }

    #[test]
    fn indexes_may_lead_to_indexes_but_not_for_ever() {
        for depth in 1..8 {
            let mut files = Files::default();
            let mut top = files.manifest(&[layer("a")]);
            for _ in 1..depth {
                let document = json!({"schemaVersion": 2, "manifests": [top]});
                top = files.blob(media::OCI_INDEX, &document);
            }
            files.index(&[top]);
            let found = files.layers(None);
            assert_eq!(found.is_ok(), depth <= MAX_DEPTH, "{depth}: {found:?}");
        }
    }

    #[test]
    fn documents_that_lie_are_refused() {
        let mut files = Files::default();
        let manifest = files.manifest(&[layer("a")]);
        files.index(std::slice::from_ref(&manifest));
        let digest: Digest = manifest["digest"].as_str().unwrap().parse().unwrap();
        files.0.get_mut(&blob_path(&digest)).unwrap().push(b' ');
        assert!(files.layers(None).unwrap_err().contains("its digest is"));
        files.0.remove(&blob_path(&digest));
        assert!(files.layers(None).unwrap_err().contains(&digest.hex()));
        let wrapped = json!({"mediaType": "application/x.tar+encrypted", "digest": Digest::of(b"").to_string(), "size": 1});
        let many: Vec<Value> = (0..1025).map(|_| layer("a")).collect();
        for (layers, expected) in [
            (vec![wrapped], "no"),
            (Vec::new(), "no layers"),
            (many, "1025 layers"),
        ] {
            let manifest = files.manifest(&layers);
            files.index(&[manifest]);
            let found = files.layers(None);
            let text = found.map_or_else(
                |error| error,
                |found| format!("no error, {} layers", found.len()),
            );
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn a_saved_image_has_layers_and_their_digests() {
        let mut files = Files::default();
        let saved = json!([
            {"Config": "c.json", "RepoTags": ["a:1"], "Layers": ["x/layer.tar", "y/layer.tar"]},
            {"Config": "d.json", "RepoTags": null, "Layers": ["x/layer.tar"]}
        ]);
        let ids = [Digest::of(b"x").to_string(), Digest::of(b"y").to_string()];
        files
            .0
            .insert("manifest.json".into(), serde_json::to_vec(&saved).unwrap());
        for (name, ids) in [("c.json", &ids[..]), ("d.json", &[])] {
            let config = json!({"rootfs": {"type": "layers", "diff_ids": ids}});
            files
                .0
                .insert(name.into(), serde_json::to_vec(&config).unwrap());
        }
        let layers = |name: Option<&str>| {
            let found = layers_of_docker_archive(name, &mut |path, most| files.read(path, most));
            found
                .map(|found| found.layers)
                .map_err(|error| error.to_string())
        };
        let found = layers(Some("a:1")).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[1].path.as_str(), found[1].digest),
            ("y/layer.tar", Digest::of(b"y"))
        );
        assert!(layers(None).unwrap_err().contains("name one of a:1"));
        let other = layers(Some("b")).unwrap_err();
        assert!(
            other.contains("no image is named \"b\"; there are a:1"),
            "{other}"
        );
    }
}
