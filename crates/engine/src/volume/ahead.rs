//! Readahead across the small files of a writable volume.
//!
//! The engine caches no data of such a volume: the next write may change it. But the page cache
//! below a local device may hold what will be read next, since all writes go through it or drop its
//! pages. So a walk ahead of the reader ([`TreeAhead`]) hints the bytes of the next files to the
//! device, and reads none itself.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use forerun_io::CountedDevice;
use forerun_sys::threads;
use forerun_vfs::{BlobId, DirCursor, FileSystemMut, NodeId};

use crate::ahead::{TreeAhead, Walk};
use crate::tuning::{VOLUME_FILE, WALKS_WAITING};

/// The readahead of one volume. Dropping it waits for the current step of its thread, so that the
/// thread never holds the last reference to the driver.
pub struct VolumeAhead {
    walker: Arc<Walker>,
    /// `None` if no thread could be started.
    thread: OnceLock<Option<Thread>>,
}

struct Walker {
    fs: Arc<dyn FileSystemMut>,
    device: CountedDevice,
    tree: TreeAhead,
}

struct Thread {
    walks: SyncSender<Arc<Mutex<Walk>>>,
    handle: JoinHandle<()>,
}

impl VolumeAhead {
    /// Creates the readahead of a volume, with at most `window` bytes ahead of each reader (0 turns
    /// it off). The thread starts with the first walk.
    pub fn new(fs: Arc<dyn FileSystemMut>, device: CountedDevice, window: u64) -> Self {
        let tree = TreeAhead::new(window, VOLUME_FILE);
        Self {
            walker: Arc::new(Walker { fs, device, tree }),
            thread: OnceLock::new(),
        }
    }

    /// Records entries of a listing: each node, and the cursor after it.
    pub fn listed(&self, dir: NodeId, entries: &[(NodeId, DirCursor)]) {
        self.walker.tree.listed(dir, entries);
    }

    /// Records that `file` is read from its start, and advances its walk, if it is part of one.
    pub fn on_read(&self, file: NodeId) {
        let Some(walk) = self.walker.tree.on_read(file) else {
            return;
        };
        let thread = self.thread.get_or_init(|| Thread::start(&self.walker));
        if let Some(thread) = thread {
            // If the queue is full, the reader is far ahead of the thread, and hints would come too
            // late.
            let _is_full = thread.walks.try_send(walk);
        }
    }
}

impl Drop for VolumeAhead {
    fn drop(&mut self) {
        let Some(Thread { walks, handle }) = self.thread.take().flatten() else {
            return;
        };
        drop(walks);
        // A panic was logged where it happened.
        let _panicked = handle.join();
    }
}

impl Thread {
    fn start(walker: &Arc<Walker>) -> Option<Self> {
        let (walks, waiting) = sync_channel(WALKS_WAITING);
        let walker = Arc::clone(walker);
        match threads::spawn("forerun-hint", move || walker.work(&waiting)) {
            Ok(handle) => Some(Self { walks, handle }),
            Err(error) => {
                tracing::warn!("cannot start the readahead of the volume: {error}");
                None
            }
        }
    }
}

impl Walker {
    fn work(&self, waiting: &Receiver<Arc<Mutex<Walk>>>) {
        for walk in waiting {
            // The thread changes nothing on the volume, so a panic in it does not abandon the
            // volume.
            if catch_unwind(AssertUnwindSafe(|| self.advance(&walk))).is_err() {
                tracing::error!("the readahead of the volume panicked");
            }
        }
    }

    fn advance(&self, walk: &Mutex<Walk>) {
        let plan = self.tree.go_on(&*self.fs, &|_nodes| {}, walk);
        for (blob, range) in plan.requests() {
            if blob == BlobId::IMAGE {
                self.device.will_need(range);
            }
        }
    }
}
