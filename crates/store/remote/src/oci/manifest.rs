//! Parses manifests and indexes into validated values.
//!
//! Only the needed fields are kept. A document that could be read as both kinds, or whose type
//! differs from the server's `Content-Type`, is refused, so that two readers cannot see two images
//! in it.

use forerun_cache::Digest;
use serde::Deserialize;

use crate::LayerContents;
use crate::oci::annotations::RawAnnotations;
use crate::oci::media;
use crate::oci::platform::Platform;
use crate::redact::plain;

/// Longest accepted manifest: the usual limit of registries.
pub const MAX_MANIFEST: usize = 4 << 20;
pub use crate::oci::layer_contents::MAX_LAYERS;
/// Most layers of an image in forerun's form, and most entries of an index.
const MAX_ENTRIES: usize = 8192;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDocument {
    #[error("unexpected JSON at line {line}, column {column}")]
    Json { line: usize, column: usize },
    #[error("schemaVersion is {0}, not 2")]
    Schema(u32),
    #[error("the server says its media type is {told}, the document says {own}")]
    TypeMismatch { told: String, own: String },
    #[error("documents of type {0} are not supported")]
    Type(String),
    #[error("it is both a manifest and an index")]
    Ambiguous,
    #[error("it has neither layers nor manifests")]
    Empty,
    #[error("it has {0} entries, more than are allowed")]
    TooMany(usize),
    #[error("digest {0} is not a SHA-256 digest")]
    Digest(String),
}

