//! A resolved reference: an image in one or many parts, and the digests that verify its bytes.

use std::fmt;
use std::sync::Arc;

use forerun_cache::Digest;

use crate::{Description, LayerContents, Origin};

/// The identity of an image. Its text is stable, and names the image in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The root of the image's table.
    Root(Digest),
    /// The digest of the whole image.
    Blob(Digest),
    /// The address, and the version of the file at this address.
    Version { url: String, version: String },
}

impl Identity {
    pub(crate) const fn digest(&self) -> Option<Digest> {
        match self {
            Self::Blob(digest) => Some(*digest),
            Self::Root(_) | Self::Version { .. } => None,
        }
    }

    /// Returns the cache name of an image whose parts only a table verifies. The name contains the
    /// digest of the table: bytes that are right by one table may be wrong by another, if a hostile
    /// image claims the digest of another image.
    pub(crate) fn by_table(&self, table: Option<Digest>) -> String {
        match table.filter(|_| self.digest().is_some()) {
            Some(table) => format!("{self}{BY}{table}"),
            None => self.to_string(),
        }
    }

    /// Returns whether `name` is a cache name of this image. The name may contain the digest of any
    /// table.
    #[must_use]
    pub fn is_named(&self, name: &str) -> bool {
        let rest = name.strip_prefix(&self.to_string());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(BY))
    }
}

/// Separates the digest of a layer from the digest of its table.
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

/// The same bytes on one or more servers.
#[derive(Clone, Debug)]
pub struct RemoteBlob {
    pub description: Description,
    /// Origins in order of preference; never empty. A mirror may have another name for the same
    /// version; its origin handles that.
    pub mirrors: Vec<Arc<dyn Origin>>,
}

/// A part of the image that is one blob on the servers.
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
    /// Size of a chunk and of a hash block, in bytes.
    pub chunk_size: u32,
    /// The fs-verity digest of the image.
    pub root: Digest,
    /// Levels of the Merkle tree, top level first, in blocks of `chunk_size`.
    pub blob: RemoteBlob,
}

#[derive(Clone, Debug)]
pub struct Layout {
    /// Address for messages, without credentials.
    pub place: String,
    pub len: u64,
    pub identity: Identity,
    /// Consecutive, non-empty parts from 0 to [`len`](Self::len).
    pub parts: Vec<Part>,
    /// The table with the digests of the chunks.
    pub table: Option<TableLayout>,
    /// Name of the format, if the manifest gives it.
    pub format: Option<String>,
    /// The table of contents that a manifest names by digest.
    pub contents: Option<LayerContents>,
}

impl Layout {
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

    /// Returns whether each request costs a whole part, because no server of some part supports
    /// range requests.
    #[must_use]
    pub fn is_sent_whole(&self) -> bool {
        self.parts.iter().any(|part| part.blob.description.whole)
    }

    /// Returns whether the server gives neither version nor digest. Later requests then cannot tell
    /// whether the address still has the same bytes.
    #[must_use]
    pub fn is_unversioned(&self) -> bool {
        let is_named = |part: &Part| part.blob.description.version.is_some();
        matches!(self.identity, Identity::Version { .. }) && !self.parts.iter().all(is_named)
    }
}
