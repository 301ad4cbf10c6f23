//! Readahead without the kernel's help: what a sequential reader will want next is stored in the
//! page cache before it asks (FUSE_NOTIFY_STORE).
//!
//! Without root the kernel reads ahead 128 KiB and no more. The engine keeps megabytes ahead, but
//! each 128 KiB still cost the reader a round trip. This moves them over in pieces of 1 MiB.
//!
//! The pages left out between pieces (see [`crate::streams`]) are kept here until they are asked for,
//! so that the engine sees one reader going forward and not a second one hopping behind.
//!
//! A store waits for pages that are locked by a request under way for the same file. It is therefore
//! never done by a thread that answers requests: one thread of its own does nothing else. Any error
//! of the kernel turns the pusher off for good; reading goes on without it.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::{Unpoisoned, threads};
use fuser::{INodeNo, Notifier};

use crate::core::Core;
use crate::counts::Operation;
use crate::streams::{GAP, Streams};
use crate::tuning::{KEPT_GAPS, STORE_WINDOW, WAITING_PIECES};

/// The thread that pushes, as seen from those that answer requests.
pub struct Pusher {
    shared: Arc<PushShared>,
    pieces: SyncSender<Piece>,
}

struct Piece {
    file: u64,
    range: Range<u64>,
}

struct Gap {
    file: u64,
    offset: u64,
    bytes: Vec<u8>,
}

struct PushShared {
    core: Arc<Core>,
    streams: Mutex<Streams>,
    gaps: Mutex<VecDeque<Gap>>,
    off: AtomicBool,
}

impl Pusher {
    /// Starts the thread. Nothing where it cannot be started: it is not needed for correctness.
    pub fn start(core: Arc<Core>, notifier: Notifier) -> Option<Self> {
        let window = STORE_WINDOW.min(core.reader.options().readahead);
        let (pieces, waiting) = sync_channel(WAITING_PIECES);
        let shared = Arc::new(PushShared {
            core,
            streams: Mutex::new(Streams::new(window)),
            gaps: Mutex::default(),
            off: AtomicBool::new(false),
        });
        let pusher = Self {
            shared: Arc::clone(&shared),
            pieces,
        };
        let body = move || shared.work(&waiting, &notifier);
        let started = threads::spawn("forerun-fuse-push", body);
        started.ok().map(|_| pusher)
    }

    /// Returns the page between two pieces, if that is what the kernel asks for.
    pub fn gap(&self, file: u64, offset: u64, len: u32) -> Option<Vec<u8>> {
        let mut gaps = self.shared.gaps();
        let at = gaps
            .iter()
            .position(|gap| gap.file == file && gap.offset == offset)?;
        // Asked for once, it is in the page cache, or passed.
        let gap = gaps.remove(at)?;
        (usize::try_from(len) == Ok(gap.bytes.len())).then_some(gap.bytes)
    }

    /// Notes that the kernel was given `data` of `file` at `offset`.
    pub fn on_read(&self, file: u64, offset: u64, data: &[u8]) {
        let len = u64::try_from(data.len()).unwrap_or(0);
        if len == 0 || self.shared.off.load(Ordering::Relaxed) {
            return;
        }
        let range = offset..offset.saturating_add(len);
        let planned = self.shared.streams().on_read(file, &range);
        for range in planned {
            // A full queue means that the reader is faster: it is served as it asks.
            let _dropped = self.pieces.try_send(Piece { file, range });
        }
    }
}

impl PushShared {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unpoisoned()
    }

    fn gaps(&self) -> MutexGuard<'_, VecDeque<Gap>> {
        self.gaps.lock().unpoisoned()
    }

    fn work(&self, waiting: &Receiver<Piece>, notifier: &Notifier) {
        while let Ok(piece) = waiting.recv() {
            let range = self.streams().still_ahead(piece.file, &piece.range);
            let Some(range) = range.filter(|_| !self.off.load(Ordering::Relaxed)) else {
                continue;
            };
            if let Err(error) = self.push(notifier, piece.file, range) {
                self.off.store(true, Ordering::Relaxed);
                tracing::debug!("no longer pushing into the page cache: {error}");
            }
        }
    }

    fn push(&self, notifier: &Notifier, file: u64, range: Range<u64>) -> io::Result<()> {
        let len = u32::try_from(range.end - range.start).unwrap_or(0);
        // A bad block is for the reader to find, if it ever gets there.
        let Ok(data) = self.core.read(file, range.start, len) else {
            return Ok(());
        };
        let whole = u32::try_from(data.len()) == Ok(len);
        // Nothing follows the end of the file that a gap would have to announce.
        let (stored, gap) = match data.split_at_checked(data.len().saturating_sub(GAP)) {
            Some((stored, gap)) if whole => (stored, gap),
            _ => (&*data, &[][..]),
        };
        if !gap.is_empty() {
            let mut gaps = self.gaps();
            gaps.push_back(Gap {
                file,
                offset: range.end - u64::try_from(gap.len()).unwrap_or(0),
                bytes: gap.to_vec(),
            });
            if gaps.len() > KEPT_GAPS {
                gaps.pop_front();
            }
        }
        if stored.is_empty() {
            return Ok(());
        }
        self.core.counts.add(Operation::Store);
        notifier.store(INodeNo(file), range.start, stored)
    }
}
