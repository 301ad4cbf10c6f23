//! One request in flight. Claims chunks, copies those that other images have, fetches and stores
//! the others, and reports them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use forerun_cache::{CacheError, CachedBlob, Claim, Waited};

use crate::error::cache_error;
use crate::fetch::scheduler::Shared;
use crate::fetch::scheduler::queue::{Class, Job};
use crate::fetch::tuning::{BACKGROUND_PAUSE, FIRST_LOOK, LONGEST_LOOK, TABLE_TRIES};
use crate::fetch::{ChunkOutcome, Fetcher};
use crate::{RemoteError, Result};

/// Chunks in flight. Dropping it notifies the readers, however the request ends.
struct Flight {
    shared: Arc<Shared>,
    runs: Vec<Range<u64>>,
    class: Class,
    /// Whether the request counts towards the limit of requests in flight.
    counted: bool,
    outcome: Option<RemoteError>,
    /// Whether chunks that did not arrive are queued again.
    again: bool,
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut queue = self.shared.queue();
        let again = self.again && !self.shared.is_closed();
        let failed = self.outcome.take();
        let permanent = failed.as_ref().is_some_and(|error| !error.is_transient());
        let keeps = (again || failed.is_some()) && !permanent && queue.keeps(self.class);
        let error = failed.unwrap_or_else(|| self.shared.gone());
        for run in std::mem::take(&mut self.runs) {
            queue.failed(run.clone(), (!again).then_some(&error));
            if keeps {
                self.shared.later(self.class, run);
            }
        }
        if self.counted {
            queue.ended();
        }
        self.shared.pump(&mut queue);
        drop(queue);
        self.shared.finish_if_complete();
    }
}

/// Obtains the chunks of `job` from the cache, another process or a server.
pub(super) async fn run(shared: Arc<Shared>, job: Job) {
    let mut flight = Flight {
        shared: Arc::clone(&shared),
        runs: vec![job.chunks.clone()],
        class: job.class,
        counted: true,
        outcome: None,
        again: false,
    };
    tracing::trace!(?job, "request");
    match get(&shared, &job, &mut flight).await {
        // All chunks have arrived. A reader that found one wrong may wait for it in another flight.
        Ok(()) => flight.runs.clear(),
        Err(error) => {
            tracing::debug!(%error, ?job, "chunks could not be fetched");
            flight.outcome = Some(error);
        }
    }
    drop(flight);
}

async fn get(shared: &Arc<Shared>, job: &Job, flight: &mut Flight) -> Result<()> {
    let Some(fetcher) = shared.fetcher() else {
        return Err(shared.gone());
    };
    let (claim, mine) = claim(shared, job.chunks.clone()).await?;
    // The other chunks are present or claimed by another process.
    flight.runs = mine.clone();
    for run in claim.busy() {
        let flight = Flight {
            shared: Arc::clone(shared),
            runs: vec![run.clone()],
            class: job.class,
            counted: false,
            outcome: None,
            again: true,
        };
        drop(shared.runtime.spawn(elsewhere(flight)));
    }
    let result = fetch(shared, &fetcher, mine).await;
    // Releasing a claim takes a file lock.
    drop(shared.runtime.spawn_blocking(move || drop(claim)));
    result
}

async fn fetch(
    shared: &Arc<Shared>,
    fetcher: &Fetcher,
    runs: impl IntoIterator<Item = Range<u64>> + Send,
) -> Result<()> {
    let size = u64::from(shared.blob.geometry().chunk_size());
    // A task cannot hold this iterator.
    let runs: Vec<_> = runs.into_iter().collect();
    for run in runs {
        shared.warm_table(run.start);
        let bytes = shared.blob.geometry().bytes_of(&run);
        let take = |at: u64, bytes| take(Arc::clone(shared), at / size, bytes);
        fetcher.fetch(bytes, take).await?;
    }
    Ok(())
}

/// Claims the missing chunks of `chunks`, and copies those that other images have. Reports present
/// chunks. Returns the claim and the runs to fetch.
async fn claim(shared: &Arc<Shared>, chunks: Range<u64>) -> Result<(Claim, Vec<Range<u64>>)> {
    let this = Arc::clone(shared);
    let work = move || -> forerun_cache::Result<_> {
        let claim = this.blob.claim(std::slice::from_ref(&chunks))?;
        if this.adopts() {
            let adopted = this.blob.adopt(claim.mine())?;
            for run in adopted {
                let bytes = this.blob.geometry().bytes_of(&run);
                this.counters.adopted(bytes.end - bytes.start);
            }
        }
        let mut mine = Vec::new();
        for run in claim.mine() {
            mine.extend(this.blob.missing(run.clone())?);
        }
        let mut queue = this.queue();
        for run in this.blob.known_present(chunks) {
            run.for_each(|chunk| queue.landed(chunk));
        }
        drop(queue);
        Ok((claim, mine))
    };
    match shared.runtime.spawn_blocking(work).await {
        Ok(Ok(claimed)) => Ok(claimed),
        Ok(Err(error)) => Err(cache_error(&error)),
        Err(_panicked) => Err(lost()),
    }
}

