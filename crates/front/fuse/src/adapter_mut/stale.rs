//! Tells the kernel to drop names: aliases, and names that are gone without its knowledge.
//!
//! A separate thread sends the messages. The kernel processes such a message only after it has
//! released the directory, that is, after the answer to the request that removed the name. A thread
//! blocked there cannot be killed, so it holds none of the process's files (see [`Apart`]).

use std::sync::Weak;
use std::sync::mpsc::{Sender, channel};

use forerun_sys::threads;
use forerun_vfs::NodeId;

use super::core::CoreMut;
use super::known::Name;
use crate::apart::Apart;

/// The channel to the thread, which ends when this value is dropped.
pub struct Stale {
    names: Sender<Gone>,
}

impl Stale {
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

    /// Makes the kernel drop a name that no longer exists.
    pub fn drop_name(&self, name: Name) {
        self.tell(name, None);
    }

    pub fn drop_alias(&self, node: NodeId, name: Name) {
        self.tell(name, Some(node));
    }

    fn tell(&self, name: Name, alias_of: Option<NodeId>) {
        let _the_mount_ends = self.names.send(Gone { name, alias_of });
    }
}

struct Gone {
    name: Name,
    /// The node, if the name is an alias.
    alias_of: Option<NodeId>,
}
