//! The record of a snapshot.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// Maximum length of a snapshot's name. containerd's names consist of a namespace, a number and a
/// digest.
const MAX_NAME: usize = 4096;

/// The number of a snapshot, which names its directories and its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Id(pub u64);

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    View,
    Active,
    /// Finished; other snapshots may depend on it.
    Committed,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    pub id: Id,
    /// The snapshot's name; its key until it is committed.
    pub name: String,
    pub parent: Option<Id>,
    pub kind: Kind,
    pub labels: BTreeMap<String, String>,
    pub created: Moment,
    /// Time of the last change to the record.
    pub updated: Moment,
    /// Disk usage, measured at commit.
    pub usage: Usage,
    /// The layer that this snapshot stands for if it has no files of its own.
    pub layer: Option<RemoteLayer>,
}

/// A layer of an image in a registry, together with all layers below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteLayer {
    /// The image's name, with the digest of its manifest.
    pub image: String,
    /// Digests of the layers up to this one, lowest first.
    pub digests: Vec<String>,
    pub table: Option<String>,
    /// The repository whose referrers decide how this layer is read; `None` if the manifest
    /// authenticates the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
}

impl RemoteLayer {
    /// Returns whether both are known to have the same contents, whatever the image. A layer with
    /// an unauthenticated table is the same only within its repository.
    pub fn is_same(&self, other: &Self) -> bool {
        let is_trusted_alike = self.claimed_by == other.claimed_by;
        let has_same_table = self.claimed_by.is_some() || self.table == other.table;
        self.digests.last() == other.digests.last() && is_trusted_alike && has_same_table
    }

    /// Returns the digests of the cached blobs: the layers, and a table that may be a separate
    /// blob.
    pub fn blobs(&self) -> impl Iterator<Item = &String> {
        self.digests.iter().chain(&self.table)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub bytes: u64,
    pub inodes: u64,
}

/// Time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    pub seconds: u64,
    pub nanos: u32,
}

impl Moment {
    pub fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default();
        Self {
            seconds: since.as_secs(),
            nanos: since.subsec_nanos(),
        }
    }
}

pub fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        let what = format!("the name of a snapshot has 1 to {MAX_NAME} bytes");
        return Err(Error::Request(what));
    }
    Ok(())
}
