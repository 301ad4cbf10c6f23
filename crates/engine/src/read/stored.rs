//! Stored bytes: from the segments that were read ahead, or from the source.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use forerun_io::{
    BlockGeometry, Counted, EventKind, Observer, Pattern, Purpose, Unpoisoned, u64_from,
    usize_from, wait,
};
use forerun_vfs::{BlobId, Capabilities, Error, Result};

use super::around::Around;
use super::blobs::BlobTable;
use super::buffer::{Buffer, BufferPool};
use super::segment::{Claim, Segment, Segments, Unfinished, buffer_len, within};
use crate::Data;
use crate::metadata::MetadataSource;
use crate::tuning::LONG_BLOCK;

pub struct Stored {
    image: Counted,
    others: BlobTable,
    geometry: BlockGeometry,
    /// What readers wanted of the image at random offsets; `None` without readahead, or if the
    /// image takes no hints.
    around: Mutex<Option<Around>>,
    /// In the legacy mode, the block cache through which file data is read block by block.
    legacy: Option<MetadataSource>,
    /// Whether the front end caches the bytes that it reads.
    is_kept_above: AtomicBool,
    pub segments: Segments,
    pub buffers: Arc<BufferPool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    Serve,
    /// They are decoded. The cache below keeps them, since they take less space than the decoded
    /// bytes.
    Decode,
}

/// Most bytes cached in the legacy mode: about as many as the kernel's buffer cache would hold
/// around one file.
const LEGACY_CACHE: u64 = 1 << 20;

impl Stored {
    pub fn new(
        image: Counted,
        others: BlobTable,
        geometry: BlockGeometry,
        legacy: bool,
        guesses: bool,
        ahead_budget: u64,
    ) -> Self {
        let cached = || MetadataSource::for_data(image.clone(), geometry, LEGACY_CACHE);
        Self {
            legacy: legacy.then(cached),
            image,
            others,
            geometry,
            around: Mutex::new(guesses.then(Around::default)),
            is_kept_above: AtomicBool::new(false),
            segments: Segments::new(ahead_budget),
            buffers: BufferPool::new(usize_from(ahead_budget)),
        }
    }

    pub fn set_kept_above(&self) {
        self.is_kept_above.store(true, Ordering::Relaxed);
    }

    pub fn is_kept_above(&self) -> bool {
        self.is_kept_above.load(Ordering::Relaxed)
    }

    pub fn observer(&self) -> &Arc<Observer> {
        self.image.observer()
    }

    pub const fn geometry(&self) -> BlockGeometry {
        self.geometry
    }

    pub fn len(&self, blob: BlobId) -> Result<u64> {
        Ok(self.source(blob)?.len())
    }

    /// Returns `range` without a copy, if one segment holds all of it.
    pub fn slice(&self, blob: BlobId, range: &Range<u64>, purpose: Use) -> Option<Data> {
        let segment = self.segments.find(blob, range.start)?;
        if segment.range.end < range.end {
            return None;
        }
        let buffer = self.obtain(&segment)?;
        self.used(&segment, range.end - range.start, purpose);
        Data::of_buffer(buffer, within(&segment, range))
    }

    pub fn read(&self, blob: BlobId, offset: u64, out: &mut [u8], purpose: Use) -> Result<()> {
        let overflow = || Error::io(offset, out.len(), std::io::ErrorKind::UnexpectedEof.into());
        let end = offset
            .checked_add(u64_from(out.len()))
            .ok_or_else(overflow)?;
        let mut at = offset;
        while at < end {
            let rest = &mut out[usize_from(at - offset)..];
            let next = match self.segments.find(blob, at) {
                Some(segment) => {
                    let part = at..end.min(segment.range.end);
                    self.copy(&segment, part, rest, purpose)?
                }
                None => {
                    let next = self.segments.next_start(blob, at..end).unwrap_or(end);
                    if purpose == Use::Decode {
                        self.hint_around(blob, &(at..next));
                    }
                    self.read_missing(blob, at..next, rest, purpose)?;
                    next
                }
            };
            at = next;
        }
        Ok(())
    }

