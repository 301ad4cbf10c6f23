//! The indexes of a container image's layers in one file, for machines without a cached index.
//!
//! No manifest has the digest of such a file, so it is used only if the caller names it. Its
//! contents, including chunk digests, are then trusted until the whole layer is present and was
//! compared with its digest.

use std::path::Path;

use forerun_cache::{AccessList, ChunkTable, Digest, Geometry};
use forerun_io::u64_from;
use serde::{Deserialize, Serialize};

use crate::oci::layer_contents::MAX_LAYERS;
use crate::{RemoteError, Result};

const HEAD: &[u8] = b"forerun layer indexes 1\n";
/// Longest accepted file.
const LIMIT: u64 = 512 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageIndex {
    pub layers: Vec<LayerIndex>,
}

/// The index of one compressed layer. With it, parts of the layer can be read without decompressing
/// from the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerIndex {
    pub digest: Digest,
    pub table: ChunkTable,
    /// The index of the archive, in a form that its driver validates.
    pub archive: Vec<u8>,
    /// The chunks that are read first.
    pub accesses: Option<AccessList>,
}

#[derive(Serialize, Deserialize)]
struct RawLayer<'b> {
    digest: [u8; 32],
    len: u64,
    chunk_size: u32,
    table: &'b [u8],
    archive: &'b [u8],
    accesses: &'b str,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadIndex {
    #[error("it is not an index file of this version of forerun")]
    Head,
    #[error("it is damaged")]
    Damaged,
    #[error("it has {0} layers, more than the {MAX_LAYERS} that are allowed")]
    TooMany(usize),
    #[error("layer {0} does not have one digest for each chunk")]
    Table(Digest),
    #[error("the access list of layer {0} belongs to another layer")]
    Accesses(Digest),
}

impl ImageIndex {
    /// Returns the bytes of the file. Fails if they do not fit into memory.
    pub fn encode(&self) -> std::result::Result<Vec<u8>, BadIndex> {
        let texts = self.layers.iter().map(|layer| {
            let accesses = layer.accesses.as_ref().map(AccessList::to_text);
            (layer.table.digests(), accesses.unwrap_or_default())
        });
        let texts: Vec<_> = texts.collect();
        let layers = self.layers.iter().zip(&texts);
        let layers = layers.map(|(layer, (table, accesses))| RawLayer {
            digest: layer.digest.0,
            len: layer.table.geometry().len(),
            chunk_size: layer.table.geometry().chunk_size(),
            table,
            archive: &layer.archive,
            accesses,
        });
        let layers: Vec<_> = layers.collect();
        let body = postcard::to_allocvec(&layers).map_err(|_| BadIndex::Damaged)?;
        Ok([HEAD, &Digest::of(&body).0, &body].concat())
    }

    pub fn decode(bytes: &[u8]) -> std::result::Result<Self, BadIndex> {
        let rest = bytes.strip_prefix(HEAD).ok_or(BadIndex::Head)?;
        let (digest, body) = rest.split_at_checked(32).ok_or(BadIndex::Damaged)?;
        if Digest::of(body).0 != digest {
            return Err(BadIndex::Damaged);
        }
        Self::decode_body(body)
    }

    /// Parses the part of a file that its digest covers.
    pub fn decode_body(body: &[u8]) -> std::result::Result<Self, BadIndex> {
        let raw: Vec<RawLayer<'_>> = postcard::from_bytes(body).map_err(|_| BadIndex::Damaged)?;
        if raw.len() > MAX_LAYERS {
            return Err(BadIndex::TooMany(raw.len()));
        }
        let layers = raw.into_iter().map(LayerIndex::of_raw);
        Ok(Self {
            layers: layers.collect::<std::result::Result<_, _>>()?,
        })
    }

