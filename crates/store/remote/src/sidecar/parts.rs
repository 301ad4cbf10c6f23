//! The contents of an artifact beside a container image: an index and access lists.

use bytes::Bytes;
use forerun_cache::{AccessList, Digest};

use crate::oci::media;
use crate::{ImageIndex, LayerContents, RemoteOptions};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sidecar {
    pub index: ImageIndex,
    pub lists: Vec<AccessList>,
    /// SOCI tables of contents, by the digests of their layers.
    pub tables: Vec<(Digest, LayerContents)>,
}

/// The media types of an artifact's blobs, in the order of the cached record.
pub const WANTED: [&str; 2] = [media::LAYER_INDEXES, media::ACCESS_LISTS];

/// Decodes the blobs of an artifact. Ignores the index if `require_verified` is set.
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
