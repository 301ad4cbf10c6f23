//! Fetches a range of an image from one or more servers that have the image.
//!
//! An answer that ends early is resumed where it ended, at the same server or the next one.
//! Complete chunks are handed to a callback one by one. A chunk that the callback rejects as wrong
//! is fetched again, from another server if there is one; the server that sent it ranks last from
//! then on.
//!
//! Three limits bound the time: a stalled request is abandoned, attempts without progress are
//! counted, and a range fails if no chunk of it arrives within the timeout, even if bytes trickle
//! in.
//!
//! The scheduler, not this module, decides which ranges to fetch.

mod assembly;
pub mod chunk_table;
pub mod counters;
pub mod failed_reads;
pub mod layer_digests;
mod mirrors;
mod retry;
pub mod scheduler;
pub mod tuning;

use std::collections::HashSet;
use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forerun_cache::Digest;
use futures_util::StreamExt as _;

use crate::origin::layout::Part;
use crate::{RemoteError, Result};

use assembly::Assembly;
use counters::Counters;
use mirrors::Health;
use retry::Backoff;

/// The outcome of handing a chunk to the callback.
#[derive(Clone, Debug)]
pub enum ChunkOutcome {
    Kept,
    /// The chunk does not have this digest, which it should have.
    Wrong(Digest),
    Failed(RemoteError),
}

#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Longest time between two complete chunks.
    pub timeout: Duration,
    /// Longest time between two bytes of one request.
    pub stall: Duration,
    /// Consecutive attempts without progress after the first one.
    pub retries: u32,
}

pub struct Fetcher {
    parts: Vec<Part>,
    chunk_len: u32,
    patience: Patience,
    health: Health,
    counters: Arc<Counters>,
}

/// One request: the part, the index of the mirror, and how long it may stall.
#[derive(Clone, Copy)]
struct Ask<'a> {
    part: &'a Part,
    index: usize,
    stall: Duration,
}

struct Answered {
    bytes: u64,
}

