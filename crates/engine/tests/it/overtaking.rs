//! A reader that finishes files before the plan to read them ahead is ready.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use forerun_engine::EngineOptions;
use forerun_io::{Counter, Limits};
use forerun_testkit::opened::reader_on;
use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{DirCursor, DirEntry};

use crate::common::{KIB, MIB, pattern};

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
    let (reader, has_begun) = (thread::current().id(), AtomicBool::new(false));
    let [begins, goes_on] = [(); 2].map(|()| Arc::new(Barrier::new(2)));
    let (plan_begins, plan_goes_on) = (Arc::clone(&begins), Arc::clone(&goes_on));
    // The first plan waits until the test releases it.
    builder.on_map(move |_, range| {
        let is_plan = thread::current().id() != reader;
        if is_plan && !has_begun.swap(true, Ordering::SeqCst) {
            plan_begins.wait();
            plan_goes_on.wait();
        }
        vec![range]
    });
    let image = builder.build();
    let options = EngineOptions {
        threads: 1,
        // One block is above the threshold of the cache, so each block is evicted once it was
        // served.
        cache: 5 * MIB as u64,
        ..EngineOptions::default()
    };
    let source = Arc::new(image.source.clone());
    let reader = reader_on(image.driver(), source, options, Limits::default());
    let list = |_: DirEntry<'_>| ControlFlow::Continue(());
    let root = reader.fs().root();
    reader
        .fs()
        .read_dir(root, DirCursor::START, &mut { list })
        .unwrap();
    let read = |node| assert_eq!(reader.read(node, 0, LEN).unwrap().len(), LEN);
    read(files[0]);
    read(files[1]);
    begins.wait();
    read(files[2]);
    goes_on.wait();
    // The plan has two files, and the one thread of the pool decodes their blocks in this order.
    let stats = reader.observer().stats();
    let deadline = Instant::now() + Duration::from_secs(60);
    while stats.get(Counter::Decodes) < 4 {
        assert!(Instant::now() < deadline, "nothing is decoded ahead");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(stats.get(Counter::RepeatedDecodes), 0);
}

#[test]
fn extents_behind_what_was_asked_for_are_not_planned() {
    let mut builder = MemFsBuilder::new();
    let bytes = pattern(8 * MIB, 1);
    let file = builder.file("f", [Piece::Stored(bytes.clone())]);
    builder.on_map(|_, range| {
        let behind = range.end..range.end + 4096;
        vec![range, behind]
    });
    let image = builder.build();
    let source = Arc::new(image.source.clone());
    let options = EngineOptions::default();
    let reader = reader_on(image.driver(), source, options, Limits::default());
    for at in (0..bytes.len()).step_by(128 * KIB) {
        let read = reader.read(file, at as u64, 128 * KIB).unwrap();
        assert!(read[..] == bytes[at..at + 128 * KIB], "{at}");
    }
    assert_eq!(reader.observer().stats().get(Counter::RepeatedDecodes), 0);
}
