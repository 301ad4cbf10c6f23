//! A remote image as a source.

pub mod access_list;
mod partial;
mod whole;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forerun_cache::{AccessList, CachedBlob, ReadData};
use forerun_io::{FileSource, Observer, Pattern, ReadAt, past_end, u64_from, wait};

use crate::fetch::counters::Counters;
use crate::fetch::failed_reads::Outage;
use crate::fetch::scheduler::{Pending, Scheduler};
use crate::fetch::tuning::REPEATED_WAIT;
use crate::fetch::{Fetcher, Patience};
use crate::{
    FromMemory, Identity, LayerContents, Layout, Readahead, Reference, RemoteError, RemoteOptions,
    RemoteStatus, Result, resolve,
};

use access_list::Recorder;

/// Readahead window for requests that wait for the whole window. A longer one would delay readers
/// for bytes they may never need.
const SYNC_WINDOW: u64 = 1 << 20;
/// Pause before failed chunks are requested again.
const PAUSE: Duration = Duration::from_millis(100);

/// An image on servers. The cache has a growing part of it.
///
/// A read of present chunks costs a bitmap lookup and one `pread`. A read of missing chunks waits
/// until they have arrived and were verified, at most for the timeout.
pub struct RemoteImage {
    /// The name by which to resolve the image again. `None` for an origin that the caller passed
    /// in.
    pub(crate) reference: Option<Reference>,
    pub(crate) place: String,
    pub(crate) identity: Identity,
    pub(crate) format: Option<String>,
    pub(crate) contents: Option<LayerContents>,
    /// The index of the archive, from a file that the caller named.
    pub(crate) archive: Option<Arc<[u8]>>,
    /// The SOCI table of contents: either the one that `contents` names, or one whose digest
    /// is in no manifest.
    pub(crate) soci: Option<Arc<Self>>,
    pub(crate) blob: Arc<CachedBlob>,
    pub(crate) scheduler: Scheduler,
    pub(crate) counters: Arc<Counters>,
    pub(crate) recorder: Option<Recorder>,
    pub(crate) patience: Patience,
    pub(crate) readahead: Readahead,
    /// The data file of the cache, for hints to the kernel.
    pub(crate) local: FileSource,
    pub(crate) memory: Option<FromMemory>,
    pub(crate) outage: Outage,
}

impl std::fmt::Debug for RemoteImage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteImage")
            .field("place", &self.place)
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

impl RemoteImage {
    /// Returns the address of the image, without credentials.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    #[must_use]
    pub fn format(&self) -> Option<&str> {
        self.format.as_deref()
    }

    /// Returns the facts that the cache remembered, if the image was opened from them because its
    /// server did not answer or was not contacted.
    #[must_use]
    pub const fn from_memory(&self) -> Option<&FromMemory> {
        self.memory.as_ref()
    }

    #[must_use]
    pub const fn blob(&self) -> &Arc<CachedBlob> {
        &self.blob
    }

    /// Reports each later request to `observer`. Only the first call has an effect.
    pub fn observe(&self, observer: Arc<Observer>) {
        self.counters.set_observer(observer);
    }

    #[must_use]
    pub fn status(&self) -> RemoteStatus {
        let mut status = RemoteStatus {
            place: self.place.clone(),
            len: self.blob.geometry().len(),
            local_bytes: self.blob.local_bytes(),
            complete: self.blob.is_complete(),
            verified: self.blob.is_verified(),
            altered_chunks: self.blob.altered_chunks(),
            verified_by: self.verified_by(),
            answered: self.memory.as_ref().map(|memory| memory.answered),
            ..RemoteStatus::default()
        };
        self.counters.fill(&mut status);
        self.scheduler.fill(&mut status);
        status
    }

    pub fn prefetch_all(&self) {
        self.scheduler.background();
    }

    /// Verifies in the background the cached chunks that this process has not used yet, and drops
    /// altered ones. Releases the servers if the image is complete and right.
    pub fn check_rest(&self) {
        self.scheduler.check_rest();
    }

    /// Fetches the chunks of an access list in the background, in the order of the list.
    pub fn prefetch(&self, list: &AccessList) {
        self.scheduler.listed(list.runs_for(&self.blob.geometry()));
    }

    /// Returns the chunks read so far, if they are recorded.
    #[must_use]
    pub fn accesses(&self) -> Option<AccessList> {
        self.recorder.as_ref().map(Recorder::list)
    }

