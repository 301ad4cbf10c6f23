//! A resolved reference: one image, in one part or many, and the digests that prove its bytes.

use std::fmt;
use std::sync::Arc;

use forerun_cache::Digest;

use crate::{Description, LayerContents, Origin};

/// The name of an image. Its text is stable, and names it in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The root of its table.
    Root(Digest),
    /// The digest of all its bytes.
    Blob(Digest),
    /// Its address, and the version there.
    Version {
        url: String,
        /// The server's name for the version.
        version: String,
    },
}

impl Identity {
    /// Returns the digest of all its bytes, if it is named by that.
    pub(crate) const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Blob(digest) => Some(*digest),
            Self::Root(_) | Self::Version { .. } => None,
        }
    }

    /// Returns its name in the cache while its parts are proven by a table only. Bytes that one table proves may be
    /// wrong for another one, whose image has copied the digest.
    pub(crate) fn by_table(&self, table: Option<Digest>) -> String {
        match table.filter(|_| self.digest().is_some()) {
            Some(table) => format!("{self}{BY}{table}"),
            None => self.to_string(),
        }
    }

    /// Returns whether `name` is its name in the cache, by whatever table.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.to_string());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(BY))
    }
}

/// What is between the digests of a layer and of its table.
const BY: &str = " by ";

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(digest) => write!(f, "root {digest}"),
            Self::Blob(digest) => write!(f, "blob {digest}"),
            Self::Version { url, version } => write!(f, "url {url} version {version}"),
        }
    }
}

/// The same bytes at one or more servers.
#[derive(Clone, Debug)]
pub struct RemoteBlob {
    /// Length, version and digest.
    pub description: Description,
    /// Origins in the order in which they are asked; never empty. An origin whose server has another
    /// name for the version handles that itself.
    pub mirrors: Vec<Arc<dyn Origin>>,
}

/// A run of bytes of the image that servers know as one blob.
#[derive(Clone, Debug)]
pub struct Part {
    /// Offset in the image.
    pub offset: u64,
    /// The blob that holds it; as long as the blob.
    pub blob: RemoteBlob,
}

/// The digests of an image's chunks, as a blob.
#[derive(Clone, Debug)]
pub struct TableLayout {
    /// Bytes in a chunk, and in a hash block.
    pub chunk_size: u32,
    /// The fs-verity digest of the image.
    pub root: Digest,
    /// Levels of the Merkle tree, the top one first, in blocks of chunk size.
    pub blob: RemoteBlob,
}

/// An image as a concatenation of parts.
#[derive(Clone, Debug)]
pub struct Layout {
    /// For messages, without credentials.
    pub place: String,
    /// Length of the image in bytes.
    pub len: u64,
    /// The name of the image in the cache.
    pub identity: Identity,
    /// Back to back from 0 to [`len`](Self::len), none empty.
    pub parts: Vec<Part>,
    /// The table that proves its chunks, where there is one.
    pub table: Option<TableLayout>,
    /// Name of the format, where the manifest has one.
    pub format: Option<String>,
    /// The table of contents that a manifest vouches for, where there is one.
    pub contents: Option<LayerContents>,
}

impl Layout {
    /// Makes the layout of an image that is one blob.
    #[must_use]
    pub fn single(place: String, blob: RemoteBlob, identity: Identity) -> Self {
        let len = blob.description.len;
        let parts = if len == 0 {
            Vec::new()
        } else {
            vec![Part { offset: 0, blob }]
        };
        Self {
            place,
            len,
            identity,
            parts,
            table: None,
            format: None,
            contents: None,
        }
    }

    /// Returns whether no server of a part sends ranges of it: then each request costs all of the part.
    #[must_use]
    pub fn is_sent_whole(&self) -> bool {
        self.parts.iter().any(|part| part.blob.description.whole)
    }

    /// Returns whether the server names no version and no digest: later requests cannot tell whether the
    /// address still has the same bytes.
    #[must_use]
    pub fn is_unversioned(&self) -> bool {
        let is_named = |part: &Part| part.blob.description.version.is_some();
        matches!(self.identity, Identity::Version { .. }) && !self.parts.iter().all(is_named)
    }
}
