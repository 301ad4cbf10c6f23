//! Files of a tree read, pushed to a front end before it requests them.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forerun_engine::{EngineOptions, Sink};
use forerun_testkit::{MemFsBuilder, Piece};
use forerun_vfs::{DirCursor, NodeId};

use crate::common::{Opened, open, pattern};

const FILES: u64 = 400;
const LEN: usize = 3000;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A sink that keeps files and breaks once it has `room` of them.
struct Kept {
    files: Mutex<HashMap<NodeId, Vec<u8>>>,
    room: usize,
}

impl Sink for Kept {
    fn store(&self, file: NodeId, data: &[u8]) -> ControlFlow<()> {
        let mut files = self.files.lock().unwrap();
        assert!(files.insert(file, data.to_vec()).is_none(), "once");
        if files.len() < self.room {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

impl Kept {
    fn new(room: usize) -> Arc<Self> {
        Arc::new(Self {
            files: Mutex::default(),
            room,
        })
    }

    fn len(&self) -> usize {
        self.files.lock().unwrap().len()
    }

    fn has(&self, file: NodeId) -> bool {
        self.files.lock().unwrap().contains_key(&file)
    }

    fn wait_for(&self, count: usize) {
        let start = Instant::now();
        while self.len() < count {
            assert!(start.elapsed() < TIMEOUT, "{} of {count}", self.len());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn listed() -> (Opened, Vec<NodeId>) {
    let mut builder = MemFsBuilder::new();
    let file = |n| builder.file(&format!("{n:04}"), [Piece::Stored(pattern(LEN, n))]);
    let files: Vec<_> = (0..FILES).map(file).collect();
    let opened = open(&builder.build(), EngineOptions::default());
    let mut shown = 0;
    let fs = opened.reader.fs();
    fs.read_dir(fs.root(), DirCursor::START, &mut |_| {
        shown += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(shown, FILES);
    (opened, files)
}

#[test]
fn the_sink_gets_files_before_they_are_read() {
    let (opened, files) = listed();
    let sink = Kept::new(usize::MAX);
    let reader = opened.reader.with_sink(Arc::<Kept>::clone(&sink));
    for (n, &file) in (0_u64..).zip(&files[..2]) {
        assert_eq!(&reader.read(file, 0, LEN).unwrap()[..], pattern(LEN, n));
    }
    assert!(!sink.has(files[0]) && !sink.has(files[1]));
    // The rest of the first window: 512 KiB are more than a hundred files.
    sink.wait_for(100);
    // A program requests only the files that it does not find in the sink.
    for &file in &files[2..] {
        if !sink.has(file) {
            reader.read(file, 0, LEN).unwrap();
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    let pushed = sink.files.lock().unwrap();
    for (n, file) in (0_u64..).zip(&files) {
        if let Some(data) = pushed.get(file) {
            assert_eq!(*data, pattern(LEN, n), "file {n}");
        }
    }
    assert!(pushed.len() > files.len() / 2, "{} files", pushed.len());
    assert!(pushed.len() < files.len(), "marks are left out");
}

#[test]
fn a_sink_that_breaks_gets_nothing_more() {
    let (opened, files) = listed();
    let sink = Kept::new(5);
    let reader = opened.reader.with_sink(Arc::<Kept>::clone(&sink));
    for &file in &files[..2] {
        reader.read(file, 0, LEN).unwrap();
    }
    sink.wait_for(5);
    for &file in &files[2..] {
        reader.read(file, 0, LEN).unwrap();
        reader.listed(MemFsBuilder::ROOT);
    }
    // The pushing thread may have been storing one file.
    assert!(sink.len() <= 6, "{} files", sink.len());
}

#[test]
fn readers_without_a_sink_push_nothing() {
    let (opened, files) = listed();
    let sink = Kept::new(usize::MAX);
    drop(opened.reader.with_sink(Arc::<Kept>::clone(&sink)));
    for &file in &files {
        opened.reader.read(file, 0, LEN).unwrap();
    }
    assert_eq!(sink.len(), 0);
    // The thread of the dropped reader ends and drops its reference to the sink.
    let start = Instant::now();
    while Arc::strong_count(&sink) > 1 {
        assert!(start.elapsed() < TIMEOUT, "the thread goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_file_that_is_about_to_be_read_is_pushed_whole_or_not_at_all() {
    let (opened, files) = listed();
    let (sink, len) = (Kept::new(2), u32::try_from(LEN).unwrap());
    opened.reader.push(files[9], len).unwrap();
    let reader = opened.reader.with_sink(Arc::<Kept>::clone(&sink));
    reader.push(files[8], len - 1).unwrap();
    assert_eq!(sink.len(), 0, "too long, or without a sink");
    reader.push(files[8], len).unwrap();
    let pushed = sink.files.lock().unwrap().get(&files[8]).cloned();
    assert_eq!(pushed.unwrap(), pattern(LEN, 8));
    assert!(reader.push(MemFsBuilder::ROOT, len).is_err());
    // The sink breaks at the second file.
    for file in [7, 6, 5] {
        reader.push(files[file], len).unwrap();
    }
    assert_eq!(sink.len(), 2);
}

thread_local! {
    /// The file whose request this thread is answering.
    static ANSWERED: Cell<Option<NodeId>> = const { Cell::new(None) };
}

/// Counts files that are stored by the thread that answers for them. With a real kernel each would
/// be a deadlock: the pages are locked until the answer, and the store waits for them.
#[derive(Default)]
struct Deadlocks(AtomicUsize);

impl Sink for Deadlocks {
    fn store(&self, file: NodeId, _data: &[u8]) -> ControlFlow<()> {
        if ANSWERED.get() == Some(file) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_file_is_never_pushed_by_the_thread_that_answers_for_it() {
    let (opened, files) = listed();
    let sink = Arc::new(Deadlocks::default());
    let reader = opened.reader.with_sink(Arc::<Deadlocks>::clone(&sink));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (reader, files) = (&reader, &files);
            scope.spawn(move || {
                // A second round makes the reader forget what was read.
                for round in 0..40 {
                    for &file in files.iter().skip((thread * 7 + round * 13) % 50) {
                        ANSWERED.set(Some(file));
                        reader.read(file, 0, LEN).unwrap();
                        ANSWERED.set(None);
                    }
                }
            });
        }
    });
    assert_eq!(sink.0.load(Ordering::Relaxed), 0);
}
