//! Verification, on several threads and ahead of a reader that reads the cache's file itself.
//!
//! Such a reader asks before each read, and waits meanwhile. What an earlier process has stored must be hashed
//! before the answer. Done read by read, that takes several times as long as reading does: the disk waits for the
//! hash, the hash for the disk, and one processor works. So the next windows of a sequential reader are verified
//! before they are asked for, and the pieces of a long read by several threads at once.
//!
//! The image is cut into pieces of [`CHECK_PIECE`]. A piece is verified by one thread at a time, and a reader that
//! comes for it waits for that thread. A reader of a small part of a piece verifies this part only.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use forerun_cache::ReadData;
use forerun_io::{
    AlignedBuffer, FileSource, Pattern, ReadAt, SequentialStreams, Unpoisoned, WindowRules,
    saturating_usize, threads,
};

use crate::RemoteImage;
use crate::tuning::{
    CHECK_AHEAD_FIRST, CHECK_AHEAD_MOST, CHECK_BEHIND, CHECK_PIECE, CHECK_PIECES_QUEUED,
    CHECK_THREADS, STREAMS,
};

/// How far to verify ahead.
const RULES: WindowRules = WindowRules {
    first: CHECK_AHEAD_FIRST,
    max: CHECK_AHEAD_MOST,
    slack: CHECK_PIECE,
    proof: 0,
    lead: 0,
    align: 1,
    // One read says nothing yet.
    trusted: u64::MAX,
};

/// Verifies chunks of an image that the cache has and that this process has not verified yet.
#[derive(Debug)]
pub struct CheckAhead {
    image: Arc<RemoteImage>,
    pieces: Mutex<Pieces>,
    /// A piece was queued or is done, or all of it ends.
    changed: Condvar,
    streams: Mutex<SequentialStreams<()>>,
}

/// Pieces by their numbers.
#[derive(Debug, Default)]
struct Pieces {
    queue: VecDeque<u64>,
    /// Pieces that threads work at.
    busy: Vec<u64>,
    is_closed: bool,
}

impl CheckAhead {
    /// Makes a verifier of `image`, which does nothing ahead before it is [started](Self::start).
    #[must_use]
    pub fn new(image: Arc<RemoteImage>) -> Self {
        Self {
            image,
            pieces: Mutex::default(),
            changed: Condvar::new(),
            streams: Mutex::new(SequentialStreams::new(STREAMS)),
        }
    }

