//! Fetches a whole image into a file.
//!
//! Many pieces are in flight at once. Each chunk is verified against the table before it is
//! written. Without a table, the whole image is compared with its digest at the end. The file gets
//! its name when it is complete and durable, never before. Chunks that an interrupted pull has left
//! in `OUTPUT.part` are not fetched again (`partial.rs`). Chunks of zeros become holes.

mod container;
mod partial;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forerun_cache::{CacheError, CachedBlob, Geometry, VerifiedTable};
use tokio::task::JoinSet;

use crate::error::cache_error;
use crate::fetch::chunk_table::TableSource;
use crate::fetch::counters::Counters;
use crate::fetch::{ChunkOutcome, Fetcher, Patience};
use crate::progress::Progress;
use crate::{Layout, RemoteError, Result, runtime};
pub(crate) use container::pull as pull_container;
use partial::Partial;

/// Bytes of one request, unless the part ends earlier.
const PIECE: u64 = 4 << 20;
/// Chunk size without a table: the bytes written at a time, and the most that an interrupted
/// request loses.
const WRITE: u32 = forerun_cache::DEFAULT_CHUNK;
/// Longest time between two reports of progress.
const REPORT: Duration = Duration::from_millis(200);
/// How often to fetch a table that does not match its root.
const TABLE_ATTEMPTS: u32 = 3;

#[derive(Clone, Debug)]
pub struct PullOptions {
    pub parallel: usize,
    /// Longest time between two usable chunks.
    pub timeout: Duration,
    /// Longest time without a byte before a request is repeated.
    pub stall: Duration,
    /// Number of consecutive retries without progress.
    pub retries: u32,
    pub overwrite: bool,
}

