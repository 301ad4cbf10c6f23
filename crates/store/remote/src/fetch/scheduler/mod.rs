//! The fetch scheduler: demand before readahead before background, many requests at once.
//!
//! Readers wait for chunks, not for requests: a reader continues as soon as the bytes of its chunk
//! have arrived and were verified. No reader waits for readahead. One lock guards the queue; reads
//! of present chunks never take it.

mod marks;
mod pending;
mod queue;
mod request;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forerun_cache::{CachedBlob, Digest};
use forerun_io::{SequentialStreams, Unpoisoned, WindowRules};
use tokio::runtime::Handle;

use crate::error::cache_error;
use crate::fetch::Fetcher;
use crate::fetch::chunk_table::TableSource;
use crate::fetch::counters::Counters;
use crate::fetch::layer_digests::LayerTable;
use crate::fetch::tuning::{ANEW, FIRST_WINDOW, STREAMS};
use crate::registry::Registry;
use crate::status::RemoteStatus;
use crate::{RemoteError, Result, runtime};

use marks::Marks;
pub use pending::Pending;
use queue::{HINTED, Queue, View};

pub struct Work {
    pub place: String,
    /// The cached blob that receives the chunks.
    pub blob: Arc<CachedBlob>,
    pub fetcher: Fetcher,
    /// The source of table blocks that the cache does not have.
    pub table: Option<Arc<TableSource>>,
    /// The digest of the whole image, if it is known and there is no table.
    pub digest: Option<Digest>,
    /// Whether the image is a layer. Until a layer is complete, readers get only bytes that a table
    /// verifies.
    pub is_layer: bool,
    /// Where to store the chunk digests once the whole image was verified.
    pub keep: Option<LayerTable>,
    /// While this many requests are in flight, only requests with waiting readers start.
    pub requests: usize,
    /// Longest readahead window of a reader, in bytes.
    pub window: u64,
    /// How long another process may hold the claim of a chunk before this process fetches the chunk
    /// too.
    pub patience: Duration,
    pub counters: Arc<Counters>,
    pub registry: Option<Arc<Registry>>,
}

/// Returns the readahead rules for chunks of `chunk` bytes and windows of at most `max` bytes.
const fn rules(chunk: u64, max: u64) -> WindowRules {
    WindowRules {
        first: FIRST_WINDOW,
        max,
        // Reads of one reader's threads arrive slightly out of order.
        slack: chunk,
        proof: 0,
        lead: 0,
        align: 1,
        // The scheduler sees only reads that miss, so a single read proves nothing yet.
        trusted: u64::MAX,
    }
}

/// The scheduler of one image. Dropping it cancels everything in the queue.
pub struct Scheduler {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    place: String,
    blob: Arc<CachedBlob>,
    /// `None` once the network is no longer needed.
    fetcher: Mutex<Option<Arc<Fetcher>>>,
    registry: Mutex<Option<Arc<Registry>>>,
    table: Option<Arc<TableSource>>,
    digest: Option<Digest>,
    is_layer: bool,
    keep: Option<LayerTable>,
    patience: Duration,
    counters: Arc<Counters>,
    queue: Mutex<Queue>,
    streams: Mutex<SequentialStreams<()>>,
    rules: WindowRules,
    marks: Marks,
    /// The chunks that this process fetched.
    own: Marks,
    /// How often the whole image was dropped and fetched again.
    begun_anew: AtomicU32,
    runtime: &'static Handle,
    closed: AtomicBool,
    /// Whether the network connections were released.
    let_go: AtomicBool,
    finishing: AtomicBool,
    /// Whether all chunks have arrived and the whole image was verified, successfully or not.
    finished: AtomicBool,
    /// Whether a task is verifying the present chunks.
    checking: AtomicBool,
    /// Set if the whole image does not have its digest.
    broken: Mutex<Option<RemoteError>>,
}

