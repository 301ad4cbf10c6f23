//! Claims on blocks, so that one thread decodes each: the job planned for it, or the reader that
//! needs it.
//!
//! The first of them to reach a planned block claims it. A job decodes into the cache. A reader
//! does too, unless it wants all of a block that no other read wants: then it decodes into its
//! answer.
//!
//! A reader may also claim and finish a block while a plan with this block is being made. So the
//! blocks that readers claim meanwhile are remembered until the plan is ready.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use forerun_io::{BlockKey, Unpoisoned};

use crate::tuning::TAKEN_BLOCKS;

/// Claims on the blocks that jobs of the pool will decode. The plans bound their number.
#[derive(Default)]
pub struct Claims {
    state: Mutex<State>,
    /// Number of blocks plus unfinished plans, so that a reader takes no lock when it is 0.
    count: AtomicUsize,
}

#[derive(Default)]
struct State {
    blocks: HashMap<BlockKey, ClaimState>,
    plans: usize,
    /// Blocks that readers claimed while plans are being made.
    taken: HashSet<BlockKey>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ClaimState {
    Planned,
    Begun,
}

struct Begun<'c> {
    claims: &'c Claims,
    key: BlockKey,
}

/// A plan being made. Blocks that readers claim before this is dropped get no job.
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
    /// Records that a plan is being made, until the result is dropped.
    pub fn planning(&self) -> Planning<'_> {
        self.change(|state| state.plans += 1);
        Planning { claims: self }
    }

    /// Plans a block. Returns whether it needs a job: it does not if it has one, or if a reader
    /// claimed it while the plan was made.
    pub fn plan(&self, key: BlockKey) -> bool {
        self.change(|state| {
            let is_new = !state.blocks.contains_key(&key) && !state.taken.contains(&key);
            if is_new {
                state.blocks.insert(key, ClaimState::Planned);
            }
            is_new
        })
    }

    /// Withdraws a planned block, so that its readers decode it.
    pub fn leave(&self, key: BlockKey) {
        self.change(|state| {
            if state.blocks.get(&key) == Some(&ClaimState::Planned) {
                state.blocks.remove(&key);
            }
        });
    }

    /// Runs the job of a block, unless a reader has claimed the block.
    pub fn work(&self, key: BlockKey, decode: impl FnOnce()) {
        let mut state = self.lock();
        match state.blocks.get_mut(&key) {
            Some(claim) if *claim == ClaimState::Planned => *claim = ClaimState::Begun,
            _ => return,
        }
        drop(state);
        // The claim ends when the block is cached, or when the job panics.
        let _claim = Begun { claims: self, key };
        decode();
    }

    /// Claims a block for a reader. Returns false if a job is decoding it.
    pub fn take(&self, key: BlockKey) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.change(|state| {
            if state.blocks.get(&key) == Some(&ClaimState::Begun) {
                return false;
            }
            state.blocks.remove(&key);
            // A forgotten block is at worst decoded once more.
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
