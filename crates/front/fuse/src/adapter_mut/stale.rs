//! Tells the kernel to drop names (those that have gone without its knowledge, and aliases) and
//! attributes.
//!
//! A separate thread sends the messages. The kernel processes such a message only after it has
//! released the directory, that is, after the answer to the request that removed the name. A thread
//! blocked there cannot be killed, so it holds none of the process's files (see [`Apart`]).

use std::sync::Weak;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use forerun_sys::threads;
use forerun_vfs::NodeId;

use super::core::CoreMut;
use super::known::Name;
use crate::apart::Apart;

/// How long an answer waits until the kernel has dropped attributes. It takes longer only if names
/// before them wait for their directories.
const WAIT: Duration = Duration::from_millis(100);

/// The channel to that thread, which ends when this is dropped.
pub struct Stale {
    outdated: Sender<Outdated>,
}

/// What the kernel is to drop.
enum Outdated {
    /// A former name of a node.
    Name(NodeId, Name),
    /// An alias of a node.
    Alias(NodeId, Name),
    /// The attributes of an inode. The sender is dropped when that has happened.
    Attributes(u64, Sender<()>),
}

impl Stale {
    pub fn start(kernel: Apart, core: Weak<CoreMut>) -> Option<Self> {
        let (sender, outdated) = channel::<Outdated>();
        let drop_name = move |kernel: &Apart, name: &Name| {
            let number = core.upgrade().map(|core| core.number(name.dir));
            if let Some(Ok(dir)) = number {
                kernel.drop_name(dir, &name.name);
            }
            core.upgrade()
        };
        let started = threads::spawn("forerun-stale", move || {
            for outdated in outdated {
                match outdated {
                    Outdated::Name(node, name) => {
                        if let Some(core) = drop_name(&kernel, &name) {
                            core.known.name_has_gone(node);
                        }
                    }
                    Outdated::Alias(node, name) => {
                        if let Some(core) = drop_name(&kernel, &name) {
                            core.known.alias_dropped(node, &name);
                        }
                    }
                    Outdated::Attributes(number, _dropped) => kernel.drop_attributes(number),
                }
            }
        });
        let outdated = sender;
        started.is_ok().then_some(Self { outdated })
    }

    /// Has the kernel drop a former name of `node`.
    pub fn drop_name(&self, node: NodeId, name: Name) {
        self.tell(Outdated::Name(node, name));
    }

    pub fn drop_alias(&self, node: NodeId, name: Name) {
        self.tell(Outdated::Alias(node, name));
    }

    /// Has the kernel ask for the attributes of an inode again, and waits until it will.
    pub fn drop_attributes(&self, number: u64) {
        let (sender, dropped) = channel();
        self.tell(Outdated::Attributes(number, sender));
        let _it_is_dropped = dropped.recv_timeout(WAIT);
    }

    fn tell(&self, outdated: Outdated) {
        let _the_mount_ends = self.outdated.send(outdated);
    }
}