impl View for Shared {
    fn present(&self, chunks: Range<u64>) -> Vec<Range<u64>> {
        self.blob.known_present(chunks)
    }

    fn part_end(&self, chunk: u64) -> u64 {
        let size = u64::from(self.blob.geometry().chunk_size());
        let fetcher = self.fetcher();
        fetcher.map_or(u64::MAX, |fetcher| {
            fetcher.part_end(chunk * size).div_ceil(size)
        })
    }
}

impl Scheduler {
    /// Creates a scheduler, which fetches nothing yet. Fails if the asynchronous runtime cannot
    /// start.
    pub fn new(work: Work) -> Result<Self> {
        let geometry = work.blob.geometry();
        let chunk = u64::from(geometry.chunk_size());
        let shared = Arc::new(Shared {
            place: work.place,
            fetcher: Mutex::new(Some(Arc::new(work.fetcher))),
            registry: Mutex::new(work.registry),
            table: work.table,
            digest: work.digest,
            is_layer: work.is_layer,
            keep: work.keep,
            patience: work.patience,
            counters: work.counters,
            queue: Mutex::new(Queue::new(geometry.chunk_size(), work.requests)),
            streams: Mutex::new(SequentialStreams::new(STREAMS)),
            rules: rules(chunk, work.window),
            marks: Marks::new(geometry.chunks()),
            own: Marks::new(geometry.chunks()),
            begun_anew: AtomicU32::new(0),
            runtime: runtime::handle()?,
            closed: AtomicBool::new(false),
            let_go: AtomicBool::new(false),
            finishing: AtomicBool::new(false),
            finished: AtomicBool::new(false),
            checking: AtomicBool::new(false),
            broken: Mutex::default(),
            blob: work.blob,
        });
        Ok(Self { shared })
    }

    /// Queues the missing chunks of `runs` for a reader, which waits for the returned handles.
    /// Fails if the whole image is known not to have its digest.
    pub fn demand(&self, runs: &[Range<u64>]) -> Result<Vec<Arc<Pending>>> {
        if let Some(error) = &*self.shared.broken() {
            return Err(error.clone());
        }
        self.shared.finished.store(false, Ordering::Release);
        let mut queue = self.shared.queue();
        let wanted = runs.iter().flat_map(Clone::clone);
        let pending = wanted.map(|chunk| queue.demand(chunk)).collect();
        self.shared.pump(&mut queue);
        Ok(pending)
    }

    /// Starts readahead after a read of `bytes` that missed or passed a mark.
    pub fn touch(&self, bytes: &Range<u64>) {
        let geometry = self.shared.blob.geometry();
        self.shared.marks.clear(&geometry.chunks_of(bytes));
        let (len, rules) = (geometry.len(), &self.shared.rules);
        let step = self.shared.streams().on_read((), bytes, len, rules);
        if step.ahead.is_none() && step.evicted.is_none() {
            return;
        }
        let mut queue = self.shared.queue();
        if let Some(stream) = step.evicted {
            queue.cancel(stream);
        }
        if let Some(ahead) = step.ahead {
            let size = u64::from(geometry.chunk_size());
            self.shared.marks.set(ahead.start / size);
            queue.ahead(step.stream, geometry.chunks_of(&ahead));
        }
        self.shared.pump(&mut queue);
    }

    pub fn is_marked(&self, chunks: &Range<u64>) -> bool {
        self.shared.marks.any(chunks)
    }

    pub fn hint(&self, chunks: Range<u64>) {
        let mut queue = self.shared.queue();
        queue.ahead(HINTED, chunks);
        self.shared.pump(&mut queue);
    }

    /// Queues `runs` for fetching in this order when no reader waits.
    pub fn listed(&self, runs: Vec<Range<u64>>) {
        let mut queue = self.shared.queue();
        queue.listed(runs);
        self.shared.pump(&mut queue);
    }

