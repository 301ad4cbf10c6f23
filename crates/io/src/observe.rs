//! The observer, which counts requests and reports events, and the source that reports its reads to
//! it.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::Unpoisoned;
use crate::{
    BlobId, BlockKey, Counter, Event, EventKind, EventSink, IoStats, Pattern, Purpose, ReadAt,
    Structure, u64_from, wait,
};

/// Number of decoded blocks remembered to recognise repeated decodes: at most 12 MiB of memory.
const REMEMBERED_DECODES: usize = 1 << 18;

/// Counts what happens to blocks, and passes events to a sink.
pub struct Observer {
    stats: IoStats,
    start: Instant,
    sink: Option<Arc<dyn EventSink>>,
    decoded: Mutex<HashSet<BlockKey>>,
}

/// The start time of an operation that an event will report. Reads the clock only if there is a
/// sink.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer(Option<Instant>);

impl Timer {
    fn elapsed(self) -> Duration {
        self.0.map_or(Duration::ZERO, |start| start.elapsed())
    }
}

/// The bytes that an event is about.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    structure: Structure,
    blob: BlobId,
    offset: u64,
    len: u64,
}

impl Default for Observer {
    fn default() -> Self {
        Self::new(None)
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer")
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Observer {
    /// Creates an observer that counts, and passes each event to `sink` if there is one.
    #[must_use]
    pub fn new(sink: Option<Arc<dyn EventSink>>) -> Self {
        Self {
            stats: IoStats::default(),
            start: Instant::now(),
            sink,
            decoded: Mutex::default(),
        }
    }

    #[must_use]
    pub const fn stats(&self) -> &IoStats {
        &self.stats
    }

    /// Starts a timer for an operation that is about to begin.
    #[must_use]
    pub fn timer(&self) -> Timer {
        Timer(self.sink.as_ref().map(|_| Instant::now()))
    }

    pub fn name(&self, node: u64, dir: u64, name: &[u8]) {
        if let Some(sink) = &self.sink {
            sink.name(node, dir, name);
        }
    }

    /// Records a finished read of a source. The structure in the event follows from `purpose`.
    pub fn source_read(
        &self,
        timer: Timer,
        blob: BlobId,
        (offset, len): (u64, u64),
        purpose: Purpose,
        ok: bool,
    ) {
        let structure = match purpose {
            Purpose::Demand | Purpose::Readahead => Structure::Data,
            Purpose::Metadata => Structure::Metadata,
        };
        self.read_of(timer, structure, blob, (offset, len), purpose, ok);
    }

    /// Records a finished read of a source, with the structure that was read.
    pub fn read_of(
        &self,
        timer: Timer,
        structure: Structure,
        blob: BlobId,
        (offset, len): (u64, u64),
        purpose: Purpose,
        ok: bool,
    ) {
        self.stats.add(Counter::SourceRequests, 1);
        self.stats.add(Counter::SourceBytes, len);
        match purpose {
            Purpose::Demand => {}
            Purpose::Metadata => self.stats.add(Counter::MetadataRequests, 1),
            Purpose::Readahead => {
                self.stats.add(Counter::ReadaheadRequests, 1);
                self.stats.add(Counter::ReadaheadBytes, len);
            }
        }
        if !ok {
            self.stats.add(Counter::SourceErrors, 1);
        }
        let kind = EventKind::SourceRead { purpose, ok };
        self.emit(timer, kind, bytes(structure, blob, offset, len), None);
    }

    /// Records an accepted readahead hint of `len` bytes.
    pub fn hint(&self, len: u64) {
        self.stats.add(Counter::HintedBytes, len);
    }

    /// Records a lookup in a data cache, or in the readahead data.
    pub fn cache(&self, kind: EventKind, blob: BlobId, offset: u64, len: u64) {
        match kind {
            EventKind::CacheHit => self.stats.add(Counter::CacheHits, 1),
            EventKind::CacheMiss => self.stats.add(Counter::CacheMisses, 1),
            EventKind::CacheWait => self.stats.add(Counter::CacheWaits, 1),
            EventKind::SourceRead { .. }
            | EventKind::Decode { .. }
            | EventKind::Write { .. }
            | EventKind::Flush { .. }
            | EventKind::Discard { .. }
            | EventKind::Fetch { .. }
            | EventKind::FileRead { .. }
            | EventKind::FileWrite { .. } => {}
        }
        let of = bytes(Structure::Data, blob, offset, len);
        self.emit(Timer::default(), kind, of, None);
    }

    /// Records a decode of a block; `ok` if it succeeded.
    pub fn decode(&self, timer: Timer, key: BlockKey, decoded_len: u64, ok: bool) {
        self.stats.add(Counter::Decodes, 1);
        if ok {
            self.stats.add(Counter::DecodedBytes, decoded_len);
        } else {
            self.stats.add(Counter::DecodeErrors, 1);
        }
        let mut decoded = self.decoded.lock().unpoisoned();
        if decoded.contains(&key) {
            self.stats.add(Counter::RepeatedDecodes, 1);
        } else if decoded.len() < REMEMBERED_DECODES {
            decoded.insert(key);
        }
        drop(decoded);
        let kind = EventKind::Decode { ok };
        let of = bytes(Structure::Data, key.blob, key.offset, decoded_len);
        self.emit(timer, kind, of, None);
    }

    pub fn file_read(&self, timer: Timer, node: u64, (offset, len): (u64, u64), ok: bool) {
        let of = bytes(Structure::Data, BlobId::IMAGE, offset, len);
        self.emit(timer, EventKind::FileRead { ok }, of, Some(node));
    }

    pub fn file_write(&self, timer: Timer, node: u64, (offset, len): (u64, u64), ok: bool) {
        let of = bytes(Structure::Data, BlobId::IMAGE, offset, len);
        self.emit(timer, EventKind::FileWrite { ok }, of, Some(node));
    }

    /// Records a finished request to a server, for `len` bytes from `offset` of the source.
    pub fn fetched(&self, timer: Timer, (offset, len): (u64, u64), ok: bool) {
        let of = bytes(Structure::Unknown, BlobId::IMAGE, offset, len);
        self.emit(timer, EventKind::Fetch { ok }, of, None);
    }

    pub fn write(&self, offset: u64, len: u64) {
        let timer = Timer::default();
        self.write_of(timer, Structure::Unknown, (offset, len), true);
    }

    /// Records a finished write to a device, with the structure that was written.
    pub fn write_of(
        &self,
        timer: Timer,
        structure: Structure,
        (offset, len): (u64, u64),
        ok: bool,
    ) {
        self.stats.add(Counter::Writes, 1);
        self.stats.add(Counter::WrittenBytes, len);
        if !ok {
            self.stats.add(Counter::WriteErrors, 1);
        }
        let kind = EventKind::Write { ok };
        let of = bytes(structure, BlobId::IMAGE, offset, len);
        self.emit(timer, kind, of, None);
    }

    pub fn flush(&self) {
        self.flush_ended(Timer::default(), true);
    }

    pub fn flush_ended(&self, timer: Timer, ok: bool) {
        self.stats.add(Counter::Flushes, 1);
        if !ok {
            self.stats.add(Counter::WriteErrors, 1);
        }
        let kind = EventKind::Flush { ok };
        let of = bytes(Structure::Unknown, BlobId::IMAGE, 0, 0);
        self.emit(timer, kind, of, None);
    }

    pub fn discarded(&self, timer: Timer, range: Range<u64>, ok: bool) {
        let len = range.end - range.start;
        self.stats.add(Counter::Discards, 1);
        let kind = EventKind::Discard { ok };
        let of = bytes(Structure::Data, BlobId::IMAGE, range.start, len);
        self.emit(timer, kind, of, None);
    }

    fn emit(&self, timer: Timer, kind: EventKind, of: Bytes, node: Option<u64>) {
        if let Some(sink) = &self.sink {
            sink.event(&Event {
                at: self.start.elapsed(),
                took: timer.elapsed(),
                kind,
                structure: of.structure,
                blob: of.blob,
                offset: of.offset,
                len: of.len,
                node,
            });
        }
    }
}

const fn bytes(structure: Structure, blob: BlobId, offset: u64, len: u64) -> Bytes {
    Bytes {
        structure,
        blob,
        offset,
        len,
    }
}

/// A source whose requests are counted.
#[derive(Clone)]
pub struct Counted {
    inner: Arc<dyn ReadAt>,
    blob: BlobId,
    observer: Arc<Observer>,
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counted")
            .field("blob", &self.blob)
            .field("len", &self.inner.len())
            .finish_non_exhaustive()
    }
}

impl Counted {
    #[must_use]
    pub fn new(inner: Arc<dyn ReadAt>, blob: BlobId, observer: Arc<Observer>) -> Self {
        Self {
            inner,
            blob,
            observer,
        }
    }

    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    #[must_use]
    pub const fn blob(&self) -> BlobId {
        self.blob
    }