    /// Reads the parts of `range` that are in no segment, each with one request if possible. If a
    /// request fails, the reader makes smaller ones.
    pub fn read_together(&self, blob: BlobId, range: Range<u64>) {
        let is_legacy = self.legacy.is_some() && blob == self.image.blob();
        let len = self.len(blob).unwrap_or(0);
        if is_legacy || range.end > len {
            return;
        }
        let (most, stats) = (self.geometry.max_request(), self.observer().stats());
        let pattern = Pattern::Scattered;
        for segment in self.segments.plan(blob, range, most, pattern, stats) {
            self.hint_around(blob, &segment.range);
            let duty = segment.start();
            let loaded = duty.map(|duty| self.load_for(duty, Purpose::Demand));
            // If this thread may not wait, no job will make the request either.
            if matches!(loaded, Some(None)) {
                self.segments.remove(&segment);
            }
        }
    }

    /// Makes the request of a segment. A failure affects only this segment.
    pub fn load(&self, duty: Unfinished) -> Option<Arc<Buffer>> {
        self.load_for(duty, Purpose::Readahead)
    }

    fn load_for(&self, duty: Unfinished, purpose: Purpose) -> Option<Arc<Buffer>> {
        let segment = Arc::clone(duty.segment());
        let mut buffer = self.buffers.take(buffer_len(&segment));
        let source = self.source(segment.blob).ok()?;
        let (offset, out) = (segment.range.start, buffer.as_mut());
        let read = match purpose {
            Purpose::Demand => source.read(offset, out, purpose),
            _ => source.read_ahead(offset, out, segment.pattern),
        };
        read.ok()?;
        let buffer = Arc::new(buffer);
        duty.finish(Arc::clone(&buffer));
        Some(buffer)
    }

    /// Returns the bytes of a segment; waits for them or reads them as needed. Returns `None` if
    /// the request failed, or if this thread may not wait.
    fn obtain(&self, segment: &Arc<Segment>) -> Option<Arc<Buffer>> {
        let (offset, len) = (segment.range.start, u64_from(buffer_len(segment)));
        match segment.claim() {
            Claim::Ready { buffer, waited } => {
                let kind = if waited {
                    EventKind::CacheWait
                } else {
                    EventKind::CacheHit
                };
                self.observer().cache(kind, segment.blob, offset, len);
                Some(buffer)
            }
            Claim::Read(duty) => {
                self.observer()
                    .cache(EventKind::CacheMiss, segment.blob, offset, len);
                self.load(duty)
            }
            Claim::Failed => None,
        }
    }

    /// Removes a segment whose request failed. A segment in flight stays: this thread just may not
    /// wait for it.
    fn drop_failed(&self, segment: &Arc<Segment>) {
        if !segment.in_flight() {
            self.segments.remove(segment);
        }
    }

    /// Returns whether a read may have to wait for a server now.
    pub fn is_slow(&self) -> bool {
        self.image.is_slow()
    }

    /// Returns whether the cache below may drop bytes of `blob` that were served as they are
    /// stored. If the front end caches the data, they would take memory twice. Blobs other than the
    /// image stay cached, because other images may share them.
    pub fn leaves_cache(&self, blob: BlobId) -> bool {
        self.is_kept_above() && blob == self.image.blob()
    }

    fn used(&self, segment: &Arc<Segment>, bytes: u64, purpose: Use) {
        let is_used_up = self.segments.used(segment, bytes);
        if is_used_up && purpose == Use::Serve && self.leaves_cache(segment.blob) {
            self.image.done_with(segment.range.clone());
        }
    }

    fn copy(
        &self,
        segment: &Arc<Segment>,
        range: Range<u64>,
        out: &mut [u8],
        purpose: Use,
    ) -> Result<u64> {
        let len = range.end - range.start;
        let out = &mut out[..usize_from(len)];
        match self.obtain(segment) {
            Some(buffer) => {
                // The caller has clamped the range to the segment.
                out.copy_from_slice(&buffer[within(segment, &range)]);
                self.used(segment, len, purpose);
            }
            None => {
                self.drop_failed(segment);
                self.read_missing(segment.blob, range.clone(), out, purpose)?;
            }
        }
        Ok(range.end)
    }

    /// Hints the region around a block of the image to the kernel, if readers wanted much of the
    /// region. Skips images on servers: nothing is fetched for a guess.
    fn hint_around(&self, blob: BlobId, block: &Range<u64>) {
        if blob != self.image.blob() || self.image.is_slow() {
            return;
        }
        let mut around = self.around.lock().unpoisoned();
        let hint = around
            .as_mut()
            .and_then(|around| around.on_miss(block, self.image.len()));
        drop(around);
        if hint.is_some_and(|hint| !self.image.will_need(hint)) {
            *self.around.lock().unpoisoned() = None;
        }
    }

