//! A reader that is done with files before the plan to read them ahead is ready.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use forerun_engine::EngineOptions;
use forerun_io::{Counter, Limits};
use forerun_testkit::opened::reader_on;
use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{DirCursor, DirEntry, Extent, FileSystem, Metadata, NodeId, Result, VolumeInfo};

use crate::common::{KIB, MIB, pattern};

/// A driver in which the first plan waits until the test lets it go on.
struct SlowPlan {
    fs: Arc<dyn FileSystem>,
    reader: ThreadId,
    has_begun: AtomicBool,
    begins: Barrier,
    goes_on: Barrier,
}

impl FileSystem for SlowPlan {
    fn volume(&self) -> VolumeInfo {
        self.fs.volume()
    }

    fn root(&self) -> NodeId {
        self.fs.root()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        self.fs.metadata(node)
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        self.fs.lookup(dir, name)
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        self.fs.read_dir(dir, from, visit)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        self.fs.read_link(node)
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let is_plan = thread::current().id() != self.reader;
        if is_plan && !self.has_begun.swap(true, Ordering::SeqCst) {
            self.begins.wait();
            self.goes_on.wait();
        }
        self.fs.map(node, range, visit)
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        self.fs.describe(node)
    }
}

#[test]
fn what_was_read_while_a_plan_was_made_is_not_decoded_again() {
    const LEN: usize = 256 * KIB;
    let mut builder = MemFsBuilder::new();
    let mut files = Vec::new();
    for n in 0..4 {
        let bytes = pattern(LEN, n);
        let block_len = LEN;
        let piece = Piece::Encoded { bytes, block_len };
        files.push(builder.file(&format!("{n}"), [piece]));
    }
    let image = builder.build();
    let driver = Arc::new(SlowPlan {
        fs: image.driver(),
        reader: thread::current().id(),
        has_begun: AtomicBool::new(false),
        begins: Barrier::new(2),
        goes_on: Barrier::new(2),
    });
    let options = EngineOptions {
        threads: 1,
        // One block is too much for the comfort of the cache: each is evicted once it was served.
        cache: 5 * MIB as u64,
        ..EngineOptions::default()
    };
    let source = Arc::new(image.source.clone());
    let reader = reader_on(driver.clone(), source, options, Limits::default());
    let list = |_: DirEntry<'_>| ControlFlow::Continue(());
    let root = reader.fs().root();
    reader
        .fs()
        .read_dir(root, DirCursor::START, &mut { list })
        .unwrap();
    let read = |node| assert_eq!(reader.read(node, 0, LEN).unwrap().len(), LEN);
    read(files[0]);
    read(files[1]);
    driver.begins.wait();
    read(files[2]);
    driver.goes_on.wait();
    // The plan has two files, and the one thread of the pool decodes their blocks in this order.
    let stats = reader.observer().stats();
    let deadline = Instant::now() + Duration::from_secs(60);
    while stats.get(Counter::Decodes) < 4 {
        assert!(Instant::now() < deadline, "nothing is decoded ahead");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(stats.get(Counter::RepeatedDecodes), 0);
}
