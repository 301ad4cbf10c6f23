//! The health of mirrors: the next request goes to the first one without recent failures.
//!
//! Health is kept for each position in the list of mirrors and not for each blob, because an image of a
//! registry is many blobs at the same few servers.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;

use crate::RemoteError;

/// Longest time that a failed mirror comes after the others.
const DEMOTED: Duration = Duration::from_secs(60);
/// Time that a mirror that sent wrong bytes comes last.
const DISTRUSTED: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Default)]
struct MirrorHealth {
    /// Failures in a row.
    failures: u32,
    /// The mirror comes after others until then.
    demoted: Option<Instant>,
    /// The mirror sent wrong bytes and comes last until then.
    distrusted: Option<Instant>,
    /// The mirror gets no requests until then.
    busy: Option<Instant>,
}

/// The health of each mirror.
#[derive(Default)]
pub struct Health {
    mirrors: Mutex<Vec<MirrorHealth>>,
}

impl Health {
    /// Picks which of `count` mirrors to ask now, and how long to wait before. Mirrors in `out` are not
    /// asked; mirrors in `tried` only if no other is left. Returns `None` if all are out.
    pub fn pick(
        &self,
        count: usize,
        out: &HashSet<usize>,
        tried: &HashSet<usize>,
    ) -> Option<(usize, Duration)> {
        let now = Instant::now();
        let mirrors = self.lock(count);
        let later = |until: Option<Instant>| until.is_some_and(|until| until > now);
        let (index, mirror) = mirrors
            .iter()
            .enumerate()
            .take(count)
            .filter(|(index, _)| !out.contains(index))
            .min_by_key(|(index, mirror)| {
                let tried = tried.contains(index);
                let busy = mirror.busy.filter(|until| *until > now);
                (
                    tried,
                    busy,
                    later(mirror.distrusted),
                    later(mirror.demoted),
                    *index,
                )
            })?;
        let wait = mirror
            .busy
            .map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        Some((index, wait))
    }

    /// Records that a request to mirror `index` succeeded.
    pub fn succeeded(&self, index: usize) {
        let mut mirrors = self.lock(index + 1);
        if let Some(mirror) = mirrors.get_mut(index) {
            mirror.failures = 0;
            mirror.demoted = None;
            mirror.busy = None;
        }
    }

    /// Records that a request to mirror `index` failed with `error`.
    pub fn failed(&self, index: usize, error: &RemoteError) {
        let now = Instant::now();
        let mut mirrors = self.lock(index + 1);
        let Some(mirror) = mirrors.get_mut(index) else {
            return;
        };
        mirror.failures += 1;
        let seconds = 1_u64 << mirror.failures.min(6);
        mirror.demoted = now.checked_add(Duration::from_secs(seconds).min(DEMOTED));
        match error {
            RemoteError::WrongDigest { .. } => mirror.distrusted = now.checked_add(DISTRUSTED),
            RemoteError::Busy {
                retry_after: Some(wait),
                ..
            } => mirror.busy = now.checked_add(*wait),
            _ => {}
        }
    }

    /// Forgets all failures, after the user has changed something.
    pub fn forget(&self) {
        self.mirrors.lock().unpoisoned().clear();
    }

    fn lock(&self, count: usize) -> MutexGuard<'_, Vec<MirrorHealth>> {
        let mut mirrors = self.mirrors.lock().unpoisoned();
        if mirrors.len() < count {
            mirrors.resize(count, MirrorHealth::default());
        }
        mirrors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_that_fail_come_after_others_and_liars_last() {
        let health = Health::default();
        let none = HashSet::new();
        let place = String::new();
        let pick = |out: &HashSet<usize>| health.pick(3, out, &none).map(|(index, _)| index);
        assert_eq!(pick(&none), Some(0));
        let wrong = RemoteError::WrongDigest {
            place: place.clone(),
            range: 0..1,
            expected: forerun_cache::Digest::of(b""),
        };
        health.failed(0, &wrong);
        let failed = RemoteError::Network {
            place: place.clone(),
            reason: String::new(),
        };
        health.failed(1, &failed);
        assert_eq!(pick(&none), Some(2));
        assert_eq!(pick(&HashSet::from([2])), Some(1));
        assert_eq!(pick(&HashSet::from([1, 2])), Some(0));
        assert_eq!(pick(&HashSet::from([0, 1, 2])), None);
        health.succeeded(1);
        assert_eq!(pick(&none), Some(1));
        let wait = Duration::from_secs(40);
        for index in 0..3 {
            let retry_after = Some(wait);
            health.failed(
                index,
                &RemoteError::Busy {
                    place: place.clone(),
                    status: 429,
                    retry_after,
                },
            );
        }
        let (index, waits) = health.pick(3, &none, &none).unwrap_or_default();
        assert_eq!(index, 0);
        assert!(waits > Duration::from_secs(30));
    }
}