    /// Reads bytes that were not read ahead, if possible in one request. `out` may be longer than
    /// the range.
    fn read_missing(
        &self,
        blob: BlobId,
        range: Range<u64>,
        out: &mut [u8],
        purpose: Use,
    ) -> Result<()> {
        let out = &mut out[..usize_from(range.end - range.start)];
        self.observer().cache(
            EventKind::CacheMiss,
            blob,
            range.start,
            range.end - range.start,
        );
        if let Some(legacy) = self.legacy.as_ref().filter(|_| blob == self.image.blob()) {
            let read = forerun_io::ReadAt::read_exact_at(legacy, range.start, out);
            return read.map_err(|error| self.failed(blob, range.start, out.len(), error));
        }
        let source = self.source(blob)?;
        let mut done = 0;
        // There are several parts only if the caller asks for more than the largest request.
        for part in out.chunks_mut(usize_from(self.geometry.max_request())) {
            let at = range.start + done;
            let len = u64_from(part.len());
            let read = if purpose == Use::Decode && len >= LONG_BLOCK {
                source.read_single(at, part)
            } else {
                source.read(at, part, Purpose::Demand)
            };
            if let Err(error) = read {
                if wait::was_refused() {
                    return Err(self.failed(blob, at, part.len(), error));
                }
                self.read_by_blocks(&source, at, part)?;
            }
            done += len;
        }
        Ok(())
    }

    /// Reads block by block after a request failed. The error then names the bad block, and bytes
    /// outside of it can still be read.
    fn read_by_blocks(&self, source: &Counted, start: u64, out: &mut [u8]) -> Result<()> {
        let end = start + u64_from(out.len());
        let mut at = start;
        while at < end {
            let next = self.block_end(source.blob(), at).clamp(at + 1, end);
            let part = &mut out[usize_from(at - start)..usize_from(next - start)];
            let read = source.read(at, part, Purpose::Demand);
            read.map_err(|error| self.failed(source.blob(), at, part.len(), error))?;
            at = next;
        }
        Ok(())
    }

    fn failed(&self, blob: BlobId, at: u64, len: usize, error: std::io::Error) -> Error {
        match self.image_of(blob) {
            Some(image) => Error::io(at, len, error).in_image(&image),
            None => Error::io(at, len, of_blob(blob, error)),
        }
    }

    /// Returns the end of the block around `at`. All blobs are read in blocks of the size that the
    /// image has, so the result may lie past the end of another blob.
    fn block_end(&self, blob: BlobId, at: u64) -> u64 {
        if blob == self.image.blob() {
            return self.geometry.align(at..at + 1).end;
        }
        let block = self.geometry.block();
        at - at % block + block
    }

    pub fn capabilities(&self) -> Capabilities<'_> {
        self.others.capabilities()
    }

    /// Returns the name of the image that a blob belongs to, if the tree consists of several
    /// images.
    fn image_of(&self, blob: BlobId) -> Option<Arc<str>> {
        self.capabilities().merged?.image_of(blob)
    }

    /// Tells a store that a range of a blob does not decode or verify.
    pub fn distrust(&self, blob: BlobId, range: &Range<u64>) {
        if let Ok(source) = self.source(blob) {
            source.distrust(range.clone());
        }
    }

    /// Opens the blob of a file that is being opened. A blob that has changed is opened again.
    pub fn open(&self, blob: BlobId) -> Result<()> {
        if blob != self.image.blob() {
            self.others.refresh(blob);
        }
        self.source(blob).map(drop)
    }

    /// Opens a blob and hints a range of it to its store, which may read it ahead. Ignores errors:
    /// the reader reports them.
    pub fn hint(&self, blob: BlobId, range: Range<u64>) {
        if let Ok(source) = self.source(blob) {
            let _is_taken = source.will_need(range);
        }
    }

    /// Adds the name of the image that a blob belongs to, if the tree consists of several images.
    pub fn in_image(&self, blob: BlobId, error: Error) -> Error {
        match self.image_of(blob) {
            Some(image) => error.in_image(&image),
            None => error,
        }
    }

    fn source(&self, blob: BlobId) -> Result<Cow<'_, Counted>> {
        if blob == self.image.blob() {
            return Ok(Cow::Borrowed(&self.image));
        }
        self.others.get(blob, self.observer()).map(Cow::Owned)
    }
}

/// Adds the blob to the error, unless it is the image.
fn of_blob(blob: BlobId, error: std::io::Error) -> std::io::Error {
    if blob == BlobId::IMAGE {
        return error;
    }
    std::io::Error::new(error.kind(), format!("blob {}: {error}", blob.0))
}