    /// Starts the threads that verify ahead and share in long reads, until [`close`](Self::close).
    ///
    /// # Errors
    /// If not even one can be started.
    pub fn start(self: &Arc<Self>) -> io::Result<()> {
        for number in 0..threads::parallelism().clamp(1, CHECK_THREADS) {
            let this = Arc::clone(self);
            if let Err(error) = threads::spawn("forerun-check", move || this.work()) {
                match number {
                    0 => return Err(error),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Ends the threads.
    pub fn close(&self) {
        self.pieces().is_closed = true;
        self.changed.notify_all();
    }

    /// Notes that `bytes` are about to be read, has what is ahead of a reader in order verified, and drops what it has
    /// passed from the page cache. Does not wait.
    pub fn note(&self, bytes: &Range<u64>) {
        if self.image.blob().is_checked() {
            return;
        }
        let len = self.image.blob().geometry().len();
        let step = self
            .streams
            .lock()
            .unpoisoned()
            .on_read((), bytes, len, &RULES);
        if let Some(ahead) = step.ahead {
            self.queue(pieces_of(&ahead), false);
            // The kernel has a copy of its own of what it was given.
            self.image.done_with(behind(bytes.start));
        }
    }

    /// Verifies what is here of `bytes`, together with the threads. Chunks that are missing or altered stay missing.
    ///
    /// # Errors
    /// Those of the disk, and of a table that cannot tell.
    pub fn check(&self, bytes: &Range<u64>, buffer: &mut AlignedBuffer) -> io::Result<()> {
        self.queue(whole_pieces_of(bytes), true);
        for piece in pieces_of(bytes) {
            let place = place_of(piece);
            let part = bytes.start.max(place.start)..bytes.end.min(place.end);
            if !self.has_checked(&part) && !self.check_piece(piece, part == place, buffer)? {
                self.image.check(&part, buffer)?;
            }
        }
        Ok(())
    }

    /// Verifies a piece, unless a thread works at it: then waits for that, and returns false, as that may have failed.
    /// Returns false for a piece of which not all `is_wanted`.
    fn check_piece(
        &self,
        piece: u64,
        is_wanted: bool,
        buffer: &mut AlignedBuffer,
    ) -> io::Result<bool> {
        let mut pieces = self.pieces();
        if pieces.busy.contains(&piece) {
            let is_busy = |pieces: &mut Pieces| pieces.busy.contains(&piece);
            drop(self.changed.wait_while(pieces, is_busy).unpoisoned());
            return Ok(false);
        }
        if !is_wanted {
            return Ok(false);
        }
        pieces.queue.retain(|queued| *queued != piece);
        self.check_busy(pieces, piece, buffer).map(|()| true)
    }

    /// Returns whether nothing of `bytes` is left to verify.
    fn has_checked(&self, bytes: &Range<u64>) -> bool {
        let blob = self.image.blob();
        blob.are_checked(blob.geometry().chunks_of(bytes))
    }

    /// Queues pieces; those that are `urgent` are the next, in their order.
    fn queue(&self, wanted: Range<u64>, urgent: bool) {
        let is_left = |piece: &u64| !self.has_checked(&place_of(*piece));
        let wanted: Vec<u64> = wanted.take(CHECK_PIECES_QUEUED).filter(is_left).collect();
        if wanted.is_empty() {
            return;
        }
        let mut pieces = self.pieces();
        for (at, piece) in wanted.into_iter().enumerate() {
            if pieces.busy.contains(&piece) {
                continue;
            }
            match urgent {
                true => {
                    pieces.queue.retain(|queued| *queued != piece);
                    let at = at.min(pieces.queue.len());
                    pieces.queue.insert(at, piece);
                }
                false if pieces.queue.contains(&piece) => {}
                false => pieces.queue.push_back(piece),
            }
        }
        // Readers verify for themselves what is dropped here.
        pieces.queue.truncate(CHECK_PIECES_QUEUED);
        drop(pieces);
        self.changed.notify_all();
    }

    /// Verifies what is queued.
    fn work(&self) {
        let mut buffer = AlignedBuffer::new();
        loop {
            let nothing_to_do = |pieces: &mut Pieces| pieces.queue.is_empty() && !pieces.is_closed;
            let waited = self.changed.wait_while(self.pieces(), nothing_to_do);
            let mut pieces = waited.unpoisoned();
            if pieces.is_closed {
                return;
            }
            let Some(piece) = pieces.queue.pop_front() else {
                continue;
            };
            if let Err(error) = self.check_busy(pieces, piece, &mut buffer) {
                // The reader that comes for it tries again, and is told.
                tracing::debug!(%error, piece, "could not be verified ahead");
            }
        }
    }

    fn check_busy(
        &self,
        mut pieces: MutexGuard<'_, Pieces>,
        piece: u64,
        buffer: &mut AlignedBuffer,
    ) -> io::Result<()> {
        pieces.busy.push(piece);
        drop(pieces);
        // Also after a panic, or readers would wait for ever.
        let _done = Busy { of: self, piece };
        self.image.check(&place_of(piece), buffer)
    }

    fn pieces(&self) -> MutexGuard<'_, Pieces> {
        self.pieces.lock().unpoisoned()
    }
}

/// A piece that a thread works at, until this is dropped.
struct Busy<'a> {
    of: &'a CheckAhead,
    piece: u64,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.of.pieces().busy.retain(|busy| *busy != self.piece);
        self.of.changed.notify_all();
    }
}

/// Returns what a reader in order that is at `at` has passed since the last windows ahead of it were verified.
const fn behind(at: u64) -> Range<u64> {
    let end = at.saturating_sub(CHECK_BEHIND);
    end.saturating_sub(2 * CHECK_AHEAD_MOST)..end
}

/// Returns the pieces that have bytes of `bytes`.
const fn pieces_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / CHECK_PIECE..bytes.end.div_ceil(CHECK_PIECE)
}

/// Returns the pieces that lie in `bytes`.
const fn whole_pieces_of(bytes: &Range<u64>) -> Range<u64> {
    bytes.start.div_ceil(CHECK_PIECE)..bytes.end / CHECK_PIECE
}

/// Returns the bytes of a piece; the last one reaches behind the end of the image.
const fn place_of(piece: u64) -> Range<u64> {
    let start = piece.saturating_mul(CHECK_PIECE);
    start..start.saturating_add(CHECK_PIECE)
}

/// Reads the data file through the page cache: the reader that comes for the bytes finds them there.
struct Kept<'a>(&'a FileSource);

impl ReadData for Kept<'_> {
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_ahead_at(offset, out, Pattern::Forward)
    }
}

impl RemoteImage {
    /// Verifies the chunks of `bytes` that are here and were not verified yet.
    fn check(&self, bytes: &Range<u64>, buffer: &mut AlignedBuffer) -> io::Result<()> {
        let chunks = self.blob.geometry().chunks_of(bytes);
        buffer.reserve(saturating_usize(CHECK_PIECE));
        self.blob.check_some(&Kept(&self.local), chunks, buffer)
    }

    /// Does all that a read of `bytes` does but read them, for a reader that reads the cache's file itself. Returns
    /// false, and does nothing, where some are not here or were not verified yet.
    #[must_use]
    pub fn read_outside(&self, bytes: &Range<u64>) -> bool {
        let chunks = self.blob.geometry().chunks_of(bytes);
        let here = self.blob.known_present(chunks.clone());
        let is_here = chunks.is_empty() || here.first() == Some(&chunks);
        let may_be_read = is_here && self.blob.are_checked(chunks);
        if may_be_read {
            if let Some(recorder) = &self.recorder {
                recorder.touch(bytes);
            }
            self.found_here(bytes);
        }
        may_be_read
    }
}
