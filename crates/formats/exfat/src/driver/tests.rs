//! Tests of threads that use one volume concurrently, in interleavings that a scheduler chooses.
//!
//! In each interleaving, every operation must succeed. At the end, the volume has as much free
//! space as at the start, no nameless file exists, and `VolumeDirty` is clear.
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{BlockDevice, MemoryDevice};
use forerun_vfs::{
    Changes, FileSystem, FileSystemMut, FileType, NewNode, NodeId, OpenMutWith, Result, Timestamp,
};
use shuttle::thread;

use super::Exfat;
use crate::fuzzing;
use crate::ondisk::volume_flag;

/// Interleavings that each test tries.
const ORDERS: usize = 1000;

type Part = Box<dyn FnOnce(&Exfat) -> Result<()> + Send>;

/// Returns a volume whose root directory has enough free slots for the tests, so that it need not
/// grow.
fn volume() -> Arc<Exfat> {
    let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::new(fuzzing::image()));
    let fs = Exfat::open_mut(OpenMutWith::new(device)).unwrap();
    let names = ["a", "b", "c", "d"];
    for name in names {
        create(&fs, name).unwrap();
    }
    for name in names {
        fs.unlink(fs.root(), name.as_bytes()).unwrap();
    }
    Arc::new(fs)
}

fn create(fs: &Exfat, name: &str) -> Result<NodeId> {
    let new = NewNode {
        kind: FileType::Regular,
        permissions: 0o644,
        owner: (0, 0),
        time: Timestamp::default(),
    };
    fs.create(fs.root(), name.as_bytes(), &new)
}

fn write(fs: &Exfat, node: NodeId, len: u64) -> Result<()> {
    fs.map_write(node, 0..len, &mut |_| ControlFlow::Continue(()))?;
    fs.written(node, 0..len, Timestamp::default())
}

fn opened(fs: &Exfat, name: &str) -> NodeId {
    let node = create(fs, name).unwrap();
    fs.open(node).unwrap();
    write(fs, node, 1500).unwrap();
    node
}

/// Runs the closures that `prepare` returns as threads on one volume, in many interleavings, and
/// checks the volume after each.
fn explore(prepare: impl Fn(&Exfat) -> Vec<Part> + Send + Sync + 'static) {
    let run = move || {
        let fs = volume();
        let before = fs.space().unwrap();
        let threads: Vec<_> = prepare(&fs)
            .into_iter()
            .map(|part| {
                let fs = Arc::clone(&fs);
                thread::spawn(move || part(&fs).unwrap())
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        fs.sync_all().unwrap();
        assert_eq!(fs.space().unwrap(), before, "clusters are lost");
        fs.session(|session| {
            let pending = &session.state.pending;
            assert!(pending.is_settled(), "a file without a name is left");
            assert_eq!(pending.flags & volume_flag::VOLUME_DIRTY, 0);
        });
    };
    shuttle::check_random(run, ORDERS);
}

#[test]
fn a_file_removed_during_its_last_close_gives_its_clusters_back() {
    explore(|fs| {
        let node = opened(fs, "a");
        vec![
            Box::new(move |fs| fs.release(node)),
            Box::new(|fs| fs.unlink(fs.root(), b"a")),
        ]
    });
}

#[test]
fn a_file_replaced_during_its_last_close_gives_its_clusters_back() {
    explore(|fs| {
        let node = opened(fs, "a");
        create(fs, "b").unwrap();
        vec![
            Box::new(move |fs| fs.release(node)),
            Box::new(|fs| {
                let root = fs.root();
                fs.rename((root, b"b"), (root, b"a"), true)?;
                fs.unlink(root, b"a")
            }),
        ]
    });
}

#[test]
fn the_last_close_leaves_no_clusters_beyond_the_length() {
    explore(|fs| {
        let node = opened(fs, "a");
        fs.open(node).unwrap();
        vec![
            Box::new(move |fs| fs.release(node)),
            Box::new(move |fs| {
                // Allocated for a write that never completes.
                fs.map_write(node, 0..4000, &mut |_| ControlFlow::Continue(()))?;
                fs.release(node)
            }),
            Box::new(move |fs| {
                let changes = Changes {
                    size: Some(100),
                    ..Changes::default()
                };
                let changed = fs.change(node, &changes).map(|_| ());
                fs.unlink(fs.root(), b"a")?;
                changed
            }),
        ]
    });
}

#[test]
fn processes_that_make_and_remove_files_leave_nothing() {
    explore(|_| {
        let part = |name: &'static str| -> Part {
            Box::new(move |fs| {
                for _ in 0..3 {
                    let node = opened(fs, name);
                    let removed = |fs: &Exfat| fs.unlink(fs.root(), name.as_bytes());
                    removed(fs)?;
                    fs.release(node)?;
                    fs.forget(node);
                }
                Ok(())
            })
        };
        vec![part("a"), part("b"), part("c")]
    });
}
