//! The health of mirrors: the next request goes to the first one without recent failures.
//!
//! Health is recorded for each position in the list of mirrors and not for each blob, because a
//! container image is many blobs on the same few servers.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use forerun_io::Unpoisoned;

use crate::RemoteError;

/// Longest time for which a failed mirror ranks after the others.
const DEMOTED: Duration = Duration::from_secs(60);
/// Time for which a mirror that sent wrong bytes ranks last.
const DISTRUSTED: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Default)]
struct MirrorHealth {
    failures: u32,
    /// Until then, the mirror ranks after mirrors without failures.
    demoted: Option<Instant>,
    /// Until then, the mirror ranks last, because it sent wrong bytes.
    distrusted: Option<Instant>,
    /// Until then, the mirror gets no requests, because it asked for a pause.
    busy: Option<Instant>,
}

#[derive(Default)]
pub struct Health {
    mirrors: Mutex<Vec<MirrorHealth>>,
}

impl Health {
    /// Picks one of `count` mirrors, and returns how long to wait before the request. Never picks
    /// mirrors in `out`; picks one in `tried` only if no other remains. Returns `None` if all are
    /// in `out`.
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

    pub fn succeeded(&self, index: usize) {
        let mut mirrors = self.lock(index + 1);
        if let Some(mirror) = mirrors.get_mut(index) {
            mirror.failures = 0;
            mirror.demoted = None;
            mirror.busy = None;
        }
    }

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

    /// Forgets all failures, after the user has changed servers or credentials.
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
