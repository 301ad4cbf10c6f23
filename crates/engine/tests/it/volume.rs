//! Volumes in memory: the requests that they make to the device, and failures of the device.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_engine::Volume;
use forerun_io::{BlockDevice, Counter, Observer};
use forerun_testkit::{MemVolume, Request, TestDevice};
use forerun_vfs::{
    Changes, DirCursor, Error, FileSystem, FileSystemMut, FileType, NewNode, NodeId, Timestamp,
};

const CLUSTER: u64 = 4096;
const TIME: Timestamp = Timestamp {
    seconds: 1_600_000_000,
    nanoseconds: 0,
};

struct Test {
    device: Arc<TestDevice>,
    fs: Arc<MemVolume>,
    volume: Volume,
}

impl Test {
    fn new() -> Self {
        Self::with_readahead(0)
    }

    fn with_readahead(window: u64) -> Self {
        let device = TestDevice::new(&vec![0xee; 4 << 20]);
        let below: Arc<dyn BlockDevice> = Arc::<TestDevice>::clone(&device);
        let fs = Arc::new(MemVolume::new(Arc::clone(&below), CLUSTER));
        let driver: Arc<dyn FileSystemMut> = Arc::<MemVolume>::clone(&fs);
        let volume = Volume::new(driver, below, Arc::<Observer>::default());
        Self {
            device,
            fs,
            volume: volume.with_readahead(window),
        }
    }

    /// Creates and lists files of 5000 bytes. Returns them in the order of the listing, with the
    /// device's log empty.
    fn listed(&self, count: usize) -> Vec<NodeId> {
        for n in 0..count {
            let node = self.file(&format!("{n:03}"));
            self.write(node, 0, &[n as u8; 5000]);
        }
        let mut files = Vec::new();
        let root = self.fs.root();
        let listed = self.volume.read_dir(root, DirCursor::START, &mut |entry| {
            files.push(entry.node);
            ControlFlow::Continue(())
        });
        listed.unwrap();
        self.device.take_log();
        files
    }

    fn read_all(&self, files: &[NodeId]) {
        for &node in files {
            let mut out = [0; 5000];
            assert_eq!(self.volume.read(node, 0, &mut out).unwrap(), out.len());
        }
    }

    fn file(&self, name: &str) -> NodeId {
        let new = NewNode {
            kind: FileType::Regular,
            permissions: 0o644,
            owner: (0, 0),
            time: TIME,
        };
        self.fs
            .create(self.fs.root(), name.as_bytes(), &new)
            .unwrap()
    }

    fn write(&self, node: NodeId, offset: u64, data: &[u8]) {
        self.volume.write(node, offset, data, TIME).unwrap();
    }

    fn resize(&self, node: NodeId, size: u64) {
        let size = Some(size);
        let changes = Changes {
            size,
            ..Changes::default()
        };
        self.volume.change(node, &changes).unwrap();
    }
}

#[test]
fn keeps_the_contract_with_a_driver_that_does() {
    for (len, cluster) in [(2 << 20, 512), (8 << 20, 4096), (16 << 20, 65536)] {
        for folds in [false, true] {
            let fs = MemVolume::in_memory(len, cluster);
            let fs = Arc::new(if folds { fs.folding_case() } else { fs });
            let device = fs.device();
            let fs: Arc<dyn FileSystemMut> = fs;
            forerun_testkit::conformance::check_filesystem_mut(&fs, &device);
        }
    }
}

