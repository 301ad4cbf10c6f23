//! Files of unknown length, which are fetched whole into a temporary file.
//!
//! The temporary file has no name, so a killed process leaves none behind. It is read once instead
//! of the server. Then the bytes are in the cache or in the output, and the temporary file is
//! closed. Chunks that are evicted later are requested from the server again.
//!
//! Chunked and HTTP/2 answers reveal that they ended early. An HTTP/1.0 answer that ends with its
//! connection does not.

use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use forerun_cache::Cache;
use forerun_io::{u64_from, usize_from};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};

use crate::error::cache_error;
use crate::http::retry::{Retries, retry};
use crate::resolve::{PAUSE, patient};
use crate::{Body, Description, Origin, Progress, RemoteError, RemoteOptions, Result, runtime};

/// Bytes read from the temporary file at a time.
const PIECE: u64 = 256 << 10;

/// A directory for a temporary file, and its maximum length.
#[derive(Clone, Debug)]
pub struct Room {
    dir: PathBuf,
    capacity: u64,
}

impl Room {
    /// Returns the directory and limit for a file that will go into the cache.
    pub fn in_cache(cache: &Cache) -> Result<Self> {
        let capacity = cache.capacity().map_err(|error| cache_error(&error))?;
        Self::within(&cache.layout().blobs(), capacity)
    }

    /// Returns the directory and limit for a file that will become `output`.
    pub fn beside(output: &Path) -> Result<Self> {
        let parent = output.parent().filter(|dir| *dir != Path::new(""));
        Self::within(parent.unwrap_or(Path::new(".")), u64::MAX)
    }

    /// Limits a file in `dir` to half of the free space, because the bytes are stored a second
    /// time.
    fn within(dir: &Path, capacity: u64) -> Result<Self> {
        let disk = rustix::fs::statvfs(dir).map_err(|error| unusable(dir, &error.to_string()))?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(Self {
            dir: dir.to_path_buf(),
            capacity: capacity.min(free / 2),
        })
    }
}

fn unusable(dir: &Path, reason: &str) -> RemoteError {
    RemoteError::Refused {
        place: dir.display().to_string(),
        reason: reason.to_owned(),
    }
}

/// A server, and the file that it has sent.
pub struct Spooled {
    origin: Arc<dyn Origin>,
    /// `None` once the whole file was read.
    file: Arc<Mutex<Option<Arc<File>>>>,
    len: u64,
}

impl std::fmt::Debug for Spooled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.origin.fmt(f)
    }
}

impl Spooled {
    /// Fetches the file of `origin`, in the version that its server gave, into `room`. Retries
    /// within the limits of `options`, each time from the first byte. The total time is not
    /// limited. Fails with [`RemoteError::TooMuch`] if the file is too long.
    pub fn fetch(
        origin: Arc<dyn Origin>,
        version: Option<&str>,
        room: &Room,
        options: &RemoteOptions,
    ) -> Result<Self> {
        report(&*origin, options, 0);
        let retries = Retries {
            attempts: options.retries.saturating_add(1),
            pause: PAUSE,
            within: Duration::MAX,
        };
        let fetch = || once(&*origin, version, room, options);
        let fetched = runtime::wait_for(retry(retries, fetch));
        let (file, len) = fetched?;
        Ok(Self {
            origin,
            file: Arc::new(Mutex::new(Some(Arc::new(file)))),
            len,
        })
    }

    #[must_use]
    pub const fn len(&self) -> u64 {
        self.len
    }
}

fn report(origin: &dyn Origin, options: &RemoteOptions, done: u64) {
    let progress = Progress {
        done,
        total: 0,
        transferred: done,
    };
    options.download.call(origin.place(), progress);
}

/// Sends one request for the whole file. Must be called on a thread that may block.
async fn once(
    origin: &dyn Origin,
    version: Option<&str>,
    room: &Room,
    options: &RemoteOptions,
) -> Result<(File, u64)> {
    let full = |error: std::io::Error| unusable(&room.dir, &error.to_string());
    let mut file = tempfile::tempfile_in(&room.dir).map_err(full)?;
    let mut len = 0_u64;
    let mut body = patient(origin, options, origin.fetch_whole(version)).await??;
    while let Some(piece) = patient(origin, options, body.next()).await? {
        let piece = piece?;
        len += u64_from(piece.len());
        if len > room.capacity {
            return Err(RemoteError::TooMuch {
                place: origin.place().to_owned(),
                capacity: room.capacity,
            });
        }
        file.write_all(&piece).map_err(full)?;
        report(origin, options, len);
    }
    Ok((file, len))
}

impl Origin for Spooled {
    fn place(&self) -> &str {
        self.origin.place()
    }

    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        self.origin.describe()
    }

    fn fetch(&self, range: Range<u64>, description: &Description) -> BoxFuture<'_, Result<Body>> {
        let kept = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = kept.clone().filter(|_| range.end <= self.len) else {
            drop(kept);
            return self.origin.fetch(range, description);
        };
        drop(kept);
        let (all, len) = (Arc::clone(&self.file), self.len);
        let body = stream::unfold(Some(range), move |left| {
            let (file, all) = (Arc::clone(&file), Arc::clone(&all));
            async move {
                let left = left.filter(|left| !left.is_empty())?;
                let end = left.end.min(left.start + PIECE);
                let piece = piece(file, left.start..end).await;
                if piece.is_ok() && end == len {
                    *all.lock().unwrap_or_else(PoisonError::into_inner) = None;
                }
                let rest = piece.is_ok().then_some(end..left.end);
                Some((piece, rest))
            }
        });
        std::future::ready(Ok(body.boxed())).boxed()
    }

    fn reload(&self) {
        self.origin.reload();
    }
}

async fn piece(file: Arc<File>, range: Range<u64>) -> Result<Bytes> {
    let read = tokio::task::spawn_blocking(move || {
        let mut out = vec![0; usize_from(range.end - range.start)];
        file.read_exact_at(&mut out, range.start)?;
        Ok::<_, std::io::Error>(Bytes::from(out))
    });
    let failed = |reason: String| RemoteError::Cache {
        reason,
        is_full: false,
    };
    match read.await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_panicked) => Err(failed("reading a temporary file broke off".to_owned())),
    }
}
