//! Power cuts: every state that a power cut may leave on volumes with small workloads.
//!
//! The workloads are all single operations on three volumes, growing fragmented files, clusters
//! that are allocated and freed in one commit, and pairs drawn by a seed. Each runs with and
//! without `dirsync`, on the third volume only without. With `FORERUN_POWERCUT=full`, the tests run
//! all pairs and 5,000 triples, which takes hours. Each state is checked three times:
//!
//! - As it is, by a checker that shares no code with the driver. `fsck.exfat` also checks a sample,
//!   and each state in which that checker finds more than lost clusters. Besides lost clusters
//!   under `VolumeDirty`, they may report only two findings, which no order of writes avoids: a
//!   chain that continues beyond its length in clusters without another owner, which `fsck.exfat`
//!   calls corrupt and truncates, and name entries of a set whose first sector is marked unused,
//!   which `fsck.exfat` calls clean.
//! - Through the driver, opened for change: the model must allow the names and contents.
//! - After a sync by the driver, by the checker again: it must find the names and contents that the
//!   driver found, and no stray name entries.
//!
//! Before the driver opens the volume, the tree is compared only loosely: the checker may see
//! nothing that the driver does not see, and may miss only names that were being changed. The
//! reason is that a rename across sectors takes two writes. Between them, a reader that ignores the
//! pointer from the old location to the new one finds neither name. `docs/formats/exfat.md`
//! describes how other systems read these states.

use std::cell::RefCell;
use std::io;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use forerun_exfat::Exfat;
use forerun_io::{BlockDevice, ReadAt};
use forerun_testkit::exfat_judge::{Class, Fsck, Report, Said, What, judge};
use forerun_testkit::powercut::{
    Bounds, Campaign, Event, Found, Moment, Operation, Outcome, Place, Recorder, Scene, Setting,
    Snapshot, Subject, Workload, long_name, run,
};
use forerun_testkit::rng::Rng;
use forerun_testkit::{exfat_tools, temp_dir};
use forerun_vfs::{FileSystemMut, OpenMutWith, Result};

const VOLUME: usize = 4 << 20;
/// The byte in clusters that were never written. The tests fail if it shows in a file.
const FOREIGN: u8 = 0xF0;
/// `fsck.exfat` checks one in this many states without findings of our checker, and one in
/// `FSCK_ONE_LEAK_IN` states with only lost clusters, which it does not detect.
const FSCK_ONE_IN: u128 = 64;
const FSCK_ONE_LEAK_IN: u128 = 8;
const PAIRS: usize = 402;
const TRIPLES: usize = 5000;

fn open(device: Arc<dyn BlockDevice>, dirsync: bool) -> Result<Arc<dyn FileSystemMut>> {
    let mut with = OpenMutWith::new(device);
    with.dirsync = dirsync;
    Ok(Arc::new(Exfat::open_mut(with)?))
}

fn empty(cluster: u64) -> Option<Snapshot> {
    let dir = temp_dir("powercut");
    let path = dir.path().join("volume");
    std::fs::write(&path, vec![FOREIGN; VOLUME]).unwrap();
    let is_made = exfat_tools::mkfs(&path, 0, &["-b", "4K", "-c", &cluster.to_string()]);
    is_made.then(|| Snapshot::new(std::fs::read(&path).unwrap()))
}

/// Prepares volumes with clusters of 512 bytes and of 4 KiB, and a nearly full one with small
/// clusters.
fn scenes() -> Option<Vec<Scene>> {
    // The sets of the filler files take three entries each, so the next set crosses the end of a
    // cluster of 16 or 128 entries. Five sets fill a sector, and a directory with clusters of one
    // sector grows from one sector to nine.
    let mut scenes = Vec::new();
    let kinds = [
        (512, 5, 40, false),
        (4096, 42, 35, false),
        (512, 5, 0, true),
    ];
    for (cluster, fillers, brim, full) in kinds {
        let empty = empty(cluster)?;
        let setting = Setting {
            cluster,
            fillers,
            brim,
            ballast: if full { ballast(&empty, cluster) } else { 0 },
        };
        let name = format!("{cluster}{}", if full { ", nearly full" } else { "" });
        scenes.push(Scene::prepare(&name, &empty, &setting, &open).unwrap());
    }
    Some(scenes)
}

