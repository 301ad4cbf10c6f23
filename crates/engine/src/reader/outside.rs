//! Readahead across small files that the kernel reads by itself.
//!
//! At open, a front end may pass the kernel a file that holds the data (passthrough). This process
//! then sees no reads, but each open shows how far the reader of a tree has come. So the engine
//! opens the next files ahead of the reader, which brings their names and inodes into memory, and
//! hints their data to the store. Several threads do so, because an open may wait for the disk.

use std::sync::{Arc, Mutex};

use forerun_io::BlobId;
use forerun_vfs::NodeId;

use super::{Inner, Reader};
use crate::ahead::{Plan, Walk};
use crate::tuning::{FILE_GAP, HINTED_TOGETHER};

impl Reader {
    /// Records that a file was opened whose data the kernel reads by itself, from a blob that is
    /// not the image.
    pub fn opened_outside(&self, node: NodeId) {
        // The kernel does not read such files from the cache into which the sink pushes.
        if let Some(pusher) = &self.sink {
            pusher.stop();
        }
        if !self.guesses {
            return;
        }
        let Some(walk) = self.inner.tree.on_read(node) else {
            return;
        };
        self.prefetch_metadata();
        let inner = Arc::clone(&self.inner);
        self.inner.moves.pool.submit_first(move || {
            let plan = inner.walk_on(&walk);
            let blobs = plan.requests().filter(|(blob, _)| *blob != BlobId::IMAGE);
            let blobs: Vec<_> = blobs.collect();
            for part in blobs.chunks(HINTED_TOGETHER) {
                let (moves, part) = (Arc::clone(&inner.moves), part.to_vec());
                inner.moves.pool.submit(move || {
                    for (blob, range) in part {
                        moves.stored.hint(blob, range);
                    }
                });
            }
        });
    }
}

impl Inner {
    pub(super) fn walk_on(&self, walk: &Mutex<Walk>) -> Plan {
        let driver = &*self.driver;
        let expect = |nodes: &[NodeId]| self.metadata.expect_inodes(driver, nodes, FILE_GAP);
        self.tree.go_on(driver, &expect, walk)
    }
}