impl Default for PullOptions {
    fn default() -> Self {
        Self {
            parallel: 8,
            timeout: Duration::from_secs(30),
            stall: Duration::from_secs(10),
            retries: 5,
            overwrite: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    pub len: u64,
    /// Whether the bytes were compared with a digest.
    pub verified: bool,
    /// Whether the output is a container image in a directory with an OCI image layout.
    pub is_container: bool,
}

/// Fetches the image of `layout` into the file `output`, and reports progress after every piece.
/// Blocks, so it must not be called from a task of the runtime.
pub fn pull(
    layout: &Layout,
    output: &Path,
    options: &PullOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Pulled> {
    let failed = |error: &io::Error| RemoteError::Refused {
        place: output.display().to_string(),
        reason: error.to_string(),
    };
    if !options.overwrite && output.symlink_metadata().is_ok() {
        return Err(failed(&io::ErrorKind::AlreadyExists.into()));
    }
    let patience = Patience {
        timeout: options.timeout,
        stall: options.stall,
        retries: options.retries,
    };
    let counters = Arc::new(Counters::default());
    let table = table(layout, patience, &counters)?;
    let chunk_size = table
        .as_ref()
        .map_or(WRITE, |table| table.geometry().chunk_size());
    let partial = Partial::open(layout, output, chunk_size, table)?;
    let sink = Sink {
        place: output.display().to_string(),
        source: layout.place.clone(),
        blob: Arc::clone(partial.blob()),
    };
    let fetcher = Fetcher::new(layout.parts.clone(), chunk_size, patience, counters);
    let verified = fill(layout, fetcher, sink, options, progress);
    let verified = match verified {
        Ok(verified) => verified,
        Err(error) => {
            partial.leave();
            return Err(error);
        }
    };
    partial.publish(options.overwrite)?;
    Ok(Pulled {
        len: layout.len,
        verified,
        is_container: false,
    })
}

/// Fetches the missing chunks into `sink`. Returns whether the whole image was verified.
fn fill(
    layout: &Layout,
    fetcher: Fetcher,
    sink: Sink,
    options: &PullOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<bool> {
    let sink = Arc::new(sink);
    let blob = &sink.blob;
    let missing = blob.missing(0..blob.geometry().chunks());
    let missing = missing.map_err(|error| sink.failure(&error))?;
    if blob.local_bytes() > 0 {
        tracing::info!(bytes = blob.local_bytes(), "an earlier pull continues");
    }
    let pieces = if layout.is_sent_whole() {
        hull(&missing).into_iter().collect()
    } else {
        pieces(&missing, blob.geometry())
    };
    runtime::wait_for(transfer(
        &Arc::new(fetcher),
        &sink,
        pieces.into_iter(),
        options.parallel,
        progress,
    ))?;
    if blob.table().is_some() {
        return Ok(true);
    }
    let [part] = &*layout.parts else {
        return Ok(false);
    };
    let Some(expected) = part.blob.description.digest else {
        return Ok(false);
    };
    match blob.verify_whole(expected) {
        Ok(()) => Ok(true),
        Err(CacheError::WrongWhole { .. }) => Err(RemoteError::WrongDigest {
            place: layout.place.clone(),
            range: 0..layout.len,
            expected,
        }),
        Err(error) => Err(sink.failure(&error)),
    }
}

/// Creates the table of the image. Fetches nothing yet.
fn table(
    layout: &Layout,
    patience: Patience,
    counters: &Arc<Counters>,
) -> Result<Option<VerifiedTable>> {
    let Some(table) = &layout.table else {
        return Ok(None);
    };
    let refused = |reason: String| RemoteError::Refused {
        place: layout.place.clone(),
        reason,
    };
    let geometry =
        Geometry::new(layout.len, table.chunk_size).map_err(|error| refused(error.to_string()))?;
    let source = Arc::new(TableSource::new(table, patience, Arc::clone(counters)));
    VerifiedTable::new(source, geometry, table.root)
        .map(Some)
        .map_err(|error| refused(error.to_string()))
}

/// Returns the range from the start of the first run to the end of the last.
fn hull(runs: &[Range<u64>]) -> Option<Range<u64>> {
    let (first, last) = (runs.first()?, runs.last()?);
    Some(first.start..last.end)
}

/// Splits the missing runs into pieces, each for one request.
fn pieces(missing: &[Range<u64>], geometry: Geometry) -> Vec<Range<u64>> {
    let step = (PIECE / u64::from(geometry.chunk_size())).max(1);
    let mut pieces = Vec::new();
    for run in missing {
        let mut at = run.start;
        while at < run.end {
            // Pieces end at multiples of the step, so that every pull has the same pieces.
            let end = (at / step + 1) * step;
            let end = end.min(run.end);
            pieces.push(at..end);
            at = end;
        }
    }
    pieces
}

/// Fetches `pieces`, `parallel` at a time. The first error cancels the others.
async fn transfer(
    fetcher: &Arc<Fetcher>,
    sink: &Arc<Sink>,
    mut pieces: impl Iterator<Item = Range<u64>>,
    parallel: usize,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let mut progress = Progress {
        done: sink.blob.local_bytes(),
        total: sink.blob.geometry().len(),
        transferred: 0,
    };
    let mut counted = progress.done;
    report(progress);
    let mut tasks: JoinSet<Result<Moved>> = JoinSet::new();
    loop {
        while tasks.len() < parallel.max(1)
            && let Some(piece) = pieces.next()
        {
            tasks.spawn(fetch(Arc::clone(fetcher), Arc::clone(sink), piece));
        }
        let joined = tokio::time::timeout(REPORT, tasks.join_next()).await;
        let Ok(joined) = joined else {
            // Pieces of servers without range requests are long, so their progress is reported
            // while they arrive.
            progress.done = progress.done.max(sink.blob.local_bytes());
            report(progress);
            continue;
        };
        let Some(outcome) = joined else {
            return Ok(());
        };
        let moved =
            outcome.unwrap_or_else(|_| Err(sink.unwritable("fetching a piece broke off")))?;
        counted += moved.done;
        progress.done = progress.done.max(counted);
        progress.transferred += moved.transferred;
        report(progress);
    }
}

struct Moved {
    done: u64,
    transferred: u64,
}

/// Fetches the chunks of a piece that are neither zeros nor present elsewhere in the image.
async fn fetch(fetcher: Arc<Fetcher>, sink: Arc<Sink>, piece: Range<u64>) -> Result<Moved> {
    let of_task = (Arc::clone(&sink), piece.clone());
    let adopting = tokio::task::spawn_blocking(move || {
        let (sink, piece) = of_task;
        if sink.blob.table().is_some() {
            sink.blob.adopt(std::slice::from_ref(&piece))?;
        }
        sink.blob.missing(piece)
    });
    let missing = adopting
        .await
        .unwrap_or_else(|_| Ok(vec![piece.clone()]))
        .map_err(|error| sink.failure(&error))?;
    // Each request costs the whole file, so one request fetches all runs. The sink skips present
    // chunks.
    let missing = if fetcher.is_sent_whole() {
        hull(&missing).into_iter().collect()
    } else {
        missing
    };
    let geometry = sink.blob.geometry();
    let len = |bytes: Range<u64>| bytes.end - bytes.start;
    let mut transferred = 0_u64;
    for run in missing {
        let bytes = geometry.bytes_of(&run);
        transferred += len(bytes.clone());
        let take = |at, bytes| sink.take(at, bytes);
        match fetcher.fetch(bytes.clone(), take).await {
            Err(error @ RemoteError::NoRanges { .. }) => {
                let parts = fetcher.parts_of(&bytes);
                // The sink skips present chunks.
                if len(parts.clone()) > PIECE * 2 {
                    return Err(error);
                }
                fetcher.fetch(parts, take).await?;
            }
            outcome => outcome?,
        }
    }
    Ok(Moved {
        done: len(geometry.bytes_of(&piece)),
        transferred,
    })
}

struct Sink {
    /// The name of the output file.
    place: String,
    /// The address of the image.
    source: String,
    blob: Arc<CachedBlob>,
}

impl Sink {
    fn take(
        self: &Arc<Self>,
        at: u64,
        bytes: Vec<u8>,
    ) -> impl Future<Output = ChunkOutcome> + use<> {
        let sink = Arc::clone(self);
        async move {
            let failed = sink.unwritable("writing a chunk broke off");
            tokio::task::spawn_blocking(move || sink.put(at, &bytes))
                .await
                .unwrap_or(ChunkOutcome::Failed(failed))
        }
    }

    fn unwritable(&self, reason: &str) -> RemoteError {
        RemoteError::Refused {
            place: self.place.clone(),
            reason: reason.to_string(),
        }
    }

    /// Converts an error of the output file or of the table, which often could not be fetched.
    fn failure(&self, error: &CacheError) -> RemoteError {
        match (cache_error(error), error) {
            (RemoteError::Cache { reason, .. }, CacheError::Io { .. }) => self.unwritable(&reason),
            (RemoteError::Cache { reason, .. }, _) => RemoteError::Refused {
                place: self.source.clone(),
                reason,
            },
            (error, _) => error,
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) -> ChunkOutcome {
        let first = self.blob.geometry().chunk_at(at);
        match keep(&self.blob, first, bytes) {
            Ok(()) => ChunkOutcome::Kept,
            Err(CacheError::WrongDigest { expected, .. }) => ChunkOutcome::Wrong(expected),
            Err(error) => ChunkOutcome::Failed(self.failure(&error)),
        }
    }
}

/// Stores chunks. A wrong table is read again, from another mirror if there is one.
fn keep(blob: &CachedBlob, first: u64, bytes: &[u8]) -> std::result::Result<(), CacheError> {
    for _ in 1..TABLE_ATTEMPTS {
        match blob.store(first, bytes) {
            Err(CacheError::WrongTable { .. }) => (),
            outcome => return outcome,
        }
    }
    blob.store(first, bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::single_range_in_vec_init)]
    use super::*;

    #[test]
    fn pieces_cover_what_is_missing_and_no_more() {
        let geometry = Geometry::new(20 << 20, 1 << 20).unwrap();
        assert_eq!(pieces(&[], geometry), []);
        assert_eq!(pieces(&[0..20], geometry).len(), 5);
        let some = pieces(&[1..2, 3..9, 19..20], geometry);
        assert_eq!(some, [1..2, 3..4, 4..8, 8..9, 19..20]);
    }
}
