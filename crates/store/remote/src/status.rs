//! The state of a remote image, as users see it.

use std::time::{Duration, SystemTime};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteStatus {
    pub place: String,
    pub len: u64,
    /// Bytes of the image in the cache.
    pub local_bytes: u64,
    /// Bytes that servers sent, including hash blocks of the table.
    pub fetched_bytes: u64,
    /// Part of `fetched_bytes` that had to be fetched again: wrong bytes, and incomplete chunks of
    /// abandoned requests. 0 if nothing goes wrong.
    pub refetched_bytes: u64,
    /// Part of `refetched_bytes` that had a wrong digest.
    pub wrong_bytes: u64,
    /// Cached chunks that were found altered and are fetched again.
    pub altered_chunks: u64,
    /// Bytes that were not fetched because they are zeros or another image in the cache has them.
    pub adopted_bytes: u64,
    pub requests: u64,
    pub in_flight: u64,
    /// Chunks with waiting readers that are not yet requested.
    pub demand_queue: u64,
    /// Chunks queued for readahead.
    pub readahead_queue: u64,
    /// Chunks queued for the background.
    pub background_queue: u64,
    pub errors: u64,
    pub retries: u64,
    pub waits: u64,
    /// The total time of these waits.
    pub waited: Duration,
    /// Bytes per second over the last seconds.
    pub rate: u64,
    pub complete: bool,
    /// Whether the network is no longer needed.
    pub detached: bool,
    /// Whether the bytes were verified against a digest.
    pub verified: bool,
    /// How bytes are verified before they are served: `chunks` by the digest of each cache chunk,
    /// `whole` by the digest of the image, `contents` by a table of contents that a manifest names
    /// by digest, `index` by an index that the caller trusts, `layers` if the layers differ. `None`
    /// if bytes are not verified.
    pub verified_by: Option<&'static str>,
    /// When the server resolved the image. Set if the image was opened from remembered facts,
    /// because the server did not answer or was not contacted.
    pub answered: Option<SystemTime>,
    pub last_error: Option<String>,
}

impl RemoteStatus {
    /// Combines the states of several images. Numbers are added; flags hold if they hold for all.
    /// The place, the time of an answer and the last error are those of the first image that has
    /// them. Returns `None` for no image.
    #[must_use]
    pub fn of_all(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|sum, next| Self {
            place: sum.place,
            len: sum.len + next.len,
            local_bytes: sum.local_bytes + next.local_bytes,
            fetched_bytes: sum.fetched_bytes + next.fetched_bytes,
            refetched_bytes: sum.refetched_bytes + next.refetched_bytes,
            wrong_bytes: sum.wrong_bytes + next.wrong_bytes,
            altered_chunks: sum.altered_chunks + next.altered_chunks,
            adopted_bytes: sum.adopted_bytes + next.adopted_bytes,
            requests: sum.requests + next.requests,
            in_flight: sum.in_flight + next.in_flight,
            demand_queue: sum.demand_queue + next.demand_queue,
            readahead_queue: sum.readahead_queue + next.readahead_queue,
            background_queue: sum.background_queue + next.background_queue,
            errors: sum.errors + next.errors,
            retries: sum.retries + next.retries,
            waits: sum.waits + next.waits,
            waited: sum.waited + next.waited,
            rate: sum.rate + next.rate,
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
            layer(1 << 40, false, Some("late")),
            layer(1, true, None),
        ];
        let expected = layer((1 << 40) + 8, false, Some("late"));
        assert_eq!(RemoteStatus::of_all(all), Some(expected));
    }
}
