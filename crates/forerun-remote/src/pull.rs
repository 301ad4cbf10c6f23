//! Fetching all of an image into a file.
//!
//! Many pieces at once, each chunk verified before it is written: against the table where the image
//! has one, else all of it against its digest at the end. The file appears under its name when it is
//! complete and durable, never before. Chunks of zeros are left as holes.

use std::fs::{File, Permissions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forerun_cache::{CacheError, Digest, Geometry, VerifiedTable};
use forerun_io::ReadAt as _;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;
use tokio::task::JoinSet;

use crate::fetch::{Fetcher, Patience, Taken};
use crate::progress::Progress;
use crate::scheduler::cache_error;
use crate::stats::Counters;
use crate::table::TableSource;
use crate::{Layout, RemoteError, Result, runtime};

/// Bytes of one request, unless a part ends before.
const PIECE: u64 = 4 << 20;
/// What is written at once where there is no table.
const WRITE: u32 = 1 << 20;
/// How often a table that does not lead to its root is fetched.
const TABLE_ATTEMPTS: u32 = 3;

/// How an image is fetched.
#[derive(Clone, Debug)]
pub struct PullOptions {
    /// Requests in flight.
    pub parallel: usize,
    /// Longest time without anything that can be kept.
    pub timeout: Duration,
    /// Longest time without a byte before a request is made again.
    pub stall: Duration,
    /// How often in a row a request is made again without getting anything.
    pub retries: u32,
    /// Whether a file of that name is replaced.
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

/// What was fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// Length of the file.
    pub len: u64,
    /// Whether its bytes were compared with a digest.
    pub verified: bool,
}

/// Fetches the image of `layout` into the file `output`, and says how far it is after every piece.
/// Blocks; not to be called from a task of the runtime.
///
/// # Errors
/// Of the requests, once no server and no patience is left; [`RemoteError::WrongDigest`] for another
/// image than was named; [`RemoteError::Refused`] with the file's name for one that cannot be written.
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
    let dir = match output.parent() {
        Some(dir) if dir != Path::new("") => dir,
        _ => Path::new("."),
    };
    if !options.overwrite && output.symlink_metadata().is_ok() {
        return Err(failed(&io::ErrorKind::AlreadyExists.into()));
    }
    let temporary = temporary(dir, layout.len).map_err(|error| failed(&error))?;
    let file = temporary
        .as_file()
        .try_clone()
        .map_err(|error| failed(&error))?;
    let sink = Sink {
        place: output.display().to_string(),
        source: layout.place.clone(),
        file,
        table: None,
        chunk_size: u64::from(WRITE),
    };
    let verified = fill(layout, sink, options, progress)?;
    let publish = || {
        temporary.as_file().sync_all()?;
        match options.overwrite {
            true => temporary.persist(output)?,
            false => temporary.persist_noclobber(output)?,
        };
        File::open(dir)?.sync_all()
    };
    publish().map_err(|error| failed(&error))?;
    Ok(Pulled {
        len: layout.len,
        verified,
    })
}

/// A file of `len` holes in `dir`, which vanishes unless it is given its name.
fn temporary(dir: &Path, len: u64) -> io::Result<NamedTempFile> {
    let temporary = tempfile::Builder::new()
        .prefix(".forerun-")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(dir)?;
    temporary.as_file().set_len(len)?;
    Ok(temporary)
}

