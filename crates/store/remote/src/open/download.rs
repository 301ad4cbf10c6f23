//! Downloads an image into the cache if its server does not support range requests.
//!
//! The download happens once, when the image is opened, in one request for the whole file.
//! Afterwards the image is like any other complete image in the cache. Each chunk counts as soon as
//! it is stored, so an interrupted download leaves some chunks and is never mistaken for a complete
//! image. If several processes open the same image at once, one claims all missing chunks and
//! downloads them while the others wait.

use std::ops::Range;
use std::sync::Arc;

use forerun_cache::{Cache, CacheError, CachedBlob, Waited};

use crate::error::cache_error;
use crate::fetch::{ChunkOutcome, Fetcher};
use crate::image::RemoteImage;
use crate::{Layout, Progress, RemoteError, RemoteOptions, Result, runtime};

/// Downloads the missing chunks of the image of `layout`. Fails with [`RemoteError::TooLong`] if
/// the image is longer than the cache may be.
pub fn download(
    cache: &Cache,
    layout: &Layout,
    image: &RemoteImage,
    options: &RemoteOptions,
) -> Result<()> {
    let blob = &image.blob;
    if blob.is_stored_whole() {
        return Ok(());
    }
    let all = 0..blob.geometry().chunks();
    let failed = |error: &CacheError| cache_error(error);
    let mut begun = false;
    loop {
        let missing = blob.missing(all.clone()).map_err(|error| failed(&error))?;
        let Some(first) = missing.first().map(|run| run.start) else {
            return Ok(());
        };
        if !std::mem::replace(&mut begun, true) {
            fits(cache, layout)?;
            options.download.call(&layout.place, progress(blob));
        }
        let claim = blob.claim(&missing).map_err(|error| failed(&error))?;
        let busy = claim.busy().first().map(|run| run.start);
        let (Some(begin), Some(end)) = (
            claim.mine().first().map(|run| run.start),
            claim.mine().last().map(|run| run.end),
        ) else {
            let chunk = busy.unwrap_or(first);
            let waited = blob.wait(chunk, options.timeout);
            if waited.map_err(|error| failed(&error))? == Waited::TimedOut {
                return Err(RemoteError::Timeout {
                    place: format!("{}, from another process", layout.place),
                    seconds: options.timeout.as_secs_f32(),
                });
            }
            options.download.call(&layout.place, progress(blob));
            continue;
        };
        fetch(layout, image, options, begin..end)?;
    }
}

fn fits(cache: &Cache, layout: &Layout) -> Result<()> {
    let capacity = cache.capacity().map_err(|error| cache_error(&error))?;
    if layout.len <= capacity {
        return Ok(());
    }
    Err(RemoteError::TooLong {
        place: layout.place.clone(),
        len: layout.len,
        capacity,
    })
}

/// Fetches and stores `chunks`, in one request unless it fails.
fn fetch(
    layout: &Layout,
    image: &RemoteImage,
    options: &RemoteOptions,
    chunks: Range<u64>,
) -> Result<()> {
    let blob = &image.blob;
    let geometry = blob.geometry();
    let counters = Arc::clone(&image.counters);
    let parts = layout.parts.clone();
    let fetcher = Fetcher::new(parts, geometry.chunk_size(), image.patience, counters);
    let take = |at: u64, bytes: Vec<u8>| {
        let blob = Arc::clone(blob);
        async move {
            let to = Arc::clone(&blob);
            let store = move || to.store(to.geometry().chunk_at(at), &bytes);
            let outcome = match tokio::task::spawn_blocking(store).await {
                Ok(Ok(())) => ChunkOutcome::Kept,
                Ok(Err(error)) => ChunkOutcome::Failed(cache_error(&error)),
                Err(_panicked) => ChunkOutcome::Failed(RemoteError::Cache {
                    reason: "storing a chunk broke off".to_owned(),
                    is_full: false,
                }),
            };
            options.download.call(&layout.place, progress(&blob));
            outcome
        }
    };
    runtime::wait_for(fetcher.fetch(geometry.bytes_of(&chunks), take))
}

fn progress(blob: &CachedBlob) -> Progress {
    let done = blob.local_bytes();
    Progress {
        done,
        total: blob.geometry().len(),
        transferred: done,
    }
}
