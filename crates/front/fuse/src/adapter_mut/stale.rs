//! Tells the kernel to drop names: names that have gone without its knowledge, and aliases.
//!
//! This takes a thread of its own. The kernel takes the message only once it has released the
//! directory, which is after the answer to the request that removed the name. So the thread that sends
//! it may hang when the process is killed, and it holds none of the process's files (see [`Apart`]).

use std::sync::Weak;
use std::sync::mpsc::{Sender, channel};

use forerun_sys::threads;
use forerun_vfs::NodeId;

use super::core::CoreMut;
use super::known::Name;
use crate::apart::Apart;

/// The channel to that thread, which ends when this is dropped.
pub struct Stale {
    names: Sender<Gone>,
}

impl Stale {
    /// Starts the thread. Returns nothing if the thread cannot be started.
    pub fn start(kernel: Apart, core: Weak<CoreMut>) -> Option<Self> {
        let (names, gone) = channel::<Gone>();
        let started = threads::spawn("forerun-stale", move || {
            for gone in gone {
                let number = core.upgrade().map(|core| core.number(gone.name.dir));
                if let Some(Ok(dir)) = number {
                    kernel.drop_name(dir, &gone.name.name);
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
