//! Telling the kernel to drop names: names that have gone without its knowing, and aliases.
//!
//! A thread of its own does it. The kernel takes the message only when it has let go of the directory,
//! which it has not before the request that removed the name is answered.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Weak;
use std::sync::mpsc::{Sender, channel};

use forerun_vfs::NodeId;
use fuser::{INodeNo, Notifier};

use super::core::CoreMut;
use super::known::Name;

/// The way to that thread. The thread ends when this is dropped.
pub struct Stale {
    names: Sender<Gone>,
}

impl Stale {
    /// Starts the thread. Returns nothing if the thread cannot be started.
    pub fn start(notifier: Notifier, core: Weak<CoreMut>) -> Option<Self> {
        let (names, gone) = channel::<Gone>();
        let thread = std::thread::Builder::new().name("forerun-stale".to_string());
        let started = thread.spawn(move || {
            for gone in gone {
                let number = core.upgrade().map(|core| core.number(gone.name.dir));
                if let Some(Ok(dir)) = number {
                    let name = OsStr::from_bytes(&gone.name.name);
                    // An error says that the kernel had dropped it itself.
                    let _it_has_gone = notifier.inval_entry(INodeNo(dir), name);
                }
                if let (Some(core), Some(node)) = (core.upgrade(), gone.alias_of) {
                    core.known.alias_dropped(node, &gone.name);
                }
            }
        });
        started.is_ok().then_some(Self { names })
    }

    /// Has the kernel drop a name that has gone.
    pub fn drop_name(&self, name: Name) {
        self.tell(name, None);
    }

    /// Has the kernel drop this alias of `node`.
    pub fn drop_alias(&self, node: NodeId, name: Name) {
        self.tell(name, Some(node));
    }

    fn tell(&self, name: Name, alias_of: Option<NodeId>) {
        let _the_mount_ends = self.names.send(Gone { name, alias_of });
    }
}

/// A name that the kernel is to drop.
struct Gone {
    name: Name,
    /// The node, for an alias.
    alias_of: Option<NodeId>,
}
