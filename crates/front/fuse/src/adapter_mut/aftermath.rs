//! Errors and invalidations that are due after a server has died with changes that were not durable.
//!
//! Openings of a file that lost changes report an error of the device: their writes and fsync(2) fail.
//! Openings by this server do not. The server knows of no openings of directories, so the first
//! fsync(2) of a directory that lost changes fails, and the first one of the root if anything was lost.
//!
//! The kernel still caches names, attributes and listings from before, and is told to drop them before
//! any request is answered. That message must not wait for anything that a request has locked: a thread
//! that waits in the kernel keeps its process from dying, and then the next process cannot answer the
//! requests. So names are dropped by the epoch of the connection (Linux 6.16). On older kernels a
//! thread that holds no file of the process drops them one by one. Pages of a file are dropped when the
//! file is opened.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use forerun_io::Unpoisoned;
use forerun_sys::threads;
use fuser::{Errno, FileHandle, INodeNo, Notifier};

use crate::apart::Apart;

/// Number of the notification after which the kernel looks up every name again.
const NOTIFY_INC_EPOCH: u32 = 8;

/// The inodes whose changes were lost.
#[derive(Debug, Default)]
pub struct Aftermath {
    /// Servers before this one.
    server: u64,
    lost: Mutex<HashMap<u64, u64>>,
    is_any_lost: AtomicBool,
    /// Inodes among them that were opened since: the kernel has dropped their pages.
    opened: Mutex<HashSet<u64>>,
}

/// Entries of the kernel's caches that are to be dropped.
#[derive(Debug, Default)]
pub struct Outdated {
    /// Directories and names.
    pub names: Vec<(u64, Vec<u8>)>,
    /// Files with attributes.
    pub files: Vec<u64>,
    /// Directories with listings.
    pub directories: Vec<u64>,
}

impl Outdated {
    /// Has the kernel drop it.
    pub fn tell(self, notifier: &Notifier, connection: impl AsFd) {
        // An error says that the kernel had dropped it already.
        for number in self.files {
            let _gone = notifier.inval_inode(INodeNo(number), -1, 0);
        }
        for number in self.directories {
            let _gone = notifier.inval_inode(INodeNo(number), 0, 0);
        }
        if self.names.is_empty() || begin_epoch(&connection).is_ok() {
            return;
        }
        let names = self.names;
        let started = Apart::start(connection.as_fd()).and_then(|kernel| {
            threads::spawn("forerun-outdated", move || {
                for (directory, name) in names {
                    kernel.drop_name(directory, &name);
                }
            })
        });
        if let Err(error) = started {
            tracing::error!("the kernel keeps names that were lost: {error}");
        }
    }
}

/// Has the kernel look up every name again before it is used.
fn begin_epoch(connection: impl AsFd) -> rustix::io::Result<()> {
    let len: u32 = 16;
    let mut message = [len, NOTIFY_INC_EPOCH].map(u32::to_ne_bytes).concat();
    // No request has this number: the message is a notification.
    message.extend_from_slice(&0_u64.to_ne_bytes());
    rustix::io::write(connection, &message).map(drop)
}

impl Aftermath {
    /// Creates the state for a mount that has had `server` servers. `lost` has the inodes whose changes
    /// were lost, each with the number of the first server whose openings are not affected.
    pub fn new(server: u64, lost: HashMap<u64, u64>) -> Self {
        Self {
            server,
            is_any_lost: AtomicBool::new(!lost.is_empty()),
            lost: Mutex::new(lost),
            opened: Mutex::default(),
        }
    }

    /// Returns whether the kernel may have pages of a file that were lost. They are dropped by the first
    /// opening.
    pub fn take_stale(&self, number: u64) -> bool {
        if !self.is_any_lost.load(Ordering::Relaxed) || !self.lost().contains_key(&number) {
            return false;
        }
        let mut opened = self.opened.lock().unpoisoned();
        opened.insert(number)
    }

    /// Returns the handle of all openings by this server, which tells them from those by earlier ones.
    pub const fn handle(&self) -> FileHandle {
        FileHandle(self.server)
    }

    /// Fails where changes by this opening of a file were lost.
    pub fn check(&self, number: u64, handle: FileHandle) -> Result<(), Errno> {
        if !self.is_any_lost.load(Ordering::Relaxed) {
            return Ok(());
        }
        match self.lost().get(&number) {
            Some(server) if handle.0 < *server => Err(Errno::EIO),
            _ => Ok(()),
        }
    }

    /// Returns whether changes of a directory were lost, once.
    pub fn take_report(&self, number: u64) -> bool {
        self.is_any_lost.load(Ordering::Relaxed) && self.lost().remove(&number).is_some()
    }

    /// Drops what is known of an inode that the kernel has forgotten: no opening is left.
    pub fn forget(&self, number: u64) {
        if self.is_any_lost.load(Ordering::Relaxed) {
            self.lost().remove(&number);
        }
    }

    fn lost(&self) -> MutexGuard<'_, HashMap<u64, u64>> {
        self.lost.lock().unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_openings_from_before_are_told() {
        let lost = HashMap::from([(7, 2), (1, 2)]);
        let after = Aftermath::new(2, lost);
        assert!(after.check(7, FileHandle(0)).is_err());
        assert!(after.check(7, FileHandle(1)).is_err());
        assert!(after.check(7, after.handle()).is_ok());
        assert!(after.check(8, FileHandle(0)).is_ok());
        assert!(after.take_stale(7) && !after.take_stale(7) && !after.take_stale(8));
        assert!(after.take_report(1));
        assert!(!after.take_report(1));
        after.forget(7);
        assert!(after.check(7, FileHandle(0)).is_ok());
    }
}
