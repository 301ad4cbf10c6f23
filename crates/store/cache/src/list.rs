//! Lists the blobs in the cache for display.

use std::time::SystemTime;

use crate::bitmap::Bitmap;
use crate::cache::Cache;
use crate::evict::{Found, in_use, scan};
use crate::info::Info;
use crate::lock::open_existing;
use crate::opening::whole;
use crate::records::Records;
use crate::state::StateFile;
use crate::{Digest, Result};

/// How the bytes of a blob were verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verified {
    /// Each chunk was compared with a table with this root.
    Table(Digest),
    /// The whole image was compared with this digest.
    Whole(Digest),
    No,
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    pub identity: String,
    pub label: String,
    pub len: u64,
    pub chunk_size: u32,
    /// Number of bytes present.
    pub local_bytes: u64,
    /// Disk space used, in bytes.
    pub disk_bytes: u64,
    pub in_use: bool,
    /// When the blob was last opened, flushed or closed.
    pub last_used: SystemTime,
    pub verified: Verified,
}

impl Cache {
    /// Returns the identities of all blobs, except broken ones.
    ///
    /// # Errors
    /// The errors of [`list`](Self::list).
    pub fn identities(&self) -> Result<Vec<String>> {
        let dirs = self.shared.layout.blob_dirs()?.into_iter();
        let infos = dirs.filter_map(|dir| Info::read(&dir.join("info")));
        Ok(infos.map(|info| info.identity).collect())
    }

    /// Lists all blobs, the most recently used first. Skips broken ones; the next collection that
    /// needs the space removes them.
    ///
    /// # Errors
    /// [`CacheError::Io`](crate::CacheError::Io) if the directory cannot be read.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let found = scan(&self.shared.layout)?;
        let mut entries: Vec<_> = found.iter().filter_map(entry).collect();
        entries.sort_by(|a, b| (b.last_used, &a.identity).cmp(&(a.last_used, &b.identity)));
        Ok(entries)
    }
}

fn entry(found: &Found) -> Option<Entry> {
    let dir = &found.dir;
    let info = Info::read(&dir.join("info"))?;
    let here = stored(found, &info)?;
    let geometry = info.geometry;
    let whole = whole(dir).map_or(Verified::No, Verified::Whole);
    let runs = here.runs(0..here.len(), true);
    let bytes = runs
        .iter()
        .map(|run| geometry.bytes_of(run))
        .map(|bytes| bytes.end - bytes.start);
    Some(Entry {
        local_bytes: bytes.sum(),
        disk_bytes: found.disk,
        in_use: in_use(dir),
        last_used: found.last_used,
        verified: info.root.map_or(whole, Verified::Table),
        identity: info.identity,
        label: info.label,
        len: geometry.len(),
        chunk_size: geometry.chunk_size(),
    })
}

/// Returns the stored chunks, durable or not.
fn stored(found: &Found, info: &Info) -> Option<Bitmap> {
    let chunks = info.geometry.chunks();
    let state = StateFile::open(&found.dir.join("state"), chunks).ok()?;
    let stored = state.load().ok()?;
    let records = Records::new(open_existing(&found.dir.join("records")).ok()?);
    let note = |chunk, _| {
        stored.set(chunk);
    };
    records.each(0..chunks, note).ok()?;
    Some(stored)
}