#[test]
fn neighbours_are_one_request_both_ways() {
    let test = Test::new();
    let node = test.file("a");
    let data: Vec<u8> = (0..1 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
    test.write(node, 0, &data);
    assert_eq!(test.device.take_log(), [Request::Write(0..1 << 20)]);
    let mut out = vec![0; 1 << 20];
    assert_eq!(test.volume.read(node, 0, &mut out).unwrap(), 1 << 20);
    assert!(out == data);
    assert_eq!(test.device.take_log(), [Request::Read(0..1 << 20)]);
    // Two files written in turns: one request per piece.
    let (one, two) = (test.file("1"), test.file("2"));
    for n in 0..4 {
        test.write(one, n * CLUSTER, &[1; 4096]);
        test.write(two, n * CLUSTER, &[2; 4096]);
    }
    test.device.take_log();
    assert_eq!(
        test.volume.read(one, 100, &mut out).unwrap(),
        4 * 4096 - 100
    );
    assert_eq!(test.device.take_log().len(), 4);
    let stats = test.volume.observer().stats();
    assert_eq!(stats.get(Counter::Writes), 9);
    assert_eq!(stats.get(Counter::WrittenBytes), (1 << 20) + 8 * 4096);
}

fn is_hint(request: &Request) -> bool {
    matches!(request, Request::Hint(_))
}

fn bytes_of(requests: &[Request], of_kind: fn(&Request) -> bool) -> u64 {
    let of_kind = requests.iter().filter(|request| of_kind(request));
    let ranges = of_kind.map(Request::range);
    ranges.map(|range| range.end - range.start).sum()
}

#[test]
fn the_device_is_told_of_the_files_that_a_reader_of_the_tree_wants_next() {
    let test = Test::with_readahead(8 << 20);
    let files = test.listed(60);
    test.read_all(&files[..2]);
    let wanted = 58 * 5000;
    let start = std::time::Instant::now();
    let mut requests = Vec::new();
    while bytes_of(&requests, is_hint) < wanted {
        assert!(start.elapsed().as_secs() < 60, "{requests:?}");
        std::thread::sleep(std::time::Duration::from_millis(1));
        requests.extend(test.device.take_log());
    }
    // Only the reader reads. Neighbours are hinted together, up to the ends of their last clusters.
    assert_eq!(
        bytes_of(&requests, Request::is_read),
        2 * 5000,
        "{requests:?}"
    );
    let hints = requests.iter().filter(|request| is_hint(request)).count();
    assert!(hints <= 4, "{requests:?}");
    let hinted = test.volume.observer().stats().get(Counter::HintedBytes);
    assert!((wanted..=60 * 2 * CLUSTER).contains(&hinted), "{hinted}");
    // Each file is hinted once, however the reader continues.
    test.read_all(&files[2..]);
    let Test { device, volume, .. } = test;
    drop(volume);
    assert_eq!(bytes_of(&device.take_log(), is_hint), 0);
}

#[test]
fn nothing_is_read_ahead_where_that_is_off_or_files_are_read_in_no_order() {
    for (window, is_in_order) in [(0, true), (8 << 20, false)] {
        let test = Test::with_readahead(window);
        let mut files = test.listed(20);
        if !is_in_order {
            files.reverse();
        }
        test.read_all(&files);
        let Test { device, volume, .. } = test;
        // Dropping the volume waits for the thread.
        drop(volume);
        assert_eq!(bytes_of(&device.take_log(), is_hint), 0);
    }
}

#[test]
fn zeros_are_written_before_what_lies_behind_a_gap_and_nowhere_else() {
    let test = Test::new();
    let node = test.file("a");
    test.resize(node, 1 << 20);
    assert!(test.device.take_log().is_empty(), "growing writes nothing");
    let mut out = vec![1; 5000];
    assert_eq!(test.volume.read(node, 10_000, &mut out).unwrap(), 5000);
    assert!(out.iter().all(|byte| *byte == 0));
    assert!(test.device.take_log().is_empty(), "zeros are not read");
    test.write(node, 9000, b"x");
    assert_eq!(
        test.device.take_log(),
        [Request::Write(0..9000), Request::Write(9000..9001)]
    );
    test.write(node, 100, b"y");
    assert_eq!(test.device.take_log(), [Request::Write(100..101)]);
    test.write(node, 9001, b"z");
    assert_eq!(test.device.take_log(), [Request::Write(9001..9002)]);
}

#[test]
fn holes_and_data() {
    let test = Test::new();
    let node = test.file("a");
    test.write(node, 0, &[1; 10_000]);
    test.resize(node, 50_000);
    let seek = |offset| {
        let data = test.volume.seek_data(node, offset).unwrap();
        (data, test.volume.seek_hole(node, offset).unwrap())
    };
    assert_eq!(seek(0), (Some(0), Some(10_000)));
    assert_eq!(seek(9_999), (Some(9_999), Some(10_000)));
    assert_eq!(seek(10_000), (None, Some(10_000)));
    assert_eq!(seek(49_999), (None, Some(49_999)));
    assert_eq!(seek(50_000), (None, None));
    assert_eq!(seek(u64::MAX), (None, None));
    test.resize(node, 5000);
    assert_eq!(seek(0), (Some(0), Some(5000)));
}

#[test]
fn a_device_that_fails_leaves_the_file_as_it_was() {
    let test = Test::new();
    let node = test.file("a");
    test.write(node, 0, b"before");
    test.device.hook(|_| Err(io::Error::other("broken")));
    let error = test.volume.write(node, 6, &[1; 10_000], TIME).unwrap_err();
    assert!(matches!(error, Error::Write { offset: 6, .. }), "{error}");
    let error = test.volume.read(node, 0, &mut [0; 6]).unwrap_err();
    assert!(matches!(error, Error::Io { offset: 0, .. }), "{error}");
    test.device.unhook();
    assert_eq!(test.fs.metadata(node).unwrap().size, 6);
    let mut out = [0; 10];
    assert_eq!(test.volume.read(node, 0, &mut out).unwrap(), 6);
    assert_eq!(&out[..6], b"before");
}

#[test]
fn readers_see_all_of_a_write_or_nothing() {
    let test = Test::new();
    let node = test.file("a");
    test.write(node, 0, &[1; 20_000]);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut out = vec![0; 30_000];
                while !done.load(Ordering::Relaxed) {
                    let len = test.volume.read(node, 0, &mut out).unwrap();
                    let first = out[0];
                    assert!(len == 20_000 && out[..len].iter().all(|byte| *byte == first));
                }
            });
        }
        for n in 0..500_u32 {
            test.write(node, 0, &[n.to_le_bytes()[0]; 20_000]);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn writes_to_different_files_go_on_side_by_side() {
    let test = Test::new();
    let nodes: Vec<_> = (0..4).map(|n| test.file(&n.to_string())).collect();
    std::thread::scope(|scope| {
        for (n, &node) in nodes.iter().enumerate() {
            let test = &test;
            scope.spawn(move || {
                for step in 0..100 {
                    test.write(node, step * 1000, &[n as u8 + 1; 1000]);
                }
            });
        }
    });
    for (n, &node) in nodes.iter().enumerate() {
        let mut out = vec![0; 100_000];
        assert_eq!(test.volume.read(node, 0, &mut out).unwrap(), 100_000);
        assert!(out.iter().all(|byte| *byte == n as u8 + 1));
    }
}

#[test]
fn after_a_panic_while_contents_are_written_nothing_is_written() {
    let device = TestDevice::new(&vec![0xee; 4 << 20]);
    let below: Arc<dyn BlockDevice> = Arc::<TestDevice>::clone(&device);
    let fs: Arc<dyn FileSystemMut> = Arc::new(MemVolume::new(Arc::clone(&below), CLUSTER));
    let volume = Volume::new(Arc::clone(&fs), below, Arc::<Observer>::default());
    let [one, other] = ["one", "other"].map(|name| {
        let new = NewNode {
            kind: FileType::Regular,
            permissions: 0o644,
            owner: (0, 0),
            time: TIME,
        };
        fs.create(fs.root(), name.as_bytes(), &new).unwrap()
    });
    volume.write(one, 0, b"before", TIME).unwrap();
    device.panic_after(0);
    let panicked = catch_unwind(AssertUnwindSafe(|| volume.write(one, 6, b"after", TIME)));
    assert!(panicked.is_err());
    device.take_log();
    for node in [one, other] {
        let error = volume.write(node, 0, b"later", TIME).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        let error = volume.change(node, &Changes::default()).unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
    }
    assert_eq!(device.take_changes(), []);
    let mut out = [0; 10];
    assert_eq!(volume.read(one, 0, &mut out).unwrap(), 6);
    assert_eq!(&out[..6], b"before");
}
