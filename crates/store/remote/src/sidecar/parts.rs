//! An index and access lists, as an artifact beside a container image has them.

use bytes::Bytes;
use forerun_cache::{AccessList, Digest};

use crate::oci::media;
use crate::{ImageIndex, LayerContents, RemoteOptions};

/// An index and access lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sidecar {
    /// The indexes of layers.
    pub index: ImageIndex,
    /// The chunks of layers that are read first.
    pub lists: Vec<AccessList>,
    /// Tables of contents that SOCI made of layers, by the digests of these.
    pub tables: Vec<(Digest, LayerContents)>,
}

/// The types of the blobs that an artifact may have, in the order in which they are remembered.
pub const WANTED: [&str; 2] = [media::LAYER_INDEXES, media::ACCESS_LISTS];

/// Decodes the blobs of an artifact. An index is left out where all must be verified.
pub fn decoded(blobs: &[Option<Bytes>], options: &RemoteOptions) -> Result<Sidecar, String> {
    let (index, lists) = match blobs {
        [index, lists] => (index.as_ref(), lists.as_ref()),
        _ => (None, None),
    };
    let index = index.filter(|_| !options.require_verified);
    let index = index.map(|bytes| ImageIndex::decode(bytes)).transpose();
    let lists = lists.map(|bytes| AccessList::parse_all(bytes)).transpose();
    Ok(Sidecar {
        index: index
            .map_err(|error| error.to_string())?
            .unwrap_or_default(),
        lists: lists
            .map_err(|error| error.to_string())?
            .unwrap_or_default(),
        tables: Vec::new(),
    })
}
