//! One thread decodes a block: a job of the pool that was planned for it, or the reader that needs it.
//!
//! The first of them to reach a planned block takes it. A job decodes into the cache. A reader does
//! so too, unless it wants all of a block that no other read wants: then it decodes the block into
//! its answer.
//!
//! A reader may also take a block, and finish it, while a plan with this block is being made. So
//! the blocks that readers take in the meantime are remembered until the plan is ready.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use forerun_io::{BlockKey, Unpoisoned};

use crate::tuning::TAKEN_BLOCKS;

/// Blocks that jobs of the pool are to decode. The plans bound their number.
#[derive(Default)]
pub struct Claims {
    state: Mutex<State>,
    /// Number of blocks and of plans in the making, so that a reader takes no lock if there are
    /// none.
    count: AtomicUsize,
}

#[derive(Default)]
struct State {
    blocks: HashMap<BlockKey, ClaimState>,
    /// Plans in the making.
    plans: usize,
    /// Blocks that readers took while there are such plans.
    taken: HashSet<BlockKey>,
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

/// A plan in the making: blocks that readers take before this is dropped get no job.
pub struct Planning<'c> {
    claims: &'c Claims,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.claims.change(|state| state.blocks.remove(&self.key));
    }
}

impl Drop for Planning<'_> {
    fn drop(&mut self) {
        self.claims.change(|state| {
            state.plans -= 1;
            if state.plans == 0 {
                state.taken.clear();
            }
        });
    }
}

impl Claims {
    /// Records that a plan is being made.
    pub fn planning(&self) -> Planning<'_> {
        self.change(|state| state.plans += 1);
        Planning { claims: self }
    }

    /// Plans a block. Returns whether it needs a job: it does not if it has one already, or if a
    /// reader took it while the plan was made.
    pub fn plan(&self, key: BlockKey) -> bool {
        self.change(|state| {
            let is_new = !state.blocks.contains_key(&key) && !state.taken.contains(&key);
            if is_new {
                state.blocks.insert(key, ClaimState::Planned);
            }
            is_new
        })
    }

    /// Leaves a planned block without a job to its readers.
    pub fn leave(&self, key: BlockKey) {
        self.change(|state| {
            if state.blocks.get(&key) == Some(&ClaimState::Planned) {
                state.blocks.remove(&key);
            }
        });
    }

    /// Runs the job of a block, unless a reader has taken the block.
    pub fn work(&self, key: BlockKey, decode: impl FnOnce()) {
        let mut state = self.lock();
        match state.blocks.get_mut(&key) {
            Some(claim) if *claim == ClaimState::Planned => *claim = ClaimState::Begun,
            _ => return,
        }
        drop(state);
        // The claim ends when the block is in the cache, or when the job panics.
        let _claim = Begun { claims: self, key };
        decode();
    }

    /// Takes a block for a reader. Returns false if a job is decoding it.
    pub fn take(&self, key: BlockKey) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.change(|state| {
            if state.blocks.get(&key) == Some(&ClaimState::Begun) {
                return false;
            }
            state.blocks.remove(&key);
            // One that is forgotten is decoded in vain at most.
            if state.plans > 0 && state.taken.len() < TAKEN_BLOCKS {
                state.taken.insert(key);
            }
            true
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = change(&mut state);
        let count = state.blocks.len() + state.plans;
        self.count.store(count, Ordering::Release);
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unpoisoned()
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
    fn what_a_reader_took_while_a_plan_was_made_gets_no_job() {
        let claims = Claims::default();
        let (first, second) = (claims.planning(), claims.planning());
        assert!(claims.take(KEY));
        assert!(!claims.plan(KEY), "the reader has it");
        drop(first);
        assert!(!claims.plan(KEY), "there is a plan still");
        drop(second);
        assert_eq!(claims.count.load(Ordering::Relaxed), 0);
        assert!(claims.plan(KEY), "wanted later");
        claims.leave(KEY);
        assert!(claims.plan(KEY));
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
