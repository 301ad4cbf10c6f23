use forerun_cache::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Most layers of a container image. Container runtimes allow 127.
pub const MAX_LAYERS: usize = 1024;

/// A table of contents, by which parts of a layer can be used before the whole layer is present.
/// The manifest has the digest of the table, and the table has the digests of the parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LayerContents {
    /// eStargz: a footer at the end of the layer gives the offset of the table.
    EStargz {
        #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
        digest: Digest,
    },
    ZstdChunked {
        /// Digest of the stored table.
        #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
        digest: Digest,
        /// Offset of the table in the layer.
        offset: u64,
        len: u64,
        /// Length of the decoded table.
        decoded_len: u64,
    },
    /// SOCI: the table is a separate blob.
    Soci {
        #[serde(serialize_with = "as_text", deserialize_with = "of_text")]
        digest: Digest,
        len: u64,
    },
}

impl LayerContents {
    #[must_use]
    pub const fn digest(&self) -> Digest {
        match self {
            Self::EStargz { digest }
            | Self::ZstdChunked { digest, .. }
            | Self::Soci { digest, .. } => *digest,
        }
    }
}

pub fn as_text<S: Serializer>(digest: &Digest, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(digest)
}

pub fn of_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}