async fn take(shared: Arc<Shared>, chunk: u64, bytes: Vec<u8>) -> ChunkOutcome {
    if shared.is_closed() {
        return ChunkOutcome::Failed(shared.gone());
    }
    let this = Arc::clone(&shared);
    let work = move || {
        store(&this.blob, chunk, &bytes)?;
        // The failed verification has dropped only the chunks stored before it.
        if this.broken().is_some() {
            let run = chunk..chunk + 1;
            this.drop_part(&this.blob.geometry().bytes_of(&run));
        }
        Ok(())
    };
    match shared.runtime.spawn_blocking(work).await {
        Ok(Ok(())) => {
            shared.own.set(chunk);
            shared.queue().landed(chunk);
            ChunkOutcome::Kept
        }
        Ok(Err(CacheError::WrongDigest { expected, .. })) => ChunkOutcome::Wrong(expected),
        Ok(Err(error)) => ChunkOutcome::Failed(cache_error(&error)),
        Err(_panicked) => ChunkOutcome::Failed(lost()),
    }
}

fn store(blob: &CachedBlob, chunk: u64, bytes: &[u8]) -> forerun_cache::Result<()> {
    let mut result = blob.store(chunk, bytes);
    for _ in 1..TABLE_TRIES {
        // The second read of the table goes to another mirror.
        if !matches!(result, Err(CacheError::WrongTable { .. })) {
            break;
        }
        result = blob.store(chunk, bytes);
    }
    result
}

/// Waits for chunks that another process fetches. If that process releases its claim, the chunks
/// are queued again. If it stalls with the claim, this process fetches them.
async fn elsewhere(mut flight: Flight) {
    let shared = Arc::clone(&flight.shared);
    let mut pause = FIRST_LOOK;
    let mut since = Instant::now();
    let Some(Range {
        start: mut first,
        end,
    }) = flight.runs.first().cloned()
    else {
        return;
    };
    while first < end && !shared.is_closed() {
        let blob = Arc::clone(&shared.blob);
        let looked = shared
            .runtime
            .spawn_blocking(move || blob.poll(first))
            .await;
        let error = match looked {
            Ok(Ok(Waited::Present)) => {
                shared.queue().landed(first);
                first += 1;
                // The chunk has arrived. A reader that requests it again waits for another flight.
                if let Some(run) = flight.runs.first_mut() {
                    run.start = first;
                }
                (pause, since) = (FIRST_LOOK, Instant::now());
                continue;
            }
            Ok(Ok(Waited::TimedOut)) if since.elapsed() < shared.patience => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_LOOK);
                continue;
            }
            Ok(Ok(Waited::TimedOut)) => {
                tracing::warn!(
                    place = shared.place,
                    "another process stopped while it fetched; its chunks are fetched again"
                );
                let Some(fetcher) = shared.fetcher() else {
                    return;
                };
                match fetch(&shared, &fetcher, std::iter::once(first..end)).await {
                    Ok(()) => return flight.runs.clear(),
                    Err(error) => error,
                }
            }
            Ok(Ok(Waited::Free)) | Err(_) => return,
            Ok(Err(error)) => cache_error(&error),
        };
        flight.outcome = Some(error);
        flight.again = false;
        return;
    }
}

impl Shared {
    fn later(self: &Arc<Self>, class: Class, chunks: Range<u64>) {
        let shared = Arc::clone(self);
        drop(self.runtime.spawn(async move {
            tokio::time::sleep(BACKGROUND_PAUSE).await;
            let mut queue = shared.queue();
            queue.again(class, chunks);
            shared.pump(&mut queue);
        }));
    }

    /// Returns whether chunks may be copied from other images. A table is needed to identify them.
    fn adopts(&self) -> bool {
        self.blob.table().is_some()
    }

    /// Prefetches the part of the table that `chunk` needs, and the next part if `chunk` is close
    /// to it, so that chunks need not wait for the table.
    pub(super) fn warm_table(&self, chunk: u64) {
        let Some(table) = self.blob.table().cloned() else {
            return;
        };
        let geometry = self.blob.geometry();
        let arity = u64::from(geometry.chunk_size()) / 32;
        let ahead = chunk + arity / 4;
        let last = geometry.chunks() - 1;
        drop(self.runtime.spawn_blocking(move || {
            // A caller that needs the digest gets the error.
            let _warmed = table.digest(chunk.min(last));
            if ahead / arity != chunk / arity && ahead <= last {
                let _warmed = table.digest(ahead);
            }
        }));
    }
}

fn lost() -> RemoteError {
    RemoteError::Cache {
        reason: "a task of ours failed".to_owned(),
        is_full: false,
    }
}
