//! Telling the kernel of names that have gone without its knowing.
//!
//! From a thread of its own: the kernel takes the message only when it has let go of the directory,
//! which it has not before the request that removed the name is answered.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{Sender, channel};

use fuser::{INodeNo, Notifier};

/// The way to that thread; it ends with this.
pub struct Stale {
    names: Sender<(u64, Box<[u8]>)>,
}

impl Stale {
    /// Starts the thread; nothing where none can be had.
    pub fn start(notifier: Notifier) -> Option<Self> {
        let (names, gone) = channel::<(u64, Box<[u8]>)>();
        let thread = std::thread::Builder::new().name("forerun-stale".to_string());
        let started = thread.spawn(move || {
            for (dir, name) in gone {
                let name = OsStr::from_bytes(&name);
                // An error says that the kernel had dropped it itself.
                let _it_has_gone = notifier.inval_entry(INodeNo(dir), name);
            }
        });
        started.is_ok().then_some(Self { names })
    }

    /// The name in this directory.
    pub fn tell(&self, dir: u64, name: Box<[u8]>) {
        let _the_mount_ends = self.names.send((dir, name));
    }
}