impl BadDocument {
    pub fn json(error: &serde_json::Error) -> Self {
        Self::Json {
            line: error.line(),
            column: error.column(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    Manifest(Manifest),
    Index(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The type of the artifact. `None` for a container image.
    pub artifact_type: Option<String>,
    pub config: Descriptor,
    pub layers: Vec<Descriptor>,
}

/// A reference to a blob by digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    pub media_type: String,
    pub digest: Digest,
    pub len: u64,
    /// The table of contents that the annotations name.
    pub contents: Option<LayerContents>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub descriptor: Descriptor,
    pub artifact_type: Option<String>,
    /// The name in a layout on disk.
    pub name: Option<String>,
    pub platform: Option<Platform>,
    pub created: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDocument {
    schema_version: u32,
    media_type: Option<String>,
    artifact_type: Option<String>,
    config: Option<RawDescriptor>,
    layers: Option<Vec<RawDescriptor>>,
    manifests: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    media_type: String,
    digest: String,
    size: u64,
    artifact_type: Option<String>,
    platform: Option<RawPlatform>,
    annotations: Option<RawAnnotations>,
}

#[derive(Deserialize)]
struct RawPlatform {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
}

/// Parses a document. `told` is its media type according to the server.
pub fn parse(bytes: &[u8], told: Option<&str>) -> Result<Document, BadDocument> {
    let raw: RawDocument =
        serde_json::from_slice(bytes).map_err(|error| BadDocument::json(&error))?;
    if raw.schema_version != 2 {
        return Err(BadDocument::Schema(raw.schema_version));
    }
    let told = told.filter(|told| is_known(told));
    let own = raw.media_type.as_deref();
    if let (Some(told), Some(own)) = (told, own)
        && told != own
    {
        return Err(BadDocument::TypeMismatch {
            told: told.to_string(),
            own: shown(own),
        });
    }
    if let Some(own) = own.filter(|own| !is_known(own)) {
        return Err(BadDocument::Type(shown(own)));
    }
    let is_index = own
        .or(told)
        .map(|kind| matches!(kind, media::OCI_INDEX | media::DOCKER_LIST));
    match (raw.config, raw.layers, raw.manifests) {
        (Some(config), Some(layers), None) if is_index != Some(true) => {
            bounded(layers.len())?;
            let layers = layers.into_iter().map(descriptor);
            Ok(Document::Manifest(Manifest {
                // Older documents have no `artifactType`; the type of the configuration replaces
                // it.
                artifact_type: raw
                    .artifact_type
                    .or_else(|| Some(config.media_type.clone())),
                config: descriptor(config)?,
                layers: layers.collect::<Result<_, _>>()?,
            }))
        }
        (None, None, Some(manifests)) if is_index != Some(false) => {
            bounded(manifests.len())?;
            let entries = manifests.into_iter().map(entry);
            Ok(Document::Index(entries.collect::<Result<_, _>>()?))
        }
        (None, None, None) => Err(BadDocument::Empty),
        _ => Err(BadDocument::Ambiguous),
    }
}

#[derive(Deserialize)]
struct RawConfig {
    rootfs: RawRoot,
}

#[derive(Deserialize)]
struct RawRoot {
    diff_ids: Vec<String>,
}

/// Returns the digests of the uncompressed layers, from the configuration of a container image.
pub fn diff_ids(config: &[u8]) -> Result<Vec<Digest>, BadDocument> {
    let config: RawConfig =
        serde_json::from_slice(config).map_err(|error| BadDocument::json(&error))?;
    config.rootfs.diff_ids.iter().map(|id| digest(id)).collect()
}

fn digest(text: &str) -> Result<Digest, BadDocument> {
    text.parse().map_err(|_| BadDocument::Digest(shown(text)))
}

fn is_known(media_type: &str) -> bool {
    matches!(
        media_type,
        media::OCI_MANIFEST | media::OCI_INDEX | media::DOCKER_MANIFEST | media::DOCKER_LIST
    )
}

fn bounded(count: usize) -> Result<(), BadDocument> {
    match count {
        0..=MAX_ENTRIES => Ok(()),
        count => Err(BadDocument::TooMany(count)),
    }
}

fn descriptor(raw: RawDescriptor) -> Result<Descriptor, BadDocument> {
    let annotations = raw.annotations.unwrap_or_default();
    Ok(Descriptor {
        contents: annotations.contents(&raw.media_type),
        digest: digest(&raw.digest)?,
        media_type: raw.media_type,
        len: raw.size,
    })
}

fn entry(mut raw: RawDescriptor) -> Result<Entry, BadDocument> {
    let platform = raw.platform.take().and_then(|platform| {
        Some(Platform {
            os: platform.os?,
            architecture: platform.architecture?,
            variant: platform.variant,
        })
    });
    let annotations = raw.annotations.take().unwrap_or_default();
    Ok(Entry {
        artifact_type: raw.artifact_type.take(),
        name: annotations.name,
        created: annotations.created,
        platform,
        descriptor: descriptor(raw)?,
    })
}

pub fn shown(text: &str) -> String {
    plain(text, 120)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const D: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn manifest(fields: &str) -> Result<Document, BadDocument> {
        parse(format!("{{{}}}", fields.replace("$D", D)).as_bytes(), None)
    }

    #[test]
    fn documents_are_of_one_kind() {
        let part = r#"{"mediaType":"x","digest":"$D","size":3}"#;
        let config = format!(r#""schemaVersion":2,"config":{part}"#);
        let good = manifest(&format!(
            r#"{config},"layers":[{part}],"annotations":{{"a":"b"}}"#
        ));
        let Document::Manifest(good) = good.unwrap() else {
            unreachable!("it has layers");
        };
        assert_eq!((good.layers.len(), good.layers[0].len), (1, 3));
        assert_eq!(good.artifact_type.as_deref(), Some("x"));
        for (text, expected) in [
            (
                format!(r#"{config},"layers":[],"manifests":[]"#),
                BadDocument::Ambiguous,
            ),
            (
                r#""schemaVersion":1,"layers":[]"#.to_string(),
                BadDocument::Schema(1),
            ),
            (r#""schemaVersion":2"#.to_string(), BadDocument::Empty),
            (
                format!(r#"{config},"layers":[],"mediaType":"{}""#, media::OCI_INDEX),
                BadDocument::Ambiguous,
            ),
            (
                format!(r#"{config},"layers":[],"mediaType":"y""#),
                BadDocument::Type("y".into()),
            ),
            (
                format!(r#"{config},"layers":[{}]"#, part.replace("$D", "sha512:00")),
                BadDocument::Digest("sha512:00".into()),
            ),
            (
                format!(r#"{config},"layers":[{}]"#, vec![part; 8193].join(",")),
                BadDocument::TooMany(8193),
            ),
        ] {
            assert_eq!(manifest(&text), Err(expected));
        }
        for text in [
            format!(r#"{config},"layers":[{}]"#, part.replace('3', "-3")),
            format!(r#"{config},"layers":[],"layers":[]"#),
            format!(r#"{config},"layers":7"#),
            r#""schemaVersion":2,"layers":"#.to_string() + &"[".repeat(100_000),
        ] {
            let error = manifest(&text).unwrap_err();
            assert!(matches!(error, BadDocument::Json { .. }), "{error}");
        }
    }

    #[test]
    fn the_server_and_the_document_agree_on_its_type() {
        let text = format!(
            r#"{{"schemaVersion":2,"mediaType":"{}","manifests":[]}}"#,
            media::OCI_INDEX
        );
        assert!(parse(text.as_bytes(), Some(media::OCI_INDEX)).is_ok());
        assert!(parse(text.as_bytes(), Some("application/json")).is_ok());
        let error = parse(text.as_bytes(), Some(media::OCI_MANIFEST)).unwrap_err();
        assert!(matches!(error, BadDocument::TypeMismatch { .. }), "{error}");
    }
}
