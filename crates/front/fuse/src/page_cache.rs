//! The kernel's page cache, which takes small files before they are opened (FUSE_NOTIFY_STORE).
//!
//! A store waits for pages that a request in flight has locked. The engine takes care that such a
//! request is answered by another thread: there always is one ([`Workers`](crate::workers::Workers)).
//! Files that the kernel has not heard of, or has forgotten, are left alone; any other error ends the
//! pushing, and reading goes on without it.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock, Weak};

use forerun_engine::Sink;
use forerun_vfs::NodeId;
use fuser::{INodeNo, Notifier};

use crate::core::Core;
use crate::counts::Operation;

/// The page cache behind one mount. Takes nothing before it is connected.
#[derive(Default)]
pub struct PageCache {
    mount: OnceLock<(Weak<Core>, Notifier)>,
}

impl PageCache {
    /// Stores files of `core` through `notifier` from now on.
    pub fn connect(&self, core: &Arc<Core>, notifier: Notifier) {
        let _is_set_once = self.mount.set((Arc::downgrade(core), notifier));
    }
}

impl Sink for PageCache {
    fn store(&self, file: NodeId, data: &[u8]) -> ControlFlow<()> {
        let Some((core, notifier)) = self.mount.get() else {
            return ControlFlow::Continue(());
        };
        let Some(core) = core.upgrade() else {
            return ControlFlow::Break(());
        };
        let Ok(number) = core.number(file) else {
            return ControlFlow::Continue(());
        };
        core.counts.add(Operation::Store);
        match notifier.store(INodeNo(number), 0, data) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => ControlFlow::Continue(()),
            Err(error) => {
                tracing::debug!("no longer pushing small files: {error}");
                ControlFlow::Break(())
            }
        }
    }
}
