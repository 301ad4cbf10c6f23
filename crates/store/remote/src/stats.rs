//! Counters of an image's fetches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use forerun_io::{Observer, Timer, Unpoisoned};

use crate::RemoteError;

/// Seconds over which the rate is taken.
const RATE_SECONDS: usize = 4;

/// Counters of one image. All only grow.
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
    /// Is told of each request, once there is one.
    observer: OnceLock<Arc<Observer>>,
}

/// Bytes of the last seconds: by second, the newest in the slot of its number.
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

    /// Starts the time of a request.
    pub(crate) fn timer(&self) -> Timer {
        self.observer
            .get()
            .map_or_else(Timer::default, |observer| observer.timer())
    }

    /// Tells the observer of a request that has ended: offset and length in the image.
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
            *slot = slot.saturating_add(bytes);
        }
    }

    /// Counts bytes that have to be fetched again.
    pub(crate) fn discarded(&self, bytes: usize) {
        self.discarded
            .fetch_add(forerun_io::u64_from(bytes), Ordering::Relaxed);
    }

    /// Counts bytes with a wrong digest.
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

    /// Counts a read that had to wait, and its time.
    pub(crate) fn waited(&self, time: Duration) {
        self.waits.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.waited_micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts bytes that needed no fetching: copied from other images in the cache, or zeros.
    pub(crate) fn adopted(&self, bytes: u64) {
        self.adopted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Copies the counters into `status`.
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
        // The current second counts with the part of it that has passed.
        let _now = rate.current();
        let bytes = rate
            .bytes
            .iter()
            .fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        let whole = forerun_io::u64_from(RATE_SECONDS).saturating_sub(1);
        let begun = Duration::from_nanos(u64::from(elapsed.subsec_nanos()));
        let span = (Duration::from_secs(whole).saturating_add(begun)).min(elapsed);
        let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX).max(1);
        bytes.saturating_mul(1000) / millis
    }

    fn rate(&self) -> MovingRate<'_> {
        MovingRate {
            second: self.started.elapsed().as_secs(),
            rate: self.rate.lock().unpoisoned(),
        }
    }
}

/// A rate under its lock, with the current second.
struct MovingRate<'a> {
    second: u64,
    rate: MutexGuard<'a, Rate>,
}

impl MovingRate<'_> {
    /// Returns the slot of the current second. Empties the slots of seconds that are too old.
    fn current(&mut self) -> Option<&mut u64> {
        let slots = forerun_io::u64_from(RATE_SECONDS);
        let new = self.second.saturating_sub(self.rate.second).min(slots);
        for step in 0..new {
            let slot = forerun_io::saturating_usize(self.second.saturating_sub(step) % slots);
            if let Some(slot) = self.rate.bytes.get_mut(slot) {
                *slot = 0;
            }
        }
        self.rate.second = self.second.max(self.rate.second);
        let slot = forerun_io::saturating_usize(self.rate.second % slots);
        self.rate.bytes.get_mut(slot)
    }
}

impl std::ops::Deref for MovingRate<'_> {
    type Target = Rate;

    fn deref(&self) -> &Rate {
        &self.rate
    }
}