/// Fetches everything into `sink`; gives whether it was verified.
fn fill(
    layout: &Layout,
    mut sink: Sink,
    options: &PullOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<bool> {
    let patience = Patience {
        timeout: options.timeout,
        stall: options.stall,
        retries: options.retries,
    };
    let counters = Arc::new(Counters::default());
    let chunk_size = layout
        .table
        .as_ref()
        .map_or(WRITE, |table| table.chunk_size);
    sink.table = table(layout, patience, &counters)?;
    sink.chunk_size = u64::from(chunk_size);
    let sink = Arc::new(sink);
    let parts = layout.parts.clone();
    let fetcher = Arc::new(Fetcher::new(parts, chunk_size, patience, counters));
    let pieces = pieces(layout.len, u64::from(chunk_size));
    runtime::wait_for(transfer(
        &fetcher,
        &sink,
        pieces,
        options.parallel,
        progress,
    ))?;
    if sink.table.is_some() {
        return Ok(true);
    }
    let [part] = &*layout.parts else {
        return Ok(false);
    };
    let Some(expected) = part.blob.description.digest else {
        return Ok(false);
    };
    let found = digest_of(&sink.file).map_err(|error| sink.unwritable(&error.to_string()))?;
    match found == expected {
        true => Ok(true),
        false => Err(RemoteError::WrongDigest {
            place: layout.place.clone(),
            range: 0..layout.len,
            expected,
        }),
    }
}

/// The table of the image, of which nothing is fetched yet.
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

/// The ranges that are fetched by one request each, whole chunks.
fn pieces(len: u64, chunk_size: u64) -> impl Iterator<Item = Range<u64>> {
    let step = PIECE.max(chunk_size);
    (0..len.div_ceil(step)).map(move |index| {
        let start = index.saturating_mul(step);
        start..start.saturating_add(step).min(len)
    })
}

/// Fetches `pieces`, `parallel` at a time. The first error ends the others.
async fn transfer(
    fetcher: &Arc<Fetcher>,
    sink: &Arc<Sink>,
    pieces: impl Iterator<Item = Range<u64>>,
    parallel: usize,
    report: &mut dyn FnMut(Progress),
) -> Result<()> {
    let mut progress = Progress {
        total: sink.file.metadata().map_or(0, |metadata| metadata.len()),
        ..Progress::default()
    };
    let mut pieces = pieces.fuse();
    let mut tasks: JoinSet<Result<u64>> = JoinSet::new();
    loop {
        while tasks.len() < parallel.max(1)
            && let Some(piece) = pieces.next()
        {
            let (fetcher, sink) = (Arc::clone(fetcher), Arc::clone(sink));
            tasks.spawn(async move {
                let len = piece.end.saturating_sub(piece.start);
                fetcher
                    .fetch(piece, |at, bytes| sink.take(at, bytes))
                    .await?;
                Ok(len)
            });
        }
        let Some(outcome) = tasks.join_next().await else {
            return Ok(());
        };
        let len = outcome.unwrap_or_else(|_| Err(sink.unwritable("fetching a piece broke off")))?;
        progress.done = progress.done.saturating_add(len);
        progress.transferred = progress.done;
        report(progress);
    }
}

/// Where chunks go.
struct Sink {
    /// The name of the file that it becomes.
    place: String,
    /// Where the image comes from.
    source: String,
    file: File,
    table: Option<VerifiedTable>,
    chunk_size: u64,
}

impl Sink {
    fn take(self: &Arc<Self>, at: u64, bytes: Vec<u8>) -> impl Future<Output = Taken> + use<> {
        let sink = Arc::clone(self);
        async move {
            let failed = sink.unwritable("writing a chunk broke off");
            tokio::task::spawn_blocking(move || sink.put(at, &bytes))
                .await
                .unwrap_or(Taken::Failed(failed))
        }
    }

    fn unwritable(&self, reason: &str) -> RemoteError {
        RemoteError::Refused {
            place: self.place.clone(),
            reason: reason.to_string(),
        }
    }

    /// What is wrong with the table: often that it could not be fetched.
    fn unverifiable(&self, error: &CacheError) -> RemoteError {
        match cache_error(error) {
            RemoteError::Cache { reason } => RemoteError::Refused {
                place: self.source.clone(),
                reason,
            },
            error => error,
        }
    }

    fn put(&self, at: u64, bytes: &[u8]) -> Taken {
        if let Some(table) = &self.table {
            match verify(table, at / self.chunk_size, bytes) {
                Ok(()) => (),
                Err(CacheError::WrongDigest { expected, .. }) => return Taken::Wrong(expected),
                Err(error) => return Taken::Failed(self.unverifiable(&error)),
            }
        }
        // The file has been there as one hole from the start.
        if bytes.iter().all(|byte| *byte == 0) {
            return Taken::Kept;
        }
        match self.file.write_all_at(bytes, at) {
            Ok(()) => Taken::Kept,
            Err(error) => Taken::Failed(self.unwritable(&error.to_string())),
        }
    }
}

/// Whether `bytes` are those of `chunk`; a table that is wrong is read again, from elsewhere if there
/// is an elsewhere.
fn verify(table: &VerifiedTable, chunk: u64, bytes: &[u8]) -> std::result::Result<(), CacheError> {
    for _ in 1..TABLE_ATTEMPTS {
        match table.verify(chunk, bytes) {
            Err(CacheError::WrongTable { .. }) => (),
            outcome => return outcome,
        }
    }
    table.verify(chunk, bytes)
}

/// The digest of all of `file`.
fn digest_of(file: &File) -> io::Result<Digest> {
    let source = forerun_io::FileSource::from_file(file.try_clone()?)?;
    let mut hasher = Sha256::new();
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < source.len() {
        let len = u64::from(WRITE).min(source.len() - at);
        buffer.resize(forerun_io::saturating_usize(len), 0);
        source.read_exact_at(at, &mut buffer)?;
        hasher.update(&buffer);
        at += len;
    }
    Ok(Digest(hasher.finalize().into()))
}