    pub fn read(path: &Path) -> Result<Self> {
        let bad = |reason: String| RemoteError::Reference {
            text: path.display().to_string(),
            reason,
        };
        let len = path
            .metadata()
            .map_err(|error| bad(error.to_string()))?
            .len();
        if len > LIMIT {
            return Err(bad(BadIndex::Head.to_string()));
        }
        let bytes = std::fs::read(path).map_err(|error| bad(error.to_string()))?;
        Self::decode(&bytes).map_err(|error| bad(error.to_string()))
    }

    #[must_use]
    pub fn layer(&self, digest: Digest, geometry: Geometry) -> Option<&LayerIndex> {
        let mut layers = self.layers.iter();
        layers.find(|layer| layer.digest == digest && layer.table.geometry() == geometry)
    }

    #[must_use]
    pub fn layers_len(&self) -> u64 {
        let lens = self.layers.iter().map(|layer| layer.table.geometry().len());
        lens.sum()
    }
}

impl LayerIndex {
    fn of_raw(raw: RawLayer<'_>) -> std::result::Result<Self, BadIndex> {
        let digest = Digest(raw.digest);
        let is_bad = || BadIndex::Table(digest);
        let geometry = Geometry::new(raw.len, raw.chunk_size).map_err(|_| is_bad())?;
        // An empty layer has no chunk, and no archive.
        if geometry.is_empty() || u64_from(raw.table.len()) > LIMIT {
            return Err(is_bad());
        }
        let table = ChunkTable::of_digests(geometry, raw.table).ok_or_else(is_bad)?;
        let accesses = match raw.accesses {
            "" => None,
            text => {
                let list = AccessList::parse(text.as_bytes()).ok();
                let identity = crate::Identity::Blob(digest).to_string();
                let list = list.filter(|list| list.identity == identity);
                Some(list.ok_or(BadIndex::Accesses(digest))?)
            }
        };
        Ok(Self {
            digest,
            table,
            archive: raw.archive.to_vec(),
            accesses,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> ImageIndex {
        let geometry = Geometry::new(10_000, 4096).unwrap();
        let digest = Digest([7; 32]);
        let list = format!("forerun access list 1\nimage: blob {digest}\nchunk: 4096\n1-2\n");
        let layer = LayerIndex {
            digest,
            table: ChunkTable::of_digests(geometry, &[3; 96]).unwrap(),
            archive: b"archive".to_vec(),
            accesses: Some(AccessList::parse(list.as_bytes()).unwrap()),
        };
        ImageIndex {
            layers: vec![layer],
        }
    }

    #[test]
    fn indexes_come_back_and_what_is_altered_is_none() {
        let index = index();
        let bytes = index.encode().unwrap();
        assert_eq!(ImageIndex::decode(&bytes).as_ref(), Ok(&index));
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            assert!(ImageIndex::decode(&altered).is_err(), "byte {at}");
            assert!(ImageIndex::decode(&bytes[..at]).is_err(), "cut at {at}");
        }
        let digest = Digest([7; 32]);
        let of = |len| index.layer(digest, Geometry::new(len, 4096).unwrap());
        assert!(of(10_000).is_some() && of(10_001).is_none());
    }

    #[test]
    fn indexes_that_contradict_themselves_are_refused() {
        let encoded = |change: &dyn Fn(&mut LayerIndex)| {
            let mut index = index();
            change(&mut index.layers[0]);
            ImageIndex::decode(&index.encode().unwrap())
        };
        let other = |layer: &mut LayerIndex| layer.digest = Digest([8; 32]);
        assert_eq!(encoded(&other), Err(BadIndex::Accesses(Digest([8; 32]))));
        let digests = vec![3_u8; 64];
        let raw = RawLayer {
            digest: [7; 32],
            len: 10_000,
            chunk_size: 4096,
            table: &digests,
            archive: &[],
            accesses: "",
        };
        let body = postcard::to_allocvec(&vec![raw]).unwrap();
        let decoded = ImageIndex::decode_body(&body);
        assert_eq!(decoded, Err(BadIndex::Table(Digest([7; 32]))));
    }
}