fn ballast(empty: &Snapshot, cluster: u64) -> u64 {
    let fs = open(Arc::new(empty.device()), false).unwrap();
    (fs.space().unwrap().free - 26) * cluster
}

fn workloads(scenes: &[Scene], full: bool) -> Vec<Workload> {
    let mut workloads = Vec::new();
    let mut rng = Rng::new(20);
    for (scene, at) in scenes.iter().enumerate() {
        let mut add = |dirsync, operations| {
            workloads.push(Workload {
                scene,
                dirsync,
                operations,
            });
        };
        for dirsync in [true, false] {
            at.singles()
                .into_iter()
                .for_each(|single| add(dirsync, single));
        }
        for operations in in_one_commit(at) {
            add(false, operations);
        }
        add(false, into_a_moved_directory(at));
        let growing = ["C", "D"].map(|dir| growing(at, dir)).into_iter().flatten();
        for operations in in_pieces(at.cluster).into_iter().chain(growing) {
            add(true, operations.clone());
            add(false, operations);
        }
        if full {
            for pair in at.pairs() {
                add(true, pair.clone());
                add(false, pair);
            }
        }
        let (len, count) = if full { (3, TRIPLES) } else { (2, PAIRS) };
        for _ in 0..count.div_ceil(scenes.len()) {
            let sample = at.sample(len, &mut rng);
            add(true, sample.clone());
            add(false, sample);
        }
    }
    workloads
}

fn write(file: &Place, offset: u64, len: u64) -> Operation {
    Operation::Write {
        file: file.clone(),
        offset,
        len,
    }
}

fn truncate(file: &Place, len: u64) -> Operation {
    Operation::Truncate {
        file: file.clone(),
        len,
    }
}

fn rename(from: &Place, to: &Place) -> Operation {
    Operation::Rename {
        from: from.clone(),
        to: to.clone(),
    }
}

/// Returns workloads on fragmented files that become longer and shorter: `A/one` and `B/cross` grow
/// alternately.
fn in_pieces(cluster: u64) -> Vec<Vec<Operation>> {
    let (one, cross) = (Place::from("A/one"), Place::from("B/cross"));
    let len = 4 * cluster + 200;
    let before = [
        write(&cross, cluster / 2, 2 * cluster),
        write(&one, 2 * cluster + 100, 2 * cluster + 100),
        write(&cross, 2 * cluster + cluster / 2, cluster),
        Operation::SyncAll,
    ];
    let then = [
        vec![write(&one, len, 100)],
        vec![write(&one, len, 2 * cluster)],
        vec![write(&one, len + 2 * cluster, cluster)],
        vec![truncate(&one, len + 2 * cluster)],
        vec![truncate(&one, len - 2 * cluster)],
        vec![truncate(&one, cluster)],
        vec![truncate(&one, 0)],
        vec![write(&one, len, cluster), Operation::Unlink(one.clone())],
        vec![
            write(&one, len, cluster),
            Operation::Sync(one.clone()),
            truncate(&one, 2 * cluster),
        ],
        vec![
            truncate(&one, 3 * cluster),
            write(&one, 3 * cluster, 2 * cluster),
        ],
    ];
    then.map(|then| [&before[..], &then].concat()).to_vec()
}

/// Returns workloads in which names allocate and free clusters within one commit, alone and before
/// another file allocates clusters.
fn in_one_commit(scene: &Scene) -> Vec<Vec<Operation>> {
    let cluster = scene.cluster;
    let (new, moved, sparse) = ("A/new".into(), "B/moved".into(), "B/sparse".into());
    let long = Place::from("A").join(&long_name('N'));
    let make = |file: &Place| {
        let operations = [Operation::Create(file.clone()), write(file, 0, 2 * cluster)];
        operations.to_vec()
    };
    let made = make(&new);
    let allocated = [Operation::Create(new.clone()), truncate(&new, 2 * cluster)];
    let longer = [Operation::SyncAll, write(&new, 2 * cluster, cluster)];
    let grown = [&made[..], &longer].concat();
    let workloads = [
        [&made[..], &[rename(&sparse, &new)]].concat(),
        [&make(&long)[..], &[rename(&sparse, &long)]].concat(),
        [&allocated[..], &[rename(&sparse, &new)]].concat(),
        [&grown[..], &[rename(&sparse, &new)]].concat(),
        [&made[..], &[truncate(&new, 0), write(&new, 0, cluster)]].concat(),
        [&made[..], &[Operation::Unlink(new.clone())]].concat(),
        [&made[..], &[rename(&new, &moved), truncate(&moved, 0)]].concat(),
        [
            &grown[..],
            &[rename(&new, &moved), truncate(&moved, cluster)],
        ]
        .concat(),
        vec![Operation::Mkdir(new.clone()), Operation::Rmdir(new.clone())],
        vec![Operation::Mkdir(new.clone()), rename(&"E".into(), &new)],
    ];
    let other = make(&"top".into());
    let followed = workloads.iter().map(|first| [first, &other[..]].concat());
    followed.chain(workloads.iter().cloned()).collect()
}

