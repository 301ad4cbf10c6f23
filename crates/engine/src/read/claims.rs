//! One thread decodes a block: a job of the pool that was planned for it, or the reader that needs it.
//!
//! Whichever comes first to a planned block takes it. A job decodes into the cache. So does a reader,
//! unless it wants all of a block that no other read wants: that one is decoded into its answer.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use forerun_io::{BlockKey, Unpoisoned};

/// Blocks that jobs of the pool are to decode. The plans bound their number.
#[derive(Default)]
pub struct Claims {
    blocks: Mutex<HashMap<BlockKey, ClaimState>>,
    /// Number of blocks, so that a reader takes no lock where there are none.
    count: AtomicUsize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    Planned,
    Begun,
}

/// The claim of a job that runs.
struct Begun<'c> {
    claims: &'c Claims,
    key: BlockKey,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.claims.remove(&mut self.claims.lock(), self.key);
    }
}

impl Claims {
    /// Plans a block. Returns whether it needs a job: not where it has one already.
    pub fn plan(&self, key: BlockKey) -> bool {
        let mut blocks = self.lock();
        let is_new = !blocks.contains_key(&key);
        if is_new {
            blocks.insert(key, ClaimState::Planned);
            self.count.store(blocks.len(), Ordering::Release);
        }
        is_new
    }

    /// Runs the job of a block, unless a reader has taken the block.
    pub fn work(&self, key: BlockKey, decode: impl FnOnce()) {
        let mut blocks = self.lock();
        match blocks.get_mut(&key) {
            Some(claim) if *claim == ClaimState::Planned => *claim = ClaimState::Begun,
            _ => return,
        }
        drop(blocks);
        // The claim ends when the block is in the cache, or when the job panics.
        let _claim = Begun { claims: self, key };
        decode();
    }

    /// Takes a block for a reader. Returns false where a job decodes it at this moment.
    pub fn take(&self, key: BlockKey) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return true;
        }
        let mut blocks = self.lock();
        if blocks.get(&key) == Some(&ClaimState::Begun) {
            return false;
        }
        self.remove(&mut blocks, key);
        true
    }

    fn remove(&self, blocks: &mut HashMap<BlockKey, ClaimState>, key: BlockKey) {
        blocks.remove(&key);
        self.count.store(blocks.len(), Ordering::Release);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BlockKey, ClaimState>> {
        self.blocks.lock().unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use forerun_io::BlobId;

    use super::*;

    const KEY: BlockKey = BlockKey::at(BlobId::IMAGE, 4096);

    #[test]
    fn a_planned_block_has_one_job_and_a_reader_may_take_it() {
        let claims = Claims::default();
        assert!(claims.take(KEY), "not planned");
        assert!(claims.plan(KEY));
        assert!(!claims.plan(KEY));
        assert!(claims.take(KEY));
        claims.work(KEY, || panic!("the reader has it"));
        assert!(claims.plan(KEY), "planned anew");
    }

    #[test]
    fn a_reader_leaves_a_block_to_the_job_that_decodes_it() {
        let claims = Claims::default();
        claims.plan(KEY);
        let mut runs = 0;
        claims.work(KEY, || {
            runs += 1;
            assert!(!claims.take(KEY));
            assert!(!claims.plan(KEY));
        });
        assert_eq!((runs, claims.count.load(Ordering::Relaxed)), (1, 0));
        assert!(claims.take(KEY));
    }

    #[test]
    fn a_job_that_panics_leaves_its_block_to_others() {
        let claims = Claims::default();
        claims.plan(KEY);
        let job = std::panic::AssertUnwindSafe(|| claims.work(KEY, || panic!("on purpose")));
        assert!(std::panic::catch_unwind(job).is_err());
        assert!(claims.take(KEY) && claims.plan(KEY));
    }
}
