//! Stores small files in the kernel's page cache before they are opened (FUSE_NOTIFY_STORE).
//!
//! Files being read are skipped (see [`crate::page_store`]), and so are files that the kernel does
//! not know or has forgotten. Any other error ends the pushing; reading continues without it.

use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock, Weak};

use forerun_engine::Sink;
use forerun_io::u64_from;
use forerun_vfs::NodeId;
use fuser::{INodeNo, Notifier};

use crate::core::Core;
use crate::counts::Operation;
use crate::page_store::is_free;
use crate::tuning::STORE_ATTEMPTS;
use crate::unmounter::Unmounter;

/// The page cache of one mount. Stores nothing before `connect`.
#[derive(Default)]
pub struct PageCache {
    mount: OnceLock<(Weak<Core>, Notifier, Unmounter)>,
}

impl PageCache {
    pub fn connect(&self, core: &Arc<Core>, notifier: Notifier, unmounter: Unmounter) {
        let _is_set_once = self.mount.set((Arc::downgrade(core), notifier, unmounter));
    }
}

impl Sink for PageCache {
    fn store(&self, file: NodeId, data: &[u8]) -> ControlFlow<()> {
        let Some((core, notifier, unmounter)) = self.mount.get() else {
            return ControlFlow::Continue(());
        };
        let Some(core) = core.upgrade() else {
            return ControlFlow::Break(());
        };
        let Ok(number) = core.number(file) else {
            return ControlFlow::Continue(());
        };
        let all = (number, 0..u64_from(data.len()));
        let has_requests = || unmounter.has_requests();
        if !is_free(STORE_ATTEMPTS, has_requests, &core.under_way, &all) {
            return ControlFlow::Continue(());
        }
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