    pub fn background(&self) {
        let mut queue = self.shared.queue();
        queue.background(0..self.shared.blob.geometry().chunks());
        self.shared.pump(&mut queue);
        drop(queue);
        // There may be nothing to fetch.
        self.shared.finish_if_complete();
    }

    /// If all chunks are present, verifies the image and closes its connections.
    pub fn finish_if_complete(&self) {
        self.shared.finish_if_complete();
    }

    /// Returns whether all chunks have arrived and, for an image without a table, the whole was
    /// compared with its digest. The comparison may have failed.
    pub fn is_finished(&self) -> bool {
        self.shared.finished.load(Ordering::Acquire)
    }

    pub fn broken(&self) -> Option<RemoteError> {
        self.shared.broken().clone()
    }

    pub fn begun_anew(&self) -> u32 {
        self.shared.begun_anew.load(Ordering::Relaxed)
    }

    /// Releases the network once this process has verified every chunk. Costs two loads.
    pub fn let_go_if_checked(&self) {
        if self.shared.blob.is_checked() && !self.shared.let_go.load(Ordering::Acquire) {
            self.shared.finish_if_complete();
        }
    }

    /// Verifies in the background the present chunks that were not yet verified.
    pub fn check_rest(&self) {
        if self.shared.checking.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(&self.shared);
        drop(self.shared.runtime.spawn_blocking(move || {
            if let Err(error) = shared.blob.check_rest() {
                tracing::warn!(%error, place = shared.place, "the cache could not be verified");
            }
            shared.checking.store(false, Ordering::Release);
            shared.finish_if_complete();
        }));
    }

    /// Starts fetching the top of the table, which the first chunk needs.
    pub fn warm_table(&self) {
        self.shared.warm_table(0);
    }

    /// Fetches from other servers from now on, unless the network was already released.
    pub fn replace(&self, fetcher: Fetcher, registry: Option<Arc<Registry>>) {
        let mut slot = self.shared.fetcher.lock().unpoisoned();
        if slot.is_some() {
            *slot = Some(Arc::new(fetcher));
            *self.shared.registry() = registry;
        }
    }

    /// Records that the bytes fetched for `at` were wrong. Later requests go to other mirrors
    /// first.
    pub fn distrust(&self, at: u64) {
        if let Some(fetcher) = self.shared.fetcher() {
            fetcher.distrust(at);
        }
    }

    /// Reads credentials again and forgets the failures of all mirrors.
    pub fn reload(&self) {
        let registry = self.shared.registry().clone();
        if let Some(registry) = registry {
            registry.reload();
        }
        if let Some(fetcher) = self.shared.fetcher() {
            fetcher.reload();
        }
    }

    pub fn fill(&self, status: &mut RemoteStatus) {
        let depth = self.shared.queue().depth();
        status.in_flight = depth.in_flight;
        status.demand_queue = depth.demand;
        status.readahead_queue = depth.ahead;
        status.background_queue = depth.background;
        status.detached = self.shared.fetcher().is_none();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.queue().close(&self.shared.gone());
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unpoisoned()
    }

