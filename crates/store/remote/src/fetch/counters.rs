//! Counters of an image's fetches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use forerun_io::{Observer, Timer, Unpoisoned};

use crate::{RemoteError, RemoteStatus};

/// The rate is the mean of this many seconds.
const RATE_SECONDS: usize = 4;

/// Counters of one image. They never decrease.
#[derive(Debug)]
pub struct Counters {
    requests: AtomicU64,
    fetched: AtomicU64,
    discarded: AtomicU64,
    wrong: AtomicU64,
    errors: AtomicU64,
    retries: AtomicU64,
    waits: AtomicU64,
    waited_micros: AtomicU64,
    adopted: AtomicU64,
    last_error: Mutex<Option<String>>,
    started: Instant,
    rate: Mutex<Rate>,
    /// Receives each request. Set at most once.
    observer: OnceLock<Arc<Observer>>,
}

/// Bytes received in the last seconds: a ring with one slot per second.
#[derive(Debug, Default)]
struct Rate {
    second: u64,
    bytes: [u64; RATE_SECONDS],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            requests: AtomicU64::new(0),
            fetched: AtomicU64::new(0),
            discarded: AtomicU64::new(0),
            wrong: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            waited_micros: AtomicU64::new(0),
            adopted: AtomicU64::new(0),
            last_error: Mutex::default(),
            started: Instant::now(),
            rate: Mutex::default(),
            observer: OnceLock::new(),
        }
    }
}

impl Counters {
    pub(crate) fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_observer(&self, observer: Arc<Observer>) {
        let _is_set_once = self.observer.set(observer);
    }

    pub(crate) fn timer(&self) -> Timer {
        self.observer
            .get()
            .map_or_else(Timer::default, |observer| observer.timer())
    }

    /// Reports a finished request to the observer. `place` is its offset and length in the image.
    pub(crate) fn request_ended(&self, timer: Timer, place: (u64, u64), ok: bool) {
        if let Some(observer) = self.observer.get() {
            observer.fetched(timer, place, ok);
        }
    }

    pub(crate) fn received(&self, bytes: usize) {
        let bytes = forerun_io::u64_from(bytes);
        self.fetched.fetch_add(bytes, Ordering::Relaxed);
        let mut rate = self.rate();
        if let Some(slot) = rate.current() {
            *slot += bytes;
        }
    }

    /// Counts bytes that were dropped and must be fetched again.
    pub(crate) fn discarded(&self, bytes: usize) {
        self.discarded
            .fetch_add(forerun_io::u64_from(bytes), Ordering::Relaxed);
    }

    pub(crate) fn wrong(&self, bytes: u64) {
        self.wrong.fetch_add(bytes, Ordering::Relaxed);
        self.discarded.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn error(&self, error: &RemoteError) {
        self.errors.fetch_add(1, Ordering::Relaxed);
        let mut last = self.last_error.lock().unpoisoned();
        *last = Some(error.to_string());
    }

    pub(crate) fn retry(&self) {
        self.retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn waited(&self, time: Duration) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.waited_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts bytes that were not fetched because another image in the cache has them or because
    /// they are zeros.
    pub(crate) fn adopted(&self, bytes: u64) {
        self.adopted.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn fill(&self, status: &mut RemoteStatus) {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        status.requests = get(&self.requests);
        status.fetched_bytes = get(&self.fetched);
        status.refetched_bytes = get(&self.discarded);
        status.wrong_bytes = get(&self.wrong);
        status.errors = get(&self.errors);
        status.retries = get(&self.retries);
        status.waits = get(&self.waits);
        status.waited = Duration::from_micros(get(&self.waited_micros));
        status.adopted_bytes = get(&self.adopted);
        let last = self.last_error.lock().unpoisoned();
        status.last_error.clone_from(&last);
        drop(last);
        status.rate = self.bytes_per_second();
    }

    fn bytes_per_second(&self) -> u64 {
        let elapsed = self.started.elapsed();
        let mut rate = self.rate();
        // The current second counts only as far as it has passed.
        let _now = rate.current();
        let bytes: u64 = rate.bytes.iter().sum();
        let whole = forerun_io::u64_from(RATE_SECONDS) - 1;
        let begun = Duration::from_nanos(u64::from(elapsed.subsec_nanos()));
        let span = (Duration::from_secs(whole) + begun).min(elapsed);
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
        bytes * 1000 / millis
    }

    fn rate(&self) -> MovingRate<'_> {
        MovingRate {
            second: self.started.elapsed().as_secs(),
            rate: self.rate.lock().unpoisoned(),
        }
    }
}

/// The locked rate at the current second.
struct MovingRate<'a> {
    second: u64,
    rate: MutexGuard<'a, Rate>,
}

impl MovingRate<'_> {
    /// Returns the slot of the current second, after clearing the slots of outdated seconds.
    fn current(&mut self) -> Option<&mut u64> {
        let slots = forerun_io::u64_from(RATE_SECONDS);
        let new = self.second.saturating_sub(self.rate.second).min(slots);
        for step in 0..new {
            let slot = forerun_io::usize_from((self.second - step) % slots);
            if let Some(slot) = self.rate.bytes.get_mut(slot) {
                *slot = 0;
            }
        }
        self.rate.second = self.second.max(self.rate.second);
        let slot = forerun_io::usize_from(self.rate.second % slots);
        self.rate.bytes.get_mut(slot)
    }
}

impl std::ops::Deref for MovingRate<'_> {
    type Target = Rate;

    fn deref(&self) -> &Rate {
        &self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_forgets() {
        let counters = Counters::default();
        counters.received(1000);
        assert!(counters.bytes_per_second() >= 1000);
        let mut rate = counters.rate();
        rate.second = 2;
        assert_eq!(rate.current(), Some(&mut 0));
        assert_eq!(rate.bytes, [1000, 0, 0, 0]);
        rate.second = 9;
        assert_eq!(rate.current(), Some(&mut 0));
        assert_eq!(rate.bytes, [0; 4]);
    }
}
