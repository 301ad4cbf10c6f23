//! Forerun's form of an image in a registry: its configuration, and the rules for its layers.
//!
//! docs/formats/registry.md describes the bytes. Redundant values (lengths, counts) must agree, so
//! that an image has only one reading.

use forerun_cache::{BadGeometry, Digest, Geometry};
use serde::{Deserialize, Serialize};

use crate::oci::manifest::{BadDocument, Descriptor, Manifest, shown};
use crate::oci::media;

pub const MAX_PARTS: u64 = 4096;

/// Longest image, whose length still fits in a signed offset.
const MAX_LEN: u64 = i64::MAX.unsigned_abs();

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImageConfig {
    pub image_length: u64,
    /// Bytes that a leaf of the table covers.
    pub chunk_size: u32,
    /// fs-verity digest of the image, with blocks of `chunk_size`.
    pub verity_root: String,
    /// Length in bytes of each part except the last.
    pub part_length: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub format: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadArtifact {
    #[error("its configuration: {0}")]
    Config(#[from] BadDocument),
    #[error("imageLength {0} is out of range")]
    Length(u64),
    #[error("its chunks: {0}")]
    Chunks(#[from] BadGeometry),
    #[error("partLength {0} is not a whole number of chunks")]
    PartLength(u64),
    #[error("verityRoot {0} is not a SHA-256 digest")]
    Root(String),
    #[error("layer {index} has the type {found}, not {expected}")]
    LayerType {
        index: usize,
        found: String,
        expected: &'static str,
    },
    #[error("it has {found} layers; an image of this length has {expected}")]
    LayerCount { found: usize, expected: u64 },
    #[error("layer {index} has {found} bytes, not {expected}")]
    LayerLength {
        index: usize,
        found: u64,
        expected: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Artifact {
    pub len: u64,
    pub chunk_size: u32,
    pub root: Digest,
    pub format: Option<String>,
    pub table: Descriptor,
    /// Consecutive parts, whose lengths add up to `len`.
    pub parts: Vec<Descriptor>,
}

/// Checks the configuration and the layers of `manifest` against each other.
pub fn check(config: &[u8], manifest: &Manifest) -> Result<Artifact, BadArtifact> {
    let config: ImageConfig =
        serde_json::from_slice(config).map_err(|error| BadDocument::json(&error))?;
    let len = config.image_length;
    if len == 0 || len > MAX_LEN {
        return Err(BadArtifact::Length(len));
    }
    let geometry = Geometry::new(len, config.chunk_size)?;
    let part_len = config.part_length;
    if part_len == 0 || !part_len.is_multiple_of(u64::from(config.chunk_size)) {
        return Err(BadArtifact::PartLength(part_len));
    }
    let root = config
        .verity_root
        .parse()
        .map_err(|_| BadArtifact::Root(shown(&config.verity_root)))?;
    let part_count = len.div_ceil(part_len);
    let expected = part_count + 1;
    let found = manifest.layers.len();
    let count = BadArtifact::LayerCount { found, expected };
    if part_count > MAX_PARTS || forerun_io::u64_from(found) != expected {
        return Err(count);
    }
    let (table, parts) = manifest.layers.split_first().ok_or(count)?;
    layer(0, table, media::TABLE, geometry.table_len())?;
    let mut left = len;
    for (index, part) in (1..).zip(parts) {
        let expected = left.min(part_len);
        layer(index, part, media::PART, expected)?;
        left -= expected;
    }
    Ok(Artifact {
        len,
        chunk_size: config.chunk_size,
        root,
        format: config.format.as_deref().map(shown),
        table: table.clone(),
        parts: parts.to_vec(),
    })
}

fn layer(
    index: usize,
    layer: &Descriptor,
    media_type: &'static str,
    expected: u64,
) -> Result<(), BadArtifact> {
    if layer.media_type != media_type {
        return Err(BadArtifact::LayerType {
            index,
            found: shown(&layer.media_type),
            expected: media_type,
        });
    }
    if layer.len != expected {
        return Err(BadArtifact::LayerLength {
            index,
            found: layer.len,
            expected,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn config() -> ImageConfig {
        ImageConfig {
            image_length: 20_000,
            chunk_size: 4096,
            verity_root: Digest::of(b"").to_string(),
            part_length: 8192,
            format: None,
        }
    }

    fn descriptor(media_type: &str, len: u64) -> Descriptor {
        Descriptor {
            media_type: media_type.to_string(),
            digest: Digest::of(b""),
            len,
            contents: None,
        }
    }

    fn layers() -> Vec<Descriptor> {
        let mut layers = vec![descriptor(media::TABLE, 4096)];
        layers.extend([8192, 8192, 3616].map(|len| descriptor(media::PART, len)));
        layers
    }

    fn outcome(
        change_config: impl Fn(&mut ImageConfig),
        change_layers: impl Fn(&mut Vec<Descriptor>),
    ) -> Result<Artifact, BadArtifact> {
        let (mut config, mut layers) = (config(), layers());
        change_config(&mut config);
        change_layers(&mut layers);
        let manifest = Manifest {
            artifact_type: Some(media::ARTIFACT.to_string()),
            config: descriptor(media::CONFIG, 1),
            layers,
        };
        check(&serde_json::to_vec(&config).unwrap(), &manifest)
    }

    #[test]
    fn what_is_said_twice_agrees() {
        let good = outcome(|_| (), |_| ()).unwrap();
        assert_eq!((good.len, good.parts.len()), (20_000, 3));
        let none = |_: &mut Vec<Descriptor>| ();
        assert_eq!(
            outcome(|c| c.image_length = 0, none),
            Err(BadArtifact::Length(0))
        );
        assert_eq!(
            outcome(|c| c.image_length = u64::MAX, none),
            Err(BadArtifact::Length(u64::MAX))
        );
        for bad in [0, 512, 5000, 1 << 21, u32::MAX] {
            let error = Err(BadArtifact::Chunks(BadGeometry::ChunkSize(bad)));
            assert_eq!(outcome(|c| c.chunk_size = bad, none), error);
        }
        for bad in [0, 4095, 6000] {
            assert_eq!(
                outcome(|c| c.part_length = bad, none),
                Err(BadArtifact::PartLength(bad))
            );
        }
        assert_eq!(
            outcome(|c| c.verity_root = "x".into(), none),
            Err(BadArtifact::Root("x".into()))
        );
        let count = |found, expected| Err(BadArtifact::LayerCount { found, expected });
        let long = 8192 * 10_000;
        assert_eq!(outcome(|c| c.image_length = long, none), count(4, 10_001));
        assert!(matches!(
            outcome(|c| c.image_length = MAX_LEN, none),
            Err(BadArtifact::Chunks(BadGeometry::TooLong { .. }))
        ));
        assert_eq!(outcome(|_| (), |l| drop(l.pop())), count(3, 4));
        assert_eq!(outcome(|c| c.image_length = 24_577, none), count(4, 5));
        assert_eq!(
            outcome(|c| c.image_length = 20_001, none),
            Err(BadArtifact::LayerLength {
                index: 3,
                found: 3616,
                expected: 3617
            })
        );
        assert_eq!(
            outcome(|_| (), |l| l[0].len = 8192),
            Err(BadArtifact::LayerLength {
                index: 0,
                found: 8192,
                expected: 4096
            })
        );
        assert_eq!(
            outcome(|_| (), |l| l.swap(0, 3)),
            Err(BadArtifact::LayerType {
                index: 0,
                found: media::PART.into(),
                expected: media::TABLE
            })
        );
    }
}
