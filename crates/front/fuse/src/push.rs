//! Readahead without the kernel's help: stores data in the page cache before a sequential reader
//! requests it (FUSE_NOTIFY_STORE).
//!
//! Without root the kernel reads ahead at most 128 KiB. The engine reads megabytes ahead, but the
//! reader would still need a round trip for each 128 KiB. This module stores chunks of 1 MiB
//! instead.
//!
//! The last page of each chunk is not stored (see [`crate::streams`]) but kept here until the
//! kernel requests it. The engine therefore sees one sequential reader.
//!
//! Compressed blocks that are read at random offsets are stored too, even if the kernel's readahead
//! was raised: a read of 4 KiB decodes its whole block, and later reads of the block then need no
//! request.
//!
//! A store may wait for a READ in progress (see [`crate::page_store`]), so a separate thread makes
//! all stores. Any error of the kernel, except that it has forgotten the file, ends the pushing;
//! reading continues without it.

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

/// Length of the kernel's page, or a fraction of it.
const PAGE: u64 = 4096;

/// A handle to the pushing thread, for the threads that answer requests.
pub struct Pusher {
    shared: Arc<PushShared>,
    pieces: SyncSender<Piece>,
}

struct Piece {
    file: u64,
    range: Range<u64>,
    part: Part,
}

#[derive(Clone, Copy)]
enum Part {
    /// The range, which a sequential reader will request.
    Range,
    /// The whole block that contains the range.
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
    ahead: bool,
    gaps: Mutex<VecDeque<Gap>>,
    off: AtomicBool,
}

impl Pusher {
    /// Starts the thread. With `ahead` it also stores ahead of sequential readers. The caller can
    /// continue without it on an error.
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

    /// Returns the page after a chunk, if the kernel requests exactly that page.
    pub fn gap(&self, file: u64, offset: u64, len: u32) -> Option<Vec<u8>> {
        let mut gaps = self.shared.gaps();
        let at = gaps
            .iter()
            .position(|gap| gap.file == file && gap.offset == offset)?;
        // Remove it: the kernel caches it from now on.
        let gap = gaps.remove(at)?;
        (usize::try_from(len) == Ok(gap.bytes.len())).then_some(gap.bytes)
    }

    /// Records that the kernel was given `data` of `file` at `offset`.
    pub fn on_read(&self, file: u64, offset: u64, data: &[u8]) {
        let len = u64_from(data.len());
        if len == 0 || self.shared.off.load(Ordering::Relaxed) {
            return;
        }
        let range = offset..offset + len;
        // If the queue is full, the reader is faster than the pushing thread and requests the data
        // itself.
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
                    // Unlock before the store: the store may wait for a thread that needs this
                    // lock.
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

    /// Stores the block that contains `range`, from its first complete page on.
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
        // Ignore a bad block; the reader gets the error if it reads the block.
        let Ok(data) = self.core.read(file, range.start, len) else {
            return Ok(());
        };
        let whole = u32::try_from(data.len()) == Ok(len);
        // At the end of the file no page is left out.
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