    /// Starts recording, if the options ask for it. Called after a layer was opened, because
    /// opening reads more than users of the layer need.
    pub fn begin_recording(&self) {
        if let Some(recorder) = &self.recorder {
            recorder.begin();
        }
    }

    /// Writes the chunks read so far, of all layers of the image, to the file in the options.
    /// Dropping the last layer also does so.
    pub fn save_accesses(&self) -> io::Result<()> {
        self.recorder.as_ref().map_or(Ok(()), Recorder::save)
    }

    /// Reads credentials again and forgets the failures of servers.
    pub fn reload(&self) {
        self.outage.clear();
        self.scheduler.reload();
    }

    /// Resolves the image again with the mirrors and credentials of `options`, and fetches from
    /// these servers from now on. Chunk size, cache and limits do not change. Does nothing offline,
    /// or for an origin that the caller passed in.
    ///
    /// Fails with [`RemoteError::Changed`] if the servers have another version now. After an error,
    /// the old servers stay in use.
    pub fn reopen(&self, options: &RemoteOptions) -> Result<()> {
        let Some(reference) = self.reference.as_ref().filter(|_| !options.offline) else {
            return Ok(());
        };
        let resolved = match resolve::resolved(reference, options) {
            // A length cannot be compared, but the whole file was fetched when it was opened.
            Err(RemoteError::NoLength { place, version }) => {
                return match &self.identity {
                    Identity::Version { version: known, .. }
                        if version.as_ref().is_some_and(|version| version != known) =>
                    {
                        Err(RemoteError::Changed { place })
                    }
                    _ => Ok(()),
                };
            }
            outcome => outcome?,
        };
        let layout: Layout = resolved.layout;
        let same = match (&self.identity, &layout.identity) {
            // Another mirror may have answered first and may give the same version another name.
            (
                Identity::Version { url, version },
                Identity::Version {
                    url: other,
                    version: new,
                },
            ) => url != other || version == new,
            (known, new) => known == new,
        };
        if !same || layout.len != self.blob.geometry().len() {
            return Err(RemoteError::Changed {
                place: layout.place,
            });
        }
        let chunk_len = self.blob.geometry().chunk_size();
        let counters = Arc::clone(&self.counters);
        let fetcher = Fetcher::new(layout.parts, chunk_len, self.patience, counters);
        self.scheduler.replace(fetcher, resolved.registry);
        Ok(())
    }