/// Returns a workload in which a directory moves to another sector, and grows for a file in the
/// same commit.
fn into_a_moved_directory(scene: &Scene) -> Vec<Operation> {
    let full = Place::from(if scene.has(&"D".into()) { "D" } else { "E" });
    let moved = Place::from("B/moved");
    // These names fill the last sector.
    let names = ["1", "2", "3", "4", "5"].map(|name| full.join(name.as_bytes()));
    let mut operations: Vec<_> = names.map(Operation::Create).into();
    operations.extend([
        Operation::SyncAll,
        rename(&full, &moved),
        rename(&"A/one".into(), &moved.join(b"one")),
    ]);
    operations
}

/// Returns workloads on sets of two sectors, in a directory that grows for them. Returns none if
/// the scene has no such directory.
fn growing(scene: &Scene, dir: &str) -> Vec<Vec<Operation>> {
    let dir = Place::from(dir);
    let (long, short) = (dir.join(&long_name('N')), dir.join(b"short"));
    if !scene.has(&dir) {
        return Vec::new();
    }
    let create = || Operation::Create(long.clone());
    let elsewhere = Place::from("A").join(&long_name('L'));
    vec![
        vec![create()],
        vec![Operation::Mkdir(long.clone())],
        vec![rename(&"A/one".into(), &long)],
        vec![rename(&elsewhere, &long)],
        vec![rename(&dir.join(b"filler03"), &long)],
        vec![create(), Operation::Unlink(long.clone())],
        vec![create(), rename(&long, &short)],
        vec![create(), rename(&long, &elsewhere)],
        vec![create(), Operation::Create(dir.join(&long_name('M')))],
        vec![Operation::Create(short.clone()), create()],
    ]
}

thread_local! {
    static FSCK: RefCell<Option<Fsck>> = RefCell::new(Fsck::new());
}

static FSCKS: AtomicU64 = AtomicU64::new(0);

static LONG_CHAINS: AtomicU64 = AtomicU64::new(0);
static STRAY_NAMES: AtomicU64 = AtomicU64::new(0);

/// Runs our checker; also runs `fsck.exfat` if the two could differ or the state is in the sample.
fn check(state: &Snapshot, moment: Moment) -> std::result::Result<Option<Found>, String> {
    let report = judge(state).map_err(|finding| finding.to_string())?;
    let verdict = match moment {
        Moment::Cut => report.after_crash(),
        Moment::Recovered => report.after_recovery(),
    };
    let leaks = report.of(Class::Leak).count();
    let drawn = match (report.findings.len(), leaks) {
        (0, _) => state.hash().is_multiple_of(FSCK_ONE_IN),
        (all, leaks) => all > leaks || state.hash().is_multiple_of(FSCK_ONE_LEAK_IN),
    };
    if drawn {
        FSCK.with_borrow_mut(|fsck| {
            let Some(fsck) = fsck else { return Ok(()) };
            FSCKS.fetch_add(1, Ordering::Relaxed);
            match (&verdict, agrees(&report, &fsck.said(state))) {
                (Err(ours), Err(theirs)) => Err(format!("{ours}; {theirs}")),
                (Ok(()), Err(theirs)) => Err(theirs),
                (_, Ok(())) => Ok(()),
            }
        })?;
    }
    verdict?;
    let found = report.found(state);
    found.map(Some).map_err(|error| error.to_string())
}