    fn streams(&self) -> MutexGuard<'_, SequentialStreams<()>> {
        self.streams.lock().unpoisoned()
    }

    fn broken(&self) -> MutexGuard<'_, Option<RemoteError>> {
        self.broken.lock().unpoisoned()
    }

    fn registry(&self) -> MutexGuard<'_, Option<Arc<Registry>>> {
        self.registry.lock().unpoisoned()
    }

    fn fetcher(&self) -> Option<Arc<Fetcher>> {
        let fetcher = self.fetcher.lock().unpoisoned();
        fetcher.clone()
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn gone(&self) -> RemoteError {
        RemoteError::Closed {
            place: self.place.clone(),
        }
    }

    /// Starts requests up to the limit of requests in flight.
    fn pump(self: &Arc<Self>, queue: &mut Queue) {
        while !self.is_closed() {
            let Some(job) = queue.next(&**self) else {
                break;
            };
            let shared = Arc::clone(self);
            drop(self.runtime.spawn(request::run(shared, job)));
        }
    }

    /// If all chunks are present, compares the whole image with its digest, unless chunks are
    /// verified one by one. Releases the network once this process has verified every chunk; until
    /// then, an altered chunk may have to be fetched again.
    fn finish_if_complete(self: &Arc<Self>) {
        if !self.blob.is_complete()
            || self.let_go.load(Ordering::Acquire)
            || self.finishing.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let shared = Arc::clone(self);
        drop(self.runtime.spawn_blocking(move || {
            shared.finish();
            shared.finishing.store(false, Ordering::Release);
            // The last chunk may have been verified meanwhile.
            if shared.blob.is_checked() && !shared.let_go.load(Ordering::Acquire) {
                shared.finish_if_complete();
            }
        }));
    }

    /// Compares the whole image with its digest, and stores the digests of its chunks.
    fn verify_whole(&self, digest: Digest) -> forerun_cache::Result<()> {
        match &self.keep {
            None => self.blob.verify_whole(digest),
            Some(keep) => {
                keep.keep(&self.blob.verify_with_table(digest)?);
                Ok(())
            }
        }
    }

    /// Drops cached bytes of an image that does not have its digest.
    fn drop_part(&self, bytes: &Range<u64>) {
        if let Err(error) = self.blob.drop_range(bytes) {
            tracing::warn!(%error, place = self.place, "wrong bytes stay in the cache until all of it is verified again");
        }
    }

    /// Fetches the image again if another process, which has the same image from another server,
    /// may have stored the wrong bytes. Returns whether it does so.
    fn begins_anew(self: &Arc<Self>) -> bool {
        let all = 0..self.blob.geometry().chunks();
        if !self.is_layer
            || self.own.all(&all)
            || self.begun_anew.fetch_add(1, Ordering::Relaxed) >= ANEW
        {
            return false;
        }
        tracing::warn!(
            place = self.place,
            "the cache had wrong bytes of it; all of it is fetched again"
        );
        self.own.clear(&all);
        let mut queue = self.queue();
        queue.background(all);
        self.pump(&mut queue);
        true
    }

    fn finish(self: &Arc<Self>) {
        if let Some(digest) = self.digest.filter(|_| !self.blob.is_verified())
            && let Err(error) = self.verify_whole(digest)
        {
            let is_wrong = matches!(error, forerun_cache::CacheError::WrongWhole { .. });
            if is_wrong && self.begins_anew() {
                return;
            }
            tracing::error!(%error, place = self.place, "the whole image does not have its digest");
            let error = match error {
                forerun_cache::CacheError::WrongWhole { .. } => RemoteError::WrongDigest {
                    place: self.place.clone(),
                    range: 0..self.blob.geometry().len(),
                    expected: digest,
                },
                other => cache_error(&other),
            };
            self.counters.error(&error);
            *self.broken() = Some(error);
            // Also drops chunks that arrived for readers during the verification, from the same
            // server. Later chunks are dropped on arrival.
            self.drop_part(&(0..self.blob.geometry().len()));
        }
        if let Err(error) = self.blob.flush() {
            tracing::warn!(%error, place = self.place, "chunks could not be made durable");
        }
        let is_broken = self.broken().is_some();
        // A reader may have dropped an altered chunk meanwhile.
        let is_whole = self.blob.is_complete();
        self.finished
            .store(is_whole || is_broken, Ordering::Release);
        let is_done = is_broken || (is_whole && self.blob.is_checked());
        if !is_done {
            return;
        }
        self.let_go.store(true, Ordering::Release);
        *self.fetcher.lock().unpoisoned() = None;
        *self.registry() = None;
        if let Some(table) = &self.table {
            table.close();
        }
        if is_whole {
            tracing::info!(place = self.place, "all of the image is here");
        }
    }
}
