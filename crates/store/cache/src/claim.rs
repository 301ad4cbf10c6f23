//! A claim on chunks of a blob: its owner fetches them, and other callers wait.

use std::ops::Range;
use std::sync::Arc;

use crate::Result;
use crate::blob::CachedBlob;
use crate::claims::ClaimedChunks;

/// Chunks that only the owner of this claim fetches. Dropping the claim releases them, whether they
/// were fetched or not.
#[derive(Debug)]
pub struct Claim {
    blob: Arc<CachedBlob>,
    taken: ClaimedChunks,
}

impl Claim {
    /// Returns the chunks to fetch, in the order of the wanted ranges.
    #[must_use]
    pub fn mine(&self) -> &[Range<u64>] {
        &self.taken.mine
    }

    /// Returns the chunks that other callers are fetching; wait for them with [`CachedBlob::wait`].
    /// Wanted chunks in neither list are present.
    #[must_use]
    pub fn busy(&self) -> &[Range<u64>] {
        &self.taken.busy
    }

    #[must_use]
    pub const fn blob(&self) -> &Arc<CachedBlob> {
        &self.blob
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.blob.release(&self.taken.mine);
    }
}

impl CachedBlob {
    /// Claims the chunks of `wanted` that are missing and not claimed. The caller fetches the
    /// chunks in [`Claim::mine`], and drops the claim once they are stored or the fetch has failed.
    ///
    /// # Errors
    /// [`CacheError::Io`](crate::CacheError::Io).
    pub fn claim(self: &Arc<Self>, wanted: &[Range<u64>]) -> Result<Claim> {
        let holder = self.cache.holder()?;
        let missing = |run: &Range<u64>| self.missing(run.clone());
        let taken = self.files.claims.take(wanted, holder, missing)?;
        let blob = Arc::clone(self);
        Ok(Claim { blob, taken })
    }
}
