//! Images whose parts can be used before the whole image is present, by a table of contents.

use std::ops::Range;
use std::sync::Arc;

use forerun_cache::{ChunkTable, TableTrust};

use crate::image::RemoteImage;
use crate::{Identity, LayerContents, Readahead};

impl RemoteImage {
    /// Returns the layer's table of contents, if the manifest gives its digest. The table's file
    /// digests verify files before the whole layer is present.
    #[must_use]
    pub const fn contents(&self) -> Option<&LayerContents> {
        self.contents.as_ref()
    }

    /// Returns a word for reports: how the bytes are verified.
    pub(crate) fn verified_by(&self) -> Option<&'static str> {
        match (&self.identity, &self.contents) {
            (Identity::Root(_), _) => Some("chunks"),
            (_, _) if self.blob.trust() == TableTrust::Made => Some("chunks"),
            (_, _) if self.blob.is_verified() => Some("whole"),
            (_, _) if self.verifies_chunks() => Some("index"),
            (_, None) if self.soci.is_some() => Some("index"),
            (_, Some(_)) => Some("contents"),
            (_, None) => None,
        }
    }

    /// Returns whether each chunk is compared with its own digest before it is used.
    #[must_use]
    pub fn verifies_chunks(&self) -> bool {
        self.blob.table().is_some()
    }

    /// Returns the archive's index from the index file that the caller named. The index matches the
    /// chunk digests in use.
    #[must_use]
    pub fn named_index(&self) -> Option<&Arc<[u8]>> {
        self.archive.as_ref()
    }

    /// Returns the SOCI table of contents of this archive. The manifest has its digest only if
    /// [`contents`](Self::contents) names it.
    #[must_use]
    pub const fn soci_table(&self) -> Option<&Arc<Self>> {
        self.soci.as_ref()
    }

    /// Returns the chunk digests that this cache computed from bytes with the image's digest. Fails
    /// for an inconsistent table.
    pub fn made_table(&self) -> std::io::Result<Option<ChunkTable>> {
        let made = self.blob.table();
        let Some(table) = made.filter(|_| self.blob.trust() == TableTrust::Made) else {
            return Ok(None);
        };
        let geometry = table.geometry();
        let mut digests = Vec::new();
        for chunk in 0..geometry.chunks() {
            digests.extend(table.digest(chunk)?.0);
        }
        Ok(ChunkTable::of_digests(geometry, &digests))
    }

    /// Fetches a part in the background, before everything else that no reader waits for.
    pub fn prefetch_part(&self, part: &Range<u64>) {
        let len = self.blob.geometry().len();
        let part = part.start.min(len)..part.end.min(len);
        if !part.is_empty() {
            let chunks = self.blob.geometry().chunks_of(&part);
            self.scheduler.listed(vec![chunks]);
        }
    }

    /// Fetches a part as [`prefetch_part`](Self::prefetch_part) does, unless readahead is off.
    pub fn fetch_part_ahead(&self, part: &Range<u64>) {
        if self.readahead != Readahead::Off {
            self.prefetch_part(part);
        }
    }

    /// Drops chunks that only a table of contents can verify. The next fetch goes to another mirror
    /// first.
    pub(crate) fn fetch_again(&self, range: &Range<u64>) {
        let is_lazy = self.contents.is_some() || self.soci.is_some();
        if !is_lazy || self.blob.is_verified() {
            return;
        }
        self.scheduler.distrust(range.start);
        if let Err(error) = self.blob.drop_range(range) {
            tracing::warn!(%error, place = self.place, "wrong chunks stay in the cache");
        }
    }
}