impl Fetcher {
    /// Creates a fetcher for an image made of consecutive `parts`. It delivers chunks of
    /// `chunk_len` bytes.
    #[must_use]
    pub fn new(
        parts: Vec<Part>,
        chunk_len: u32,
        patience: Patience,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            parts,
            chunk_len,
            patience,
            health: Health::default(),
            counters,
        }
    }

    /// Reads credentials again and forgets the failures of all mirrors.
    pub fn reload(&self) {
        self.health.forget();
        for origin in self.parts.iter().flat_map(|part| &part.blob.mirrors) {
            origin.reload();
        }
    }

    /// Records that the last bytes fetched for `at` were wrong. The mirror asked first so far ranks
    /// last from then on.
    pub fn distrust(&self, at: u64) {
        let Some(part) = self.part(at) else {
            return;
        };
        let none = HashSet::new();
        if let Some((index, _)) = self.health.pick(part.blob.mirrors.len(), &none, &none) {
            let error = RemoteError::WrongDigest {
                place: place(part, index),
                range: at..at,
                expected: part.blob.description.digest.unwrap_or(Digest([0; 32])),
            };
            self.counters.error(&error);
            self.health.failed(index, &error);
        }
    }

    /// Returns the end of the part that contains byte `at`. Requests do not cross it.
    #[must_use]
    pub fn part_end(&self, at: u64) -> u64 {
        self.part(at)
            .map_or(u64::MAX, |part| part.offset + part.blob.description.len)
    }

    /// Returns whether each request costs a whole part, because a server does not support range requests.
    #[must_use]
    pub fn is_sent_whole(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| part.blob.description.whole)
    }

    /// Returns the bytes of all parts that overlap `range`. Servers without range requests send
    /// whole parts.
    #[must_use]
    pub fn parts_of(&self, range: &Range<u64>) -> Range<u64> {
        let first = self.part(range.start);
        let last = range.end - 1;
        let end = self.part(last).map_or(range.end, |_| self.part_end(last));
        first.map_or(range.start, |part| part.offset)..end
    }

    fn part(&self, at: u64) -> Option<&Part> {
        let after = self.parts.partition_point(|part| part.offset <= at);
        self.parts.get(after.checked_sub(1)?)
    }

    /// Fetches `range`, which starts at a chunk boundary, and passes its chunks to `take` in order.
    ///
    /// Fails with the error of the last attempt when no server remains or a limit is reached.
    /// Chunks already passed to `take` stay valid.
    pub async fn fetch<F, T>(&self, range: Range<u64>, mut take: F) -> Result<()>
    where
        F: FnMut(u64, Vec<u8>) -> T,
        T: Future<Output = ChunkOutcome>,
    {
        let mut assembly = Assembly::new(self.chunk_len, range);
        let result = self.fill(&mut assembly, &mut take).await;
        if result.is_err() {
            self.counters.discarded(assembly.pending());
        }
        result
    }

    async fn fill<F, T>(&self, assembly: &mut Assembly, take: &mut F) -> Result<()>
    where
        F: FnMut(u64, Vec<u8>) -> T,
        T: Future<Output = ChunkOutcome>,
    {
        let mut out = HashSet::new();
        let mut tried = HashSet::new();
        let mut backoff = Backoff::new();
        let mut deadline = after(self.patience.timeout);
        let mut stall = self.patience.stall;
        while !assembly.missing().is_empty() {
            let before = assembly.missing().start;
            let Some(part) = self.part(before) else {
                return Err(self.lost(before));
            };
            let count = part.blob.mirrors.len();
            let Some((index, wait)) = self.health.pick(count, &out, &tried) else {
                return Err(self.lost(before));
            };
            if !wait.is_zero() {
                if Instant::now()
                    .checked_add(wait)
                    .is_none_or(|then| then > deadline)
                {
                    return Err(late(part, index, wait));
                }
                tokio::time::sleep(wait).await;
            }
            let ask = Ask { part, index, stall };
            let result = self.attempt(ask, assembly, take, &mut deadline).await;
            let progress = assembly.missing().start > before;
            if progress {
                backoff = Backoff::new();
                stall = self.patience.stall;
                tried.clear();
            }
            let error = match result {
                Ok(answered) if answered.bytes > 0 => {
                    self.health.succeeded(index);
                    continue;
                }
                Ok(_) => self.network(part, index, "the answer was empty"),
                // No server is at fault, and no other server can help.
                Err(error @ RemoteError::Closed { .. }) => return Err(error),
                Err(error) => error,
            };
            self.counters.error(&error);
            tracing::debug!(%error, "a request failed");
            self.health.failed(index, &error);
            if matches!(error, RemoteError::Cache { .. }) {
                return Err(error);
            }
            if matches!(error, RemoteError::Timeout { .. }) {
                // The limit may be too short for this link.
                stall *= 2;
            }
            if error.is_transient() {
                tried.insert(index);
            } else {
                out.insert(index);
            }
            let left = (0..count).any(|other| !out.contains(&other));
            if !left || backoff.count() >= self.patience.retries || Instant::now() >= deadline {
                return Err(error);
            }
            self.counters.retry();
            let fresh = (0..count).any(|other| !out.contains(&other) && !tried.contains(&other));
            let pause = backoff.next();
            if !fresh {
                tried.clear();
                let left = deadline.saturating_duration_since(Instant::now());
                tokio::time::sleep(pause.min(left)).await;
            }
        }
        Ok(())
    }

    /// Sends one request, for all missing bytes of the part, to one server.
    async fn attempt<F, T>(
        &self,
        ask: Ask<'_>,
        assembly: &mut Assembly,
        take: &mut F,
        deadline: &mut Instant,
    ) -> Result<Answered>
    where
        F: FnMut(u64, Vec<u8>) -> T,
        T: Future<Output = ChunkOutcome>,
    {
        let timer = self.counters.timer();
        let missing = assembly.missing();
        let part_end = self.part_end(missing.start);
        let result = self.receive(ask, assembly, take, deadline).await;
        let asked = missing.end.min(part_end) - missing.start;
        let len = result.as_ref().map_or(asked, |answered| answered.bytes);
        let place = (missing.start, len);
        self.counters.request_ended(timer, place, result.is_ok());
        result
    }

    async fn receive<F, T>(
        &self,
        ask: Ask<'_>,
        assembly: &mut Assembly,
        take: &mut F,
        deadline: &mut Instant,
    ) -> Result<Answered>
    where
        F: FnMut(u64, Vec<u8>) -> T,
        T: Future<Output = ChunkOutcome>,
    {
        let Ask { part, index, .. } = ask;
        let Some(origin) = part.blob.mirrors.get(index) else {
            return Err(self.lost(part.offset));
        };
        let missing = assembly.missing();
        let part_end = part.offset + part.blob.description.len;
        let start = missing.start - part.offset;
        let end = missing.end.min(part_end) - part.offset;
        self.counters.request();
        let answer = origin.fetch(start..end, &part.blob.description);
        let mut body = self.patient(ask, *deadline, answer).await??;
        let mut bytes = 0_u64;
        while let Some(piece) = self.patient(ask, *deadline, body.next()).await? {
            let piece = piece?;
            bytes += forerun_io::u64_from(piece.len());
            self.counters.received(piece.len());
            if piece.is_empty() {
                // The server sent bytes before the range, which were skipped. They count as
                // progress.
                *deadline = after(self.patience.timeout);
            }
            let mut rest: &[u8] = &piece;
            while !rest.is_empty() {
                let (left, whole) = assembly.push(index, rest);
                rest = left;
                if let Some((at, chunk)) = whole {
                    let judged = self.hand_over(ask, assembly, take, at, chunk).await;
                    if judged.is_err() {
                        self.counters.discarded(rest.len());
                    }
                    judged?;
                    *deadline = after(self.patience.timeout);
                }
            }
        }
        Ok(Answered { bytes })
    }

    /// Passes a complete chunk to `take`. If `take` does not keep the chunk, it is missing again.
    async fn hand_over<F, T>(
        &self,
        ask: Ask<'_>,
        assembly: &mut Assembly,
        take: &mut F,
        at: u64,
        chunk: Vec<u8>,
    ) -> Result<()>
    where
        F: FnMut(u64, Vec<u8>) -> T,
        T: Future<Output = ChunkOutcome>,
    {
        let len = chunk.len();
        match take(at, chunk).await {
            ChunkOutcome::Kept => {
                assembly.accept();
                Ok(())
            }
            ChunkOutcome::Failed(error) => {
                let _unjudged = assembly.reject(at);
                self.counters.discarded(len);
                Err(error)
            }
            ChunkOutcome::Wrong(expected) => {
                let len = forerun_io::u64_from(len);
                self.counters.wrong(len);
                Err(match assembly.reject(at) {
                    Some(_) => RemoteError::WrongDigest {
                        place: place(ask.part, ask.index),
                        range: at..at + len,
                        expected,
                    },
                    None => {
                        let reason = "two answers of the server do not fit together";
                        self.network(ask.part, ask.index, reason)
                    }
                })
            }
        }
    }

    /// Waits for `work` until it stalls or the deadline passes.
    async fn patient<T>(
        &self,
        ask: Ask<'_>,
        deadline: Instant,
        work: impl Future<Output = T>,
    ) -> Result<T> {
        let left = deadline.saturating_duration_since(Instant::now());
        let patience = ask.stall.min(left);
        tokio::time::timeout(patience, work)
            .await
            .map_err(|_| late(ask.part, ask.index, patience))
    }

    fn network(&self, part: &Part, index: usize, reason: &str) -> RemoteError {
        RemoteError::Network {
            place: place(part, index),
            reason: reason.to_owned(),
        }
    }

    /// Returns the error for a byte outside all parts. A valid layout has no such byte.
    fn lost(&self, at: u64) -> RemoteError {
        RemoteError::Refused {
            place: self
                .part(at)
                .map_or_else(String::new, |part| place(part, 0)),
            reason: format!("no server is known for byte {at}"),
        }
    }
}

fn place(part: &Part, index: usize) -> String {
    let origin = part.blob.mirrors.get(index);
    origin.map_or_else(String::new, |origin| origin.place().to_owned())
}

/// Returns the error for a server that sent nothing for `time`, rounded up to seconds.
fn late(part: &Part, index: usize, time: Duration) -> RemoteError {
    RemoteError::Timeout {
        place: place(part, index),
        seconds: time.as_secs_f32().ceil(),
    }
}

fn after(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}