    fn fetch(&self, bytes: &Range<u64>, out: &mut [u8], is_step: bool) -> io::Result<()> {
        let geometry = self.blob.geometry();
        let start = Instant::now();
        let wanted = match self.readahead {
            Readahead::Async | Readahead::Off => geometry.chunks_of(bytes),
            Readahead::Sync => {
                let end = bytes.end.max(bytes.start.saturating_add(SYNC_WINDOW));
                geometry.chunks_of(&(bytes.start..end))
            }
        };
        let mut deadline = self.deadline();
        let mut pause = PAUSE;
        let mut touched = self.readahead != Readahead::Async || !is_step;
        loop {
            let missing = self.blob.missing(wanted.clone())?;
            if missing.is_empty() {
                if self.blob.read_if_present(bytes.start, out)? {
                    break;
                }
                // A chunk of the cache was altered and has been dropped.
                if Instant::now() >= deadline {
                    return Err(io::Error::other("the cache repeatedly lost fetched chunks"));
                }
                continue;
            }
            let first = missing.first().map_or(wanted.start, |run| run.start);
            if self.outage.has_failed(first) {
                deadline = deadline.min(Instant::now() + REPEATED_WAIT);
            }
            let pending = self.scheduler.demand(&missing).map_err(failed)?;
            // Demand comes first in the queue. Queueing readahead before the wait makes both
            // overlap.
            if !std::mem::replace(&mut touched, true) {
                self.scheduler.touch(bytes);
            }
            wait::allowed()?;
            let waited = self.wait_for(pending, &mut deadline)?;
            let left = deadline.saturating_duration_since(Instant::now());
            let error = match waited {
                Waited::Came => continue,
                Waited::Failed(error) if error.is_transient() && !left.is_zero() => None,
                Waited::Failed(error) => Some(failed(error)),
                Waited::Late => Some(self.late()),
            };
            if let Some(error) = error {
                if left.is_zero() {
                    self.outage.record(first..wanted.end);
                }
                return Err(error);
            }
            sleep(pause.min(left))?;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
        self.counters.waited(start.elapsed());
        Ok(())
    }

    /// Waits for chunks until one fails. Each chunk that arrives extends the deadline. Fails if
    /// this thread's request was cancelled.
    fn wait_for(&self, pending: Vec<Arc<Pending>>, deadline: &mut Instant) -> io::Result<Waited> {
        for chunk in pending {
            let settled = loop {
                let slice = Instant::now().checked_add(wait::SLICE);
                let until = slice.map_or(*deadline, |slice| slice.min(*deadline));
                if let Some(settled) = chunk.wait(until) {
                    break settled;
                }
                if until == *deadline {
                    return Ok(Waited::Late);
                }
                wait::allowed()?;
            };
            match settled {
                Ok(()) => {
                    self.outage.clear();
                    *deadline = self.deadline();
                }
                Err(reason) => return Ok(Waited::Failed(reason)),
            }
        }
        Ok(Waited::Came)
    }

    fn deadline(&self) -> Instant {
        let now = Instant::now();
        now.checked_add(self.patience.timeout).unwrap_or(now)
    }

    /// Returns the error of a reader after its timeout, with the last error of the fetches.
    fn late(&self) -> io::Error {
        let seconds = self.patience.timeout.as_secs_f32();
        let place = self.place.clone();
        let error = match self.status().last_error {
            Some(last) => RemoteError::Network {
                place,
                reason: format!("the server sent nothing for {seconds} s; last error: {last}"),
            },
            None => RemoteError::Timeout { place, seconds },
        };
        io::Error::new(io::ErrorKind::TimedOut, error)
    }
}

enum Waited {
    Came,
    Failed(RemoteError),
    Late,
}

/// Sleeps. Fails as soon as this thread's request is cancelled.
fn sleep(mut left: Duration) -> io::Result<()> {
    while !left.is_zero() {
        wait::allowed()?;
        let slice = left.min(wait::SLICE);
        std::thread::sleep(slice);
        left -= slice;
    }
    Ok(())
}

fn failed(error: RemoteError) -> io::Error {
    let kind = match error {
        RemoteError::Timeout { .. } => io::ErrorKind::TimedOut,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

impl ReadAt for RemoteImage {
    fn len(&self) -> u64 {
        self.blob.geometry().len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_by(self.blob.data_file(), offset, out, true)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        if !self.blob.is_complete() {
            let is_step = pattern != Pattern::Single;
            return self.read_by(self.blob.data_file(), offset, out, is_step);
        }
        let local = &self.local;
        self.read_by(&AheadReads { local, pattern }, offset, out, true)
    }

    fn done_with(&self, range: Range<u64>) {
        self.local.done_with(range);
    }

    fn distrust(&self, range: Range<u64>) {
        self.fetch_again(&range);
    }

    fn is_slow(&self) -> bool {
        !self.blob.is_complete()
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        if self.blob.is_complete() {
            return self.local.will_need(range);
        }
        if self.readahead != Readahead::Sync {
            self.scheduler.hint(self.blob.geometry().chunks_of(&range));
        }
        true
    }
}

/// Readahead of the data file, like that of a local image.
struct AheadReads<'a> {
    local: &'a FileSource,
    pattern: Pattern,
}

impl ReadData for AheadReads<'_> {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.local.read_ahead_at(offset, out, self.pattern)
    }
}

impl RemoteImage {
    /// Reads, and fetches missing chunks. If `is_step`, the read may belong to a sequential reader
    /// and triggers readahead.
    fn read_by(
        &self,
        reader: &dyn ReadData,
        offset: u64,
        out: &mut [u8],
        is_step: bool,
    ) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        let bytes = offset..offset + u64_from(out.len());
        if bytes.is_empty() {
            return Ok(());
        }
        if let Some(recorder) = &self.recorder {
            recorder.touch(&bytes);
        }
        if !self.blob.read_if_present_by(reader, offset, out)? {
            return self.fetch(&bytes, out, is_step);
        }
        if is_step {
            self.found_here(&bytes);
        } else {
            self.scheduler.let_go_if_checked();
        }
        Ok(())
    }

    /// Completes a read that found all its bytes in the cache. Reads ahead if it passed a mark, and
    /// releases the network if nothing remains to be fetched.
    fn found_here(&self, bytes: &Range<u64>) {
        self.scheduler.let_go_if_checked();
        if !self.blob.is_complete() {
            let chunks = self.blob.geometry().chunks_of(bytes);
            if self.scheduler.is_marked(&chunks) {
                self.scheduler.touch(bytes);
            }
        }
    }
}

impl Drop for RemoteImage {
    fn drop(&mut self) {
        self.blob.remove_temporary();
    }
}
