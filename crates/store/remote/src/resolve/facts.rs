//! Facts that the cache remembers about a reference, as text, and their checks.
//!
//! Facts from the disk are checked by the same rules as answers of a server: lengths add up, the
//! table has the right length, and the number of parts is in range. Facts never contain
//! credentials.

use forerun_cache::{Digest, Geometry};
use serde::{Deserialize, Serialize};

use crate::oci::artifact::MAX_PARTS;
use crate::oci::layer_contents::MAX_LAYERS;
use crate::{Identity, LayerContents, Layout};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address without credentials. A query is replaced by its digest.
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub digest: String,
    pub len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedLayer {
    #[serde(flatten)]
    pub blob: Named,
    /// The table of contents, if the manifest named one by digest.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub table: Option<LayerContents>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    Parts {
        chunk_size: u32,
        root: String,
        table: Named,
        parts: Vec<Named>,
    },
    /// One blob that is named by its digest.
    Blob { digest: String },
    /// The layers of a container image, lowest first. Length and cache name are those of the first
    /// layer.
    Layers { layers: Vec<NamedLayer> },
    /// A plain file, which has a version and no digest.
    File {
        /// The address in the cache name.
        url: String,
        version: String,
        /// All addresses that answered.
        addresses: Vec<Address>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub len: u64,
    /// Name of the format, if a manifest gives it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub format: Option<String>,
    pub shape: Shape,
}

