//! Readahead across small files during a tree read: pushes them into the page cache
//! (FUSE_NOTIFY_STORE).
//!
//! A file of some KiB is one request, and a program that reads thousands of them spends more time on
//! the round trips than on the bytes. The engine knows which files come next and has them decoded.
//! This puts them into the page cache before they are opened, except for one now and then: its
//! request says how far the reader has come.
//!
//! A store waits for pages that a request in flight has locked, so a thread that answers no requests
//! does it. Threads that answer requests store only a few files: the first files of a directory,
//! before its listing is said to have ended, and the next ones with the answer for a file that should
//! have been stored before. Their reader cannot have asked for them yet. If another program has,
//! another thread answers it: there always is one ([`Workers`](crate::workers::Workers)). Files that
//! the kernel has not heard of, or has forgotten, are left alone; any other error ends the pushing,
//! and reading goes on without it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use forerun_vfs::NodeId;
use fuser::{INodeNo, Notifier};

use crate::core::Core;
use crate::counts::Operation;
use crate::tuning::{FIRST_FILES, NEXT_FILES, STORED_FILE, STORED_TOGETHER};

/// The thread that pushes, as seen from those that answer requests.
pub struct TreePusher {
    core: Arc<Core>,
    notifier: Notifier,
    wake: SyncSender<()>,
    off: Arc<AtomicBool>,
    /// Held by a thread that stores other files before it answers for one.
    before_answer: Mutex<()>,
}

impl TreePusher {
    /// Starts the thread. Nothing where it cannot be started: it is not needed for correctness.
    pub fn start(core: Arc<Core>, notifier: Notifier) -> Option<Self> {
        // One pending wake-up is enough: the thread takes all files there are.
        let (wake, woken) = sync_channel(1);
        let off = Arc::new(AtomicBool::new(false));
        let pusher = Self {
            core: Arc::clone(&core),
            notifier: notifier.clone(),
            wake,
            off: Arc::clone(&off),
            before_answer: Mutex::new(()),
        };
        let thread = std::thread::Builder::new().name("forerun-fuse-tree".to_string());
        let started = thread.spawn(move || work(&core, &notifier, &woken, &off));
        started.ok().map(|_| pusher)
    }

    /// Says that a reader has gone on.
    pub fn wake(&self) {
        if self.is_wanted() {
            let _is_awake_already = self.wake.try_send(());
        }
    }

    /// Says that a directory was listed, before its reader is told that this was all. Programs that only
    /// list pay nothing for it.
    pub fn listed(&self, number: u64) {
        if !self.is_wanted() {
            return;
        }
        let dir = self.core.node(number);
        self.push_now(|| self.core.reader.upcoming_in(dir, FIRST_FILES));
        self.wake();
    }

    /// Says that a file is asked for, before its reader gets it: the thread is behind.
    ///
    /// Storing before replying can deadlock on page locks: the read that is answered has pages locked,
    /// and the store may wait for the pages of another read. So only one thread at a time may do it.
    pub fn is_behind(&self) {
        if self.is_wanted()
            && let Ok(_alone) = self.before_answer.try_lock()
        {
            self.push_now(|| self.core.reader.upcoming(NEXT_FILES));
        }
    }

    /// Stores files on a thread that answers requests. Where the image is slow, one of their pages may
    /// be asked for by a request that waits, and the store would wait with it: then the thread of the
    /// pusher does it alone.
    fn push_now(&self, files: impl FnOnce() -> Vec<NodeId>) {
        if self.core.reader.is_slow() {
            return;
        }
        let files = files();
        if let Err(error) = push_all(&self.core, &self.notifier, &files) {
            turn_off(&self.off, &error);
        }
    }

    fn is_wanted(&self) -> bool {
        self.core.reader.reads_trees() && !self.off.load(Ordering::Relaxed)
    }
}

fn turn_off(off: &AtomicBool, error: &io::Error) {
    tracing::debug!("no longer pushing small files: {error}");
    off.store(true, Ordering::Relaxed);
}

fn work(core: &Core, notifier: &Notifier, woken: &Receiver<()>, off: &AtomicBool) {
    while woken.recv().is_ok() {
        loop {
            let files = core.reader.upcoming(STORED_TOGETHER);
            if files.is_empty() {
                break;
            }
            if let Err(error) = push_all(core, notifier, &files) {
                return turn_off(off, &error);
            }
        }
    }
}

fn push_all(core: &Core, notifier: &Notifier, files: &[NodeId]) -> io::Result<()> {
    let unread = files.iter().filter(|&&file| !core.reader.was_read(file));
    unread
        .copied()
        .try_for_each(|file| push(core, notifier, file))
}

fn push(core: &Core, notifier: &Notifier, node: NodeId) -> io::Result<()> {
    // What is wrong with a file is for its reader to find, if it ever gets there.
    let Ok(number) = core.number(node) else {
        return Ok(());
    };
    let Ok(data) = core.read_aside(node, STORED_FILE) else {
        return Ok(());
    };
    if data.is_empty() {
        return Ok(());
    }
    core.counts.add(Operation::Store);
    match notifier.store(INodeNo(number), 0, &data) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
