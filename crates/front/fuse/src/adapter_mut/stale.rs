//! Tells the kernel to drop attributes, and names: aliases, and names that are gone without its
//! knowledge.
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

/// The channel to the thread, which ends when this value is dropped.
pub struct Stale {
    outdated: Sender<Outdated>,
}

enum Outdated {
    Name {
        name: Name,
        /// The node, if the name is an alias.
        alias_of: Option<NodeId>,
    },
    /// The attributes of an inode. The sender is dropped when the kernel has dropped them.
    Attributes(u64, Sender<()>),
}

impl Stale {
    pub fn start(kernel: Apart, core: Weak<CoreMut>) -> Option<Self> {
        let (sender, outdated) = channel::<Outdated>();
        let started = threads::spawn("forerun-stale", move || {
            for outdated in outdated {
                match outdated {
                    Outdated::Name { name, alias_of } => {
                        let number = core.upgrade().map(|core| core.number(name.dir));
                        if let Some(Ok(dir)) = number {
                            kernel.drop_name(dir, &name.name);
                        }
                        if let (Some(core), Some(node)) = (core.upgrade(), alias_of) {
                            core.known.alias_dropped(node, &name);
                        }
                    }
                    Outdated::Attributes(number, _dropped) => kernel.drop_attributes(number),
                }
            }
        });
        started.is_ok().then_some(Self { outdated: sender })
    }

    /// Makes the kernel drop a name that no longer exists.
    pub fn drop_name(&self, name: Name) {
        let alias_of = None;
        self.tell(Outdated::Name { name, alias_of });
    }

    pub fn drop_alias(&self, node: NodeId, name: Name) {
        let alias_of = Some(node);
        self.tell(Outdated::Name { name, alias_of });
    }

    /// Makes the kernel ask for the attributes of an inode again, and waits until it has dropped
    /// them.
    pub fn drop_attributes(&self, number: u64) {
        let (sender, dropped) = channel();
        self.tell(Outdated::Attributes(number, sender));
        let _it_is_dropped = dropped.recv_timeout(WAIT);
    }

    fn tell(&self, outdated: Outdated) {
        let _the_mount_ends = self.outdated.send(outdated);
    }
}