    #[must_use]
    pub const fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    /// Reads as [`ReadAt::read_exact_at`] does, and counts the read under `purpose`.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn read(&self, offset: u64, out: &mut [u8], purpose: Purpose) -> io::Result<()> {
        let timer = self.observer.timer();
        let result = self.inner.read_exact_at(offset, out);
        self.count(timer, (offset, out), purpose, result)
    }

    /// Reads a single long block ([`Pattern::Single`]), and counts the read as a demand read.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn read_single(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let timer = self.observer.timer();
        let result = self.inner.read_ahead_at(offset, out, Pattern::Single);
        self.count(timer, (offset, out), Purpose::Demand, result)
    }

    /// Reads ahead as [`ReadAt::read_ahead_at`] does, and counts the read.
    ///
    /// # Errors
    /// The errors of the source.
    pub fn read_ahead(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        let timer = self.observer.timer();
        let result = self.inner.read_ahead_at(offset, out, pattern);
        self.count(timer, (offset, out), Purpose::Readahead, result)
    }

    fn count(
        &self,
        timer: Timer,
        (offset, out): (u64, &[u8]),
        purpose: Purpose,
        result: io::Result<()>,
    ) -> io::Result<()> {
        // A wait was refused, so no read was made.
        if result.is_err() && wait::was_refused() {
            return result;
        }
        let place = (offset, u64_from(out.len()));
        self.observer
            .source_read(timer, self.blob, place, purpose, result.is_ok());
        result
    }

    /// Returns whether a read may have to wait for a server: [`ReadAt::is_slow`].
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.inner.is_slow()
    }

    /// Tells the source that a range has wrong bytes: [`ReadAt::distrust`].
    pub fn distrust(&self, range: Range<u64>) {
        self.inner.distrust(range);
    }

    /// Tells the source that `range` is cached elsewhere: [`ReadAt::done_with`].
    pub fn done_with(&self, range: Range<u64>) {
        self.inner.done_with(range);
    }

    /// Passes on a hint as [`ReadAt::will_need`] does, and counts its bytes if the store accepts
    /// it.
    pub fn will_need(&self, range: Range<u64>) -> bool {
        let len = range.end - range.start;
        let is_taken = self.inner.will_need(range);
        if is_taken {
            self.observer.hint(len);
        }
        is_taken
    }
}
