//! Small files of a tree, pushed to the front end before it requests them.
//!
//! A file of some KiB is one request, and a program that reads thousands of them spends more time
//! on the round trips than on the bytes. [`TreeAhead`] predicts the next files and has them
//! decoded. The [`Pusher`] hands them to the [`Sink`] of the front end. It leaves some files out:
//! their requests show how far the reader has come.
//!
//! A sink may block: the kernel's page cache waits for pages that a request in flight has locked.
//! So pushing is done by a thread that answers no requests. Threads that answer requests push only
//! the first files of a directory, before they report the end of its listing: its reader cannot
//! have requested these files yet.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use forerun_io::usize_from;
use forerun_sys::threads;
use forerun_vfs::{NodeId, Result};

use super::Reader;
use crate::ahead::TreeAhead;
use crate::tuning::{FIRST_FILES, PUSHED_TOGETHER, TREE_FILE};

/// A cache in a front end, such as the kernel's page cache, for files that no program has
/// requested.
pub trait Sink: Send + Sync {
    /// Stores `data`, the first bytes of `file`. Breaks if the front end takes no more files from
    /// now on (another thread may still be storing one). A sink that has no room for just this file
    /// continues.
    fn store(&self, file: NodeId, data: &[u8]) -> ControlFlow<()>;
}

pub struct Pusher {
    shared: Arc<Shared>,
    wake: SyncSender<()>,
    /// Held by a request thread while it pushes a file before it answers.
    before_answer: Mutex<()>,
}

struct Shared {
    /// A reader without a sink; with one, the thread would keep the pusher alive.
    reader: Reader,
    tree: Arc<TreeAhead>,
    sink: Arc<dyn Sink>,
    is_off: AtomicBool,
}

impl Pusher {
    /// Starts the thread, which ends when the pusher is dropped. Returns `None` if it cannot be
    /// started; reading works without it.
    pub fn start(reader: Reader, tree: Arc<TreeAhead>, sink: Arc<dyn Sink>) -> Option<Self> {
        // One pending wake-up is enough: the thread takes all upcoming files.
        let (wake, woken) = sync_channel(1);
        let shared = Arc::new(Shared {
            reader,
            tree,
            sink,
            is_off: AtomicBool::new(false),
        });
        let pusher = Self {
            shared: Arc::clone(&shared),
            wake,
            before_answer: Mutex::new(()),
        };
        let started = threads::spawn("forerun-push", move || shared.work(&woken));
        started.ok().map(|_| pusher)
    }

    /// Records that the front end has shown part of the listing of `dir`, so a program may request
    /// its files next. Costs nothing for programs that only list.
    pub fn listed(&self, dir: NodeId) {
        if self.shared.is_wanted() {
            // On a slow image, a waiting request may have locked a page of one of these files, and
            // the sink would wait with it. Then only the thread of the pusher pushes.
            if !self.shared.reader.is_slow() {
                let files = self.shared.tree.upcoming_in(dir, FIRST_FILES);
                let _breaks = self.shared.push_all(&files);
            }
            self.wake();
        }
    }

    /// Stops pushing, because files are read elsewhere.
    pub fn stop(&self) {
        self.shared.is_off.store(true, Ordering::Relaxed);
    }

    /// Pushes the contents of `file`, which a program is about to read, before another request of
    /// that program is answered.
    ///
    /// That request locks no pages, but the sink may wait for a read of another program, and that
    /// read for this thread. So only one thread at a time pushes.
    pub fn push_whole(&self, file: NodeId, data: &[u8]) {
        if !self.shared.is_off.load(Ordering::Relaxed)
            && let Ok(_alone) = self.before_answer.try_lock()
            && self.shared.sink.store(file, data).is_break()
        {
            self.shared.is_off.store(true, Ordering::Relaxed);
        }
    }

    /// Wakes the thread, because more files were planned.
    pub fn wake(&self) {
        let _is_awake_already = self.wake.try_send(());
    }
}

impl Reader {
    /// Reads a file that a program is about to read, as [`read`](Self::read) does, and pushes it to
    /// the [`Sink`], if there is one. Skips empty files, and files of more than `most` bytes.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read).
    pub fn push(&self, node: NodeId, most: u32) -> Result<()> {
        let Some(pusher) = &self.sink else {
            return Ok(());
        };
        let size = self.file_size(node)?;
        if size > 0 && size <= u64::from(most) {
            let data = self.read(node, 0, usize_from(size))?;
            pusher.push_whole(node, &data);
        }
        Ok(())
    }
}

impl Shared {
    fn is_wanted(&self) -> bool {
        self.tree.has_walked() && !self.is_off.load(Ordering::Relaxed)
    }

    fn work(&self, woken: &Receiver<()>) {
        while woken.recv().is_ok() {
            loop {
                let files = self.tree.upcoming(PUSHED_TOGETHER);
                if files.is_empty() {
                    break;
                }
                if self.push_all(&files).is_break() {
                    return;
                }
            }
        }
    }

    fn push_all(&self, files: &[NodeId]) -> ControlFlow<()> {
        let mut unread = files.iter().filter(|&&file| !self.tree.was_read(file));
        let result = unread.try_for_each(|&file| self.push(file));
        if result.is_break() {
            self.is_off.store(true, Ordering::Relaxed);
        }
        result
    }

    fn push(&self, file: NodeId) -> ControlFlow<()> {
        if self.is_off.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        // A program that opens the bad file gets its error then.
        match self.reader.read_aside(file, 0, usize_from(TREE_FILE)) {
            Ok(data) if !data.is_empty() => self.sink.store(file, &data),
            _ => ControlFlow::Continue(()),
        }
    }
}