/// The state of an image that is fetched, with its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStatus {
    /// Its address, without credentials.
    pub place: String,
    /// Length of the image in bytes.
    pub len: u64,
    /// Bytes of it that are here.
    pub local_bytes: u64,
    /// Bytes that servers sent, hash blocks of the table among them.
    pub fetched_bytes: u64,
    /// Of these, bytes that had to be fetched again: wrong ones, and beginnings of chunks of requests that
    /// were given up. 0 as long as nothing goes wrong.
    pub refetched_bytes: u64,
    /// Of these, bytes with a wrong digest.
    pub wrong_bytes: u64,
    /// Chunks of the cache that were altered since they were stored, and are fetched again.
    pub altered_chunks: u64,
    /// Bytes that needed no fetching: found in other images of the cache, or zeros.
    pub adopted_bytes: u64,
    /// Requests made to servers.
    pub requests: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Chunks that wait for a request because a reader needs them.
    pub demand_queue: u64,
    /// Chunks that wait for a request ahead of readers.
    pub readahead_queue: u64,
    /// Chunks that wait for a request in the background.
    pub background_queue: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Retries of failed requests.
    pub retries: u64,
    /// Reads that had to wait.
    pub waits: u64,
    /// The total time of these waits.
    pub waited: Duration,
    /// Bytes per second over the last seconds.
    pub rate: u64,
    /// Whether all of it is here.
    pub complete: bool,
    /// Whether the network is no longer needed.
    pub detached: bool,
    /// Whether its bytes were verified against a digest.
    pub verified: bool,
    /// The proof of its bytes before they are served: `chunks` for the digest of each chunk of the cache, `whole`
    /// for that of all bytes, `contents` for a table of contents that a manifest vouches for, with the digest of each
    /// part, `layers` where it differs from layer to layer. Nothing is verified without.
    pub verified_by: Option<&'static str>,
    /// When its server resolved the image, if it was opened from memory: the server did not answer, or
    /// was not to be asked.
    pub answered: Option<SystemTime>,
    /// The last error.
    pub last_error: Option<String>,
}

impl RemoteStatus {
    /// Returns the state of several images as one: sums, and what holds for all of them. The place, the time of
    /// an answer and the last error are those of the first that has them. Returns nothing for no image.
    #[must_use]
    pub fn of_all(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|sum, next| Self {
            place: sum.place,
            len: sum.len.saturating_add(next.len),
            local_bytes: sum.local_bytes.saturating_add(next.local_bytes),
            fetched_bytes: sum.fetched_bytes.saturating_add(next.fetched_bytes),
            refetched_bytes: sum.refetched_bytes.saturating_add(next.refetched_bytes),
            wrong_bytes: sum.wrong_bytes.saturating_add(next.wrong_bytes),
            altered_chunks: sum.altered_chunks.saturating_add(next.altered_chunks),
            adopted_bytes: sum.adopted_bytes.saturating_add(next.adopted_bytes),
            requests: sum.requests.saturating_add(next.requests),
            in_flight: sum.in_flight.saturating_add(next.in_flight),
            demand_queue: sum.demand_queue.saturating_add(next.demand_queue),
            readahead_queue: sum.readahead_queue.saturating_add(next.readahead_queue),
            background_queue: sum.background_queue.saturating_add(next.background_queue),
            errors: sum.errors.saturating_add(next.errors),
            retries: sum.retries.saturating_add(next.retries),
            waits: sum.waits.saturating_add(next.waits),
            waited: sum.waited.saturating_add(next.waited),
            rate: sum.rate.saturating_add(next.rate),
            complete: sum.complete && next.complete,
            detached: sum.detached && next.detached,
            verified: sum.verified && next.verified,
            verified_by: match (sum.verified_by, next.verified_by) {
                (one, other) if one == other => one,
                (Some(_), Some(_)) => Some("layers"),
                _ => None,
            },
            answered: sum.answered.or(next.answered),
            last_error: sum.last_error.or(next.last_error),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_images_are_summed() {
        let layer = |len, complete, error: Option<&str>| RemoteStatus {
            len,
            complete,
            verified: true,
            last_error: error.map(str::to_owned),
            ..RemoteStatus::default()
        };
        assert_eq!(RemoteStatus::of_all([]), None);
        let one = layer(7, true, None);
        assert_eq!(RemoteStatus::of_all([one.clone()]), Some(one.clone()));
        let all = [
            one,
            layer(u64::MAX, false, Some("late")),
            layer(1, true, None),
        ];
        let expected = layer(u64::MAX, false, Some("late"));
        assert_eq!(RemoteStatus::of_all(all), Some(expected));
    }

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