/// Checks that `fsck.exfat` finds the volume clean. It may report the two unavoidable findings, but
/// only if our checker reports them too.
fn agrees(report: &Report, said: &Said) -> std::result::Result<(), String> {
    let has = |what| report.findings.iter().any(|finding| finding.what == what);
    let (long, stray) = (has(What::LongChain), has(What::StrayName));
    LONG_CHAINS.fetch_add(long.into(), Ordering::Relaxed);
    STRAY_NAMES.fetch_add(stray.into(), Ordering::Relaxed);
    let expected = |error: &&String| {
        long && error.contains("more clusters are allocated")
            || stray && error.contains("unknown entry type 0xc1")
    };
    match said.errors.iter().find(|error| !expected(error)) {
        Some(error) => Err(format!("fsck.exfat: {error}")),
        None if said.clean || long => Ok(()),
        None => Err("fsck.exfat: not clean".to_owned()),
    }
}

#[test]
fn no_power_cut_leaves_a_volume_in_need_of_repair() {
    let Some(scenes) = scenes() else { return };
    let full = std::env::var_os("FORERUN_POWERCUT").is_some_and(|value| value == "full");
    let workloads = workloads(&scenes, full);
    let campaign = Campaign {
        bounds: Bounds::default(),
        recovery_one_in: 64,
    };
    let subject = Subject {
        open: &open,
        check: &check,
    };
    let outcome: Outcome = campaign.run(&scenes, &workloads, subject);
    let fscks = FSCKS.load(Ordering::Relaxed);
    let (long, stray) = (
        LONG_CHAINS.load(Ordering::Relaxed),
        STRAY_NAMES.load(Ordering::Relaxed),
    );
    println!(
        "{outcome:?}; {fscks} by fsck.exfat; {long} with a chain behind its length, {stray} with name \
         entries left over"
    );
    assert!(outcome.bad.is_empty(), "{:#?}", outcome.bad);
    assert!(outcome.states >= 40_000, "{outcome:?}");
}

/// A device that drops one flush.
struct Hasty {
    device: Arc<dyn BlockDevice>,
    /// Number of flushes before the dropped one.
    left: AtomicUsize,
}

impl ReadAt for Hasty {
    fn len(&self) -> u64 {
        self.device.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.device.read_exact_at(offset, out)
    }
}

impl BlockDevice for Hasty {
    fn sector_size(&self) -> u32 {
        self.device.sector_size()
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.device.write_all_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        if self.left.fetch_sub(1, Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.device.flush()
    }
}

/// Drops each flush of the driver in turn. Two have no visible effect: the last one, after
/// `VolumeDirty` is cleared, and one before the driver forgets the old location of a moved file.
#[test]
fn a_missing_flush_is_found() {
    let Some(empty) = empty(512) else { return };
    let setting = Setting {
        cluster: 512,
        fillers: 5,
        brim: 0,
        ballast: 0,
    };
    let scene = Scene::prepare("512", &empty, &setting, &open).unwrap();
    let file = Place::from("A/one");
    let append = vec![write(&file, 1124, 700), Operation::Sync(file.clone())];
    let moved = vec![rename(&file, &"B/moved".into())];
    let reuse = write(&"B/cross".into(), 256, 1500);
    let reused = vec![Operation::Unlink(file), reuse];
    for (dirsync, operations, missed) in [
        (false, append, &[3][..]),
        (false, moved.clone(), &[4, 5]),
        (true, moved, &[4, 5]),
        (true, reused, &[4]),
    ] {
        let device = Arc::new(Recorder::new(scene.start.device()));
        let shared: Arc<dyn BlockDevice> = Arc::<Recorder<_>>::clone(&device);
        let all = [&operations[..], &[Operation::SyncAll]].concat();
        let mut model = scene.model.go_on(dirsync);
        run(&*open(shared, dirsync).unwrap(), &device, &mut model, &all).unwrap();
        let trace = device.take();
        let flushes = trace.iter().filter(|event| **event == Event::Flush);
        let workload = Workload {
            scene: 0,
            dirsync,
            operations,
        };
        let mut sound = Vec::new();
        for lost in 0..flushes.count() {
            let subject = Subject {
                open: &|device, dirsync| {
                    let left = AtomicUsize::new(lost);
                    open(Arc::new(Hasty { device, left }), dirsync)
                },
                check: &check,
            };
            let campaign = Campaign {
                bounds: Bounds::default(),
                recovery_one_in: 64,
            };
            let (scenes, workloads) = (slice::from_ref(&scene), slice::from_ref(&workload));
            if campaign.run(scenes, workloads, subject).bad.is_empty() {
                sound.push(lost);
            }
        }
        assert_eq!(sound, missed, "{workload:?}");
    }
}
