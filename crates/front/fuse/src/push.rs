//! Readahead without the kernel's help: what a sequential reader will want next is stored in the
//! page cache before it asks (FUSE_NOTIFY_STORE).
//!
//! Without root the kernel reads ahead 128 KiB and no more. The engine keeps megabytes ahead, but
//! each 128 KiB still cost the reader a round trip. This moves them over in pieces of 1 MiB.
//!
//! The pages left out between pieces (see [`crate::streams`]) are kept here until they are asked for,
//! so that the engine sees one reader going forward and not a second one hopping behind.
//!
//! Compressed blocks that are read at random places are stored too, also where the kernel reads ahead as much as it is
//! told: a read of 4 KiB has all of its block decoded, and later reads of that need no request.
//!
//! A store may wait for a request under way (see [`crate::page_store`]). It is therefore never done by a thread that answers
//! requests: one thread of its own does nothing else. Any error of the kernel, but that it has forgotten the file, turns the
//! pusher off for good; reading goes on without it.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::{Unpoisoned, u64_from, usize_from};
use forerun_sys::threads;

use crate::core::Core;
use crate::counts::Operation;
use crate::page_store::PageStore;
use crate::scattered::Scattered;
use crate::streams::{GAP, Streams};
use crate::tuning::{KEPT_GAPS, STORE_WINDOW, WAITING_PIECES};

/// Bytes of a page of the kernel, or a part of one.
const PAGE: u64 = 4096;

/// The thread that pushes, as seen from those that answer requests.
pub struct Pusher {
    shared: Arc<PushShared>,
    pieces: SyncSender<Piece>,
}

struct Piece {
    file: u64,
    range: Range<u64>,
    part: Part,
}

/// Selects what to store.
#[derive(Clone, Copy)]
enum Part {
    /// The range, which a sequential reader will want.
    Range,
    /// The block in which the range lies.
    Block,
}

struct Gap {
    file: u64,
    offset: u64,
    bytes: Vec<u8>,
}

struct PushShared {
    core: Arc<Core>,
    streams: Mutex<Streams>,
    scattered: Mutex<Scattered>,
    /// Whether to store what sequential readers will want.
    ahead: bool,
    gaps: Mutex<VecDeque<Gap>>,
    off: AtomicBool,
}

impl Pusher {
    /// Starts the thread, which stores what sequential readers will want where that is `ahead` of the kernel.
    ///
    /// # Errors
    /// That it cannot be started: it is not needed for correctness.
    pub fn start(core: Arc<Core>, store: PageStore, ahead: bool) -> io::Result<Self> {
        let window = STORE_WINDOW.min(core.reader.options().readahead);
        let (pieces, waiting) = sync_channel(WAITING_PIECES);
        let shared = Arc::new(PushShared {
            core,
            streams: Mutex::new(Streams::new(window)),
            scattered: Mutex::default(),
            ahead,
            gaps: Mutex::default(),
            off: AtomicBool::new(false),
        });
        let pusher = Self {
            shared: Arc::clone(&shared),
            pieces,
        };
        let body = move || shared.work(&waiting, &store);
        let started = threads::spawn("forerun-fuse-push", body);
        started.map(|_| pusher)
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
        let len = u64_from(data.len());
        if len == 0 || self.shared.off.load(Ordering::Relaxed) {
            return;
        }
        let range = offset..offset + len;
        // A full queue means that the reader is faster: it is served as it asks.
        let send = |range, part| {
            let _dropped = self.pieces.try_send(Piece { file, range, part });
        };
        if self.shared.scattered().on_read(file, &range) {
            send(range.clone(), Part::Block);
        }
        if self.shared.ahead {
            let planned = self.shared.streams().on_read(file, &range);
            planned
                .into_iter()
                .for_each(|range| send(range, Part::Range));
        }
    }
}

impl PushShared {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unpoisoned()
    }

    fn scattered(&self) -> MutexGuard<'_, Scattered> {
        self.scattered.lock().unpoisoned()
    }

    fn gaps(&self) -> MutexGuard<'_, VecDeque<Gap>> {
        self.gaps.lock().unpoisoned()
    }

    fn work(&self, waiting: &Receiver<Piece>, store: &PageStore) {
        while let Ok(piece) = waiting.recv() {
            if self.off.load(Ordering::Relaxed) {
                continue;
            }
            let stored = match piece.part {
                Part::Range => {
                    // Unlocked before the store: the threads that answer what a store waits for take the same lock.
                    let ahead = self.streams().still_ahead(piece.file, &piece.range);
                    ahead.map_or(Ok(()), |range| self.push(store, piece.file, range))
                }
                Part::Block => self.push_block(store, piece.file, piece.range),
            };
            if let Err(error) = stored {
                self.off.store(true, Ordering::Relaxed);
                tracing::debug!("no longer pushing into the page cache: {error}");
            }
        }
    }

    /// Stores the block in which `range` lies, from the first page that is all in it.
    fn push_block(&self, store: &PageStore, file: u64, range: Range<u64>) -> io::Result<()> {
        let node = self.core.node(file);
        let reader = &self.core.reader;
        let stored = reader.keep_rest_of_block(node, range, |start, data| {
            self.store_pages(store, file, start, data)
        });
        self.scattered().looked(file, stored.is_some());
        stored.unwrap_or(Ok(()))
    }

    fn store_pages(&self, store: &PageStore, file: u64, start: u64, data: &[u8]) -> io::Result<()> {
        let at = start.next_multiple_of(PAGE);
        let pages = data.get(usize_from(at - start)..).unwrap_or_default();
        self.store(store, file, at, pages.to_vec())
    }

    fn push(&self, store: &PageStore, file: u64, range: Range<u64>) -> io::Result<()> {
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
        self.store(store, file, range.start, stored.to_vec())
    }

    fn store(&self, store: &PageStore, file: u64, at: u64, data: Vec<u8>) -> io::Result<()> {
        if store.store(file, at, data)? {
            self.core.counts.add(Operation::Store);
        }
        Ok(())
    }
}