#[derive(Debug, thiserror::Error)]
pub enum BadFacts {
    #[error("not a record of an image")]
    Json(#[from] serde_json::Error),
    #[error("{0:?} is not a digest")]
    Digest(String),
    #[error("inconsistent {0}")]
    Contradiction(&'static str),
}

impl Facts {
    /// Returns the facts to remember about `layout`. `addresses` are those of a plain file. Returns
    /// `None` for a file whose server gives no version, because it could change unnoticed.
    #[must_use]
    pub fn of(layout: &Layout, addresses: &[Address]) -> Option<Self> {
        let named = |blob: &crate::RemoteBlob| {
            let digest = blob.description.digest?.to_string();
            let len = blob.description.len;
            Some(Named { digest, len })
        };
        let shape = match (&layout.identity, &layout.table) {
            (Identity::Root(root), Some(table)) => Shape::Parts {
                chunk_size: table.chunk_size,
                root: root.to_string(),
                table: named(&table.blob)?,
                parts: layout
                    .parts
                    .iter()
                    .map(|part| named(&part.blob))
                    .collect::<Option<_>>()?,
            },
            (Identity::Blob(digest), _) => Shape::Blob {
                digest: digest.to_string(),
            },
            (Identity::Version { url, version }, _) => Shape::File {
                url: url.clone(),
                version: version.clone(),
                addresses: addresses.to_vec(),
            },
            (Identity::Root(_), None) => return None,
        };
        let is_certain = |facts: &Address| facts.version.is_some();
        let certain = match &shape {
            Shape::File { addresses, .. } => addresses.first().is_some_and(is_certain),
            Shape::Parts { .. } | Shape::Blob { .. } | Shape::Layers { .. } => true,
        };
        certain.then(|| Self {
            len: layout.len,
            format: layout.format.clone(),
            shape,
        })
    }

    /// Returns the facts to remember about a container image with these layers, or `None` if a
    /// layer has no digest.
    #[must_use]
    pub fn of_layers(layouts: &[Layout]) -> Option<Self> {
        let named = |layout: &Layout| match &layout.identity {
            Identity::Blob(digest) => Some(NamedLayer {
                blob: Named {
                    digest: digest.to_string(),
                    len: layout.len,
                },
                table: layout.contents,
            }),
            Identity::Root(_) | Identity::Version { .. } => None,
        };
        let layers = layouts.iter().map(named).collect::<Option<Vec<_>>>()?;
        Some(Self {
            len: layers.first()?.blob.len,
            format: None,
            shape: Shape::Layers { layers },
        })
    }

    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        // Strings and numbers always convert.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub fn decode(text: &[u8]) -> Result<Self, BadFacts> {
        let facts: Self = serde_json::from_slice(text)?;
        facts.identity()?;
        if let Shape::Layers { layers } = &facts.shape {
            for layer in layers {
                digest(&layer.blob.digest)?;
            }
            let lowest = layers.first();
            let is_first = lowest.is_some_and(|layer| layer.blob.len == facts.len);
            return if is_first && layers.len() <= MAX_LAYERS {
                Ok(facts)
            } else {
                Err(BadFacts::Contradiction("layers"))
            };
        }
        let Shape::Parts {
            chunk_size,
            root,
            table,
            parts,
        } = &facts.shape
        else {
            return Ok(facts);
        };
        let geometry = Geometry::new(facts.len, *chunk_size);
        let geometry = geometry.map_err(|_| BadFacts::Contradiction("chunk size"))?;
        for text in [root, &table.digest] {
            digest(text)?;
        }
        if table.len != geometry.table_len() {
            return Err(BadFacts::Contradiction("table"));
        }
        let mut sum = 0_u64;
        for part in parts {
            digest(&part.digest)?;
            let added = sum.checked_add(part.len).filter(|_| part.len > 0);
            sum = added.ok_or(BadFacts::Contradiction("parts"))?;
        }
        if sum != facts.len || forerun_io::u64_from(parts.len()) > MAX_PARTS {
            return Err(BadFacts::Contradiction("parts"));
        }
        Ok(facts)
    }

    /// Returns the name of the image in the cache. Fails if a digest is malformed.
    pub fn identity(&self) -> Result<Identity, BadFacts> {
        Ok(match &self.shape {
            Shape::Parts { root, .. } => Identity::Root(digest(root)?),
            Shape::Blob { digest: text } => Identity::Blob(digest(text)?),
            Shape::Layers { layers } => {
                let lowest = layers.first().ok_or(BadFacts::Contradiction("layers"))?;
                Identity::Blob(digest(&lowest.blob.digest)?)
            }
            Shape::File { url, version, .. } => Identity::Version {
                url: url.clone(),
                version: version.clone(),
            },
        })
    }
}

pub fn digest(text: &str) -> Result<Digest, BadFacts> {
    text.parse()
        .map_err(|_| BadFacts::Digest(text.chars().take(100).collect()))
}

#[cfg(feature = "fuzzing")]
#[must_use]
pub fn examples() -> [Vec<u8>; 4] {
    let digest = Digest::of(b"x").to_string();
    let named = |len| Named {
        digest: digest.clone(),
        len,
    };
    let layer = |len, table| NamedLayer {
        blob: named(len),
        table,
    };
    let of_table = Digest::of(b"table");
    let shapes = [
        Shape::Parts {
            chunk_size: 4096,
            root: digest.clone(),
            table: named(4096),
            parts: vec![named(16_384), named(3_616)],
        },
        Shape::Blob {
            digest: digest.clone(),
        },
        Shape::Layers {
            layers: vec![
                layer(20_000, Some(LayerContents::EStargz { digest: of_table })),
                layer(7, None),
                layer(
                    9,
                    Some(LayerContents::ZstdChunked {
                        digest: of_table,
                        offset: 1,
                        len: 2,
                        decoded_len: 3,
                    }),
                ),
            ],
        },
        Shape::File {
            url: "https://h/x".to_owned(),
            version: "\"1\"".to_owned(),
            addresses: vec![Address {
                address: "https://h/x".to_owned(),
                version: Some("\"1\"".to_owned()),
            }],
        },
    ];
    shapes.map(|shape| {
        let facts = Facts {
            len: 20_000,
            format: None,
            shape,
        };
        facts.encode()
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    #[test]
    fn facts_come_back() {
        for text in examples() {
            let facts = Facts::decode(&text).unwrap();
            assert_eq!(facts.encode(), text);
        }
    }

    #[test]
    fn layers_are_not_too_many_and_begin_with_the_first() {
        let [_, _, layers, _] = examples();
        let layers = String::from_utf8(layers).unwrap();
        let many = format!("[{}", "{\"digest\":\"x\",\"len\":1},".repeat(1023));
        for (from, to) in [
            ("20000", "20001"),
            ("sha256:", "sha512:"),
            ("[", &many.replace('x', &Digest::of(b"").to_string())),
        ] {
            let bad = layers.replacen(from, to, 1);
            assert!(Facts::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let none = "{\"len\":0,\"shape\":{\"layers\":{\"layers\":[]}}}";
        assert!(Facts::decode(none.as_bytes()).is_err());
    }

    #[test]
    fn contradictions_are_refused() {
        let [parts, ..] = examples();
        let parts = String::from_utf8(parts).unwrap();
        for (from, to) in [
            ("20000", "20001"),
            ("16384", "16383"),
            ("3616", "18446744073709551615"),
            ("4096", "4095"),
            ("\"len\":4096", "\"len\":8192"),
            ("sha256:", "sha512:"),
            ("\"parts\":[", "\"parts\":[{},"),
            ("{", "["),
        ] {
            let bad = parts.replacen(from, to, 1);
            assert_ne!(bad, parts);
            assert!(Facts::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let none = parts.replace("16384", "20000").replace("3616", "0");
        assert!(Facts::decode(none.as_bytes()).is_err(), "an empty part");
        assert!(Facts::decode(b"").is_err());
    }
}
