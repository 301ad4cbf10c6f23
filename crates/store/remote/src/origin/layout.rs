//! A resolved reference: an image in one or many parts, and the digests that prove its bytes.

use std::fmt;
use std::sync::Arc;

use forerun_cache::Digest;

use crate::{Description, LayerContents, Origin};

/// The name of an image. Its text is stable, and is the name in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The root of the image's table.
    Root(Digest),
    /// The digest of the whole image.
    Blob(Digest),
    /// The address, and the version there.
    Version {
        url: String,
        /// The server's name for the version.
        version: String,
    },
}

impl Identity {
    /// Returns the digest of the whole image, if that is its name.
    pub(crate) const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Blob(digest) => Some(*digest),
            Self::Root(_) | Self::Version { .. } => None,
        }
    }

    /// Returns the name in the cache while only a table proves the image's parts. Bytes that one table proves
    /// may be wrong by another table, if a hostile image has copied the digest.
    pub(crate) fn by_table(&self, table: Option<Digest>) -> String {
        match table.filter(|_| self.digest().is_some()) {
            Some(table) => format!("{self}{BY}{table}"),
            None => self.to_string(),
        }
    }

    /// Returns whether `name` is the image's name in the cache, with any table.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.to_string());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(BY))
    }
}

/// Separator between the digests of a layer and of its table.
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
    pub description: Description,
    /// Origins, in the order in which they are asked; never empty. If a server has another name for the
    /// version, its origin handles that.
    pub mirrors: Vec<Arc<dyn Origin>>,
}

/// A run of bytes of the image that is one blob at the servers.
#[derive(Clone, Debug)]
pub struct Part {
    /// Offset in the image.
    pub offset: u64,
    /// The blob with exactly these bytes.
    pub blob: RemoteBlob,
}

/// The digests of an image's chunks, as a blob.
#[derive(Clone, Debug)]
pub struct TableLayout {
    /// Bytes in a chunk, and in a hash block.
    pub chunk_size: u32,
    /// The fs-verity digest of the image.
    pub root: Digest,
    /// Levels of the Merkle tree, the top level first, in blocks of chunk size.
    pub blob: RemoteBlob,
}

/// An image as a concatenation of parts.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Address for messages, without credentials.
    pub place: String,
    /// Length of the image in bytes.
    pub len: u64,
    /// The name of the image in the cache.
    pub identity: Identity,
    /// Consecutive parts from 0 to [`len`](Self::len), none empty.
    pub parts: Vec<Part>,
    /// The table that proves the chunks, if there is one.
    pub table: Option<TableLayout>,
    /// Name of the format, if the manifest has one.
    pub format: Option<String>,
    /// The table of contents that a manifest vouches for, if there is one.
    pub contents: Option<LayerContents>,
}

impl Layout {
    /// Creates the layout of an image that is one blob.
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

    /// Returns whether each request costs a whole part, because no server of some part supports range
    /// requests.
    #[must_use]
    pub fn is_sent_whole(&self) -> bool {
        self.parts.iter().any(|part| part.blob.description.whole)
    }

    /// Returns whether the server gives neither version nor digest, so that later requests cannot tell
    /// whether the address still has the same bytes.
    #[must_use]
    pub fn is_unversioned(&self) -> bool {
        let is_named = |part: &Part| part.blob.description.version.is_some();
        matches!(self.identity, Identity::Version { .. }) && !self.parts.iter().all(is_named)
    }
}
