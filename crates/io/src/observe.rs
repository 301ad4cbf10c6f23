//! Accounting: one object that is told of every crossing, and the wrapper that tells it of reads.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::{
    BlobId, BlockKey, Counter, Event, EventKind, EventSink, IoStats, Pattern, Purpose, ReadAt,
    Structure, u64_from, wait,
};

/// Decoded blocks remembered to tell a repeated decode from a first one: 12 MiB at the most.
const REMEMBERED_DECODES: usize = 1 << 18;

/// Counts what happens to blocks and passes the events on.
pub struct Observer {
    stats: IoStats,
    start: Instant,
    sink: Option<Arc<dyn EventSink>>,
    decoded: Mutex<HashSet<BlockKey>>,
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
    /// Counts, and tells `sink` each event where there is one.
    #[must_use]
    pub fn new(sink: Option<Arc<dyn EventSink>>) -> Self {
        Self {
            stats: IoStats::default(),
            start: Instant::now(),
            sink,
            decoded: Mutex::default(),
        }
    }

    /// The counters.
    #[must_use]
    pub const fn stats(&self) -> &IoStats {
        &self.stats
    }

    /// A read of a source ended.
    pub fn source_read(&self, blob: BlobId, offset: u64, len: u64, purpose: Purpose, ok: bool) {
        let structure = match purpose {
            Purpose::Demand | Purpose::Readahead => Structure::Data,
            Purpose::Metadata => Structure::Metadata,
        };
        self.read_of(structure, blob, offset, len, purpose, ok);
    }

    /// A read of a source ended, and what was read is known.
    pub fn read_of(
        &self,
        structure: Structure,
        blob: BlobId,
        offset: u64,
        len: u64,
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
        self.emit(kind, structure, blob, offset, len);
    }

    /// The store below a source was told to read ahead, and takes such hints.
    pub fn hint(&self, len: u64) {
        self.stats.add(Counter::HintedBytes, len);
    }

    /// A lookup in a data cache, or in what was read ahead.
    pub fn cache(&self, kind: EventKind, blob: BlobId, offset: u64, len: u64) {
        match kind {
            EventKind::CacheHit => self.stats.add(Counter::CacheHits, 1),
            EventKind::CacheMiss => self.stats.add(Counter::CacheMisses, 1),
            EventKind::CacheWait => self.stats.add(Counter::CacheWaits, 1),
            EventKind::SourceRead { .. }
            | EventKind::Decode { .. }
            | EventKind::Write { .. }
            | EventKind::Flush { .. }
            | EventKind::Discard { .. } => {}
        }
        self.emit(kind, Structure::Data, blob, offset, len);
    }

    /// A block was decoded, or could not be.
    pub fn decode(&self, key: BlockKey, decoded_len: u64, ok: bool) {
        self.stats.add(Counter::Decodes, 1);
        if ok {
            self.stats.add(Counter::DecodedBytes, decoded_len);
        } else {
            self.stats.add(Counter::DecodeErrors, 1);
        }
        let mut decoded = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if decoded.contains(&key) {
            self.stats.add(Counter::RepeatedDecodes, 1);
        } else if decoded.len() < REMEMBERED_DECODES {
            decoded.insert(key);
        }
        drop(decoded);
        let kind = EventKind::Decode { ok };
        self.emit(kind, Structure::Data, key.blob, key.offset, decoded_len);
    }

    /// Bytes went to an output.
    pub fn write(&self, offset: u64, len: u64) {
        self.write_of(Structure::Unknown, offset, len, true);
    }

    /// A write to a device ended, and what was written is known.
    pub fn write_of(&self, structure: Structure, offset: u64, len: u64, ok: bool) {
        self.stats.add(Counter::Writes, 1);
        self.stats.add(Counter::WrittenBytes, len);
        if !ok {
            self.stats.add(Counter::WriteErrors, 1);
        }
        let kind = EventKind::Write { ok };
        self.emit(kind, structure, BlobId::IMAGE, offset, len);
    }

    /// An output was flushed.
    pub fn flush(&self) {
        self.flush_ended(true);
    }

    /// A flush of a device ended.
    pub fn flush_ended(&self, ok: bool) {
        self.stats.add(Counter::Flushes, 1);
        if !ok {
            self.stats.add(Counter::WriteErrors, 1);
        }
        let kind = EventKind::Flush { ok };
        self.emit(kind, Structure::Unknown, BlobId::IMAGE, 0, 0);
    }

    /// Records that a device was told to discard `range`.
    pub fn discarded(&self, range: Range<u64>, ok: bool) {
        let len = range.end.saturating_sub(range.start);
        self.stats.add(Counter::Discards, 1);
        let kind = EventKind::Discard { ok };
        self.emit(kind, Structure::Data, BlobId::IMAGE, range.start, len);
    }

    fn emit(&self, kind: EventKind, structure: Structure, blob: BlobId, offset: u64, len: u64) {
        if let Some(sink) = &self.sink {
            sink.event(&Event {
                at: self.start.elapsed(),
                kind,
                structure,
                blob,
                offset,
                len,
            });
        }
    }
}

/// A source whose every request is counted: the first boundary.
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
    /// Counts the requests to `inner` as those of `blob`.
    #[must_use]
    pub fn new(inner: Arc<dyn ReadAt>, blob: BlobId, observer: Arc<Observer>) -> Self {
        Self {
            inner,
            blob,
            observer,
        }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.inner.len()
    }

    /// Returns whether there is no byte at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Whose bytes these are.
    #[must_use]
    pub const fn blob(&self) -> BlobId {
        self.blob
    }

    /// Returns the observer.
    #[must_use]
    pub const fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    /// As [`ReadAt::read_exact_at`], saying what the bytes are for.
    ///
    /// # Errors
    /// Those of the source.
    pub fn read(&self, offset: u64, out: &mut [u8], purpose: Purpose) -> io::Result<()> {
        let result = self.inner.read_exact_at(offset, out);
        self.count(offset, out, purpose, result)
    }

    /// As [`ReadAt::read_ahead_at`].
    ///
    /// # Errors
    /// Those of the source.
    pub fn read_ahead(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        let result = self.inner.read_ahead_at(offset, out, pattern);
        self.count(offset, out, Purpose::Readahead, result)
    }

    fn count(
        &self,
        offset: u64,
        out: &[u8],
        purpose: Purpose,
        result: io::Result<()>,
    ) -> io::Result<()> {
        // A read that this thread may not wait for was not made.
        if result.is_err() && wait::was_refused() {
            return result;
        }
        let len = u64_from(out.len());
        self.observer
            .source_read(self.blob, offset, len, purpose, result.is_ok());
        result
    }

    /// As [`ReadAt::is_slow`].
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.inner.is_slow()
    }

    /// As [`ReadAt::done_with`].
    pub fn done_with(&self, range: Range<u64>) {
        self.inner.done_with(range);
    }

    /// As [`ReadAt::will_need`].
    pub fn will_need(&self, range: Range<u64>) -> bool {
        let len = range.end.saturating_sub(range.start);
        let is_taken = self.inner.will_need(range);
        if is_taken {
            self.observer.hint(len);
        }
        is_taken
    }
}
