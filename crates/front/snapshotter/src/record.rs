//! The record of a snapshot.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Longest name of a snapshot. containerd's have a namespace, a number and a digest.
const MAX_NAME: usize = 4096;

/// The number of a snapshot: it names its directories and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub u64);

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The use of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    View,
    Active,
    /// Finished: others stand on it.
    Committed,
}

/// All that is known of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    pub id: Id,
    /// Its name: the key until it is committed.
    pub name: String,
    /// The snapshot that it stands on.
    pub parent: Option<Id>,
    pub kind: Kind,
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    pub created: Moment,
    /// When its record changed last.
    pub updated: Moment,
    /// Space on disk, counted when it was committed.
    pub usage: Usage,
    /// The layer that it stands for, where it has no files of its own.
    pub layer: Option<RemoteLayer>,
}

/// A layer of an image in a registry, with all layers below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteLayer {
    /// The image, by the digest of its manifest.
    pub image: String,
    /// The digests of its layers up to this one, the lowest first.
    pub digests: Vec<String>,
    /// The digest of the table of contents of this layer, if it has one.
    pub table: Option<String>,
    /// The repository, where whatever refers to the image in it decides how this layer is read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
}

impl RemoteLayer {
    /// Returns whether both are proven to have the same contents, whatever image they came with. A layer for whose table
    /// nothing vouches is the same in its repository only.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_trusted_alike = self.claimed_by == other.claimed_by;
        let has_same_table = self.claimed_by.is_some() || self.table == other.table;
        self.digests.last() == other.digests.last() && is_trusted_alike && has_same_table
    }

    /// Returns the digests of what was fetched of it: of layers, and of a table that may be a blob of its own.
    pub fn blobs(&self) -> impl Iterator<Item = &String> {
        self.digests.iter().chain(&self.table)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

/// A time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub seconds: u64,
    pub nanos: u32,
}

impl Moment {
    /// Returns the time now.
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default();
        Self {
            seconds: since.as_secs(),
            nanos: since.subsec_nanos(),
        }
    }
}

/// Refuses what cannot be the name of a snapshot.
pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        let what = format!("the name of a snapshot has 1 to {MAX_NAME} bytes");
        return Err(Error::Request(what));
    }
    Ok(())
}
