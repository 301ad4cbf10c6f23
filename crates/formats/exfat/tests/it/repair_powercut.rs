//! Power cuts during a repair: whatever reached the device, a second repair results in a clean
//! volume with the same files, and the undo file restores the original volume.

use std::io;
use std::sync::{Arc, Mutex};

use forerun_exfat::repair::{Answer, RepairOptions, repair};
use forerun_io::{BlockDevice, ReadAt, UndoDevice, UndoLog};
use forerun_testkit::exfat_judge::judge;
use forerun_testkit::powercut::{Bounds, CowDevice, Event, Recorder, Snapshot, Trace, crashes};

use crate::repairing::{
    Files, Map, UndoBytes, files, filled, fsck, mend_with, put, seal_set, set_of, told, u32_of,
    undone,
};

type Damage = (&'static str, fn(&mut Vec<u8>, &Map));

fn first(image: &[u8], path: &str) -> u32 {
    u32_of(image, set_of(image, path) + 52)
}

fn set_first(image: &mut [u8], path: &str, cluster: u32) {
    let set = set_of(image, path);
    put(image, set + 52, &cluster.to_le_bytes());
    seal_set(image, set);
}

/// One damage for each way of writing: boot regions, tables, copies, sets across sectors,
/// truncations, lost files.
#[rustfmt::skip]
const DAMAGES: &[Damage] = &[
    ("boot sectors", |image, _| image[..6144].fill(0)),
    ("the up-case table", |image, map| { let at = map.at(4); image[at + 100] ^= 0x40; }),
    ("the bitmap", |image, map| { let at = map.at(2); image[at..at + (map.clusters as usize).div_ceil(8)].fill(0); }),
    ("a shared chain", |image, _| { let c = first(image, "dir/pieces"); set_first(image, "dir/other pieces", c); }),
    ("a directory in its parent", |image, _| { let c = first(image, "dir"); set_first(image, "dir/below", c); }),
    ("a file in the root directory", |image, map| set_first(image, "whole.bin", map.root)),
    ("a chain that comes back", |image, map| { let c = first(image, "dir/pieces"); let next = map.next(image, c); put(image, map.word(next), &c.to_le_bytes()); }),
    ("a set across sectors", |image, _| { let at = set_of(image, &format!("dir/below/{}", "n".repeat(255))); image[at + 70] = b'/'; image[at + 32 + 4] ^= 1; }),
    ("two names", |image, _| { let at = set_of(image, "dir/other pieces"); image[at + 66..at + 96].fill(0); let name: Vec<u8> = "pieces".encode_utf16().flat_map(u16::to_le_bytes).collect(); put(image, at + 66, &name); image[at + 35] = 6; seal_set(image, at); }),
    ("a lost directory", |image, _| { let at = set_of(image, "dir"); image.copy_within(at + 64..at + 96, at + 32); }),
    ("several at once", |image, map| {
        let c = first(image, "dir/pieces");
        set_first(image, "late", c);
        put(image, map.word(c), &[0; 4]);
        let at = set_of(image, "whole.bin");
        image[at + 2] ^= 1;
        image[106] |= 2;
    }),
];

fn all(device: &dyn ReadAt) -> Vec<u8> {
    let mut bytes = vec![0; device.len() as usize];
    device.read_exact_at(0, &mut bytes).unwrap();
    bytes
}

fn run(device: &Arc<dyn BlockDevice>) {
    let options = RepairOptions::default();
    let summary = repair(device, &Arc::default(), &options, &mut |_| Answer::Yes).unwrap();
    assert_eq!(summary.remains(), 0, "{summary:?}");
}

/// Records the writes of a repair. Returns the trace and the repaired volume.
fn record(start: &Snapshot) -> (Trace, Vec<u8>) {
    let recorder = Arc::new(Recorder::new(start.device()));
    let device: Arc<dyn BlockDevice> = Arc::<Recorder<_>>::clone(&recorder) as _;
    run(&device);
    (recorder.take(), all(&*device))
}

/// Returns the files without recovered lost ones, whose names depend on the round that found them.
fn kept(bytes: &[u8]) -> Files {
    let mut files = files(bytes);
    files.retain(|path, _| !path.starts_with("/FORERUN"));
    files
}

/// Calls `visit` with each damaged volume and the bounds for its power cuts. `visit` returns the
/// number of states that it checked.
fn each_damage(visit: &mut dyn FnMut(&str, Vec<u8>, &Bounds) -> u32) {
    let Some(image) = filled("512") else { return };
    let map = Map::of(&image);
    let bounds = Bounds {
        exhaustive: 6,
        samples: 24,
        ..Bounds::default()
    };
    let mut judged = 0;
    for (what, does) in DAMAGES {
        let mut bytes = image.clone();
        does(&mut bytes, &map);
        judged += visit(what, bytes, &bounds);
    }
    assert!(judged > 300, "{judged} states");
}

#[test]
fn another_repair_ends_it() {
    each_damage(&mut |what, bytes, bounds| {
        let mut judged = 0;
        let start = Snapshot::new(bytes.clone());
        let (trace, whole) = record(&start);
        let expected = kept(&whole);
        let (direct, ..) = mend_with(bytes, &RepairOptions::default(), Answer::Yes);
        assert_eq!(kept(&direct), expected, "{what}");
        crashes(&start, &trace, bounds, &mut |crash| {
            judged += 1;
            let device: Arc<dyn BlockDevice> = Arc::new(crash.state.device());
            run(&device);
            let after = all(&*device);
            let report = judge(&*device).unwrap_or_else(|found| panic!("{what}: {found}"));
            assert!(report.clean(), "{what}, {crash:?}: {:?}", report.findings);
            assert_eq!(told(&after), [""; 0], "{what}, {crash:?}");
            let found = kept(&after);
            let mut others = expected
                .iter()
                .filter(|(path, bytes)| found.get(*path) != Some(bytes));
            let other = others.next().map(|(path, _)| path);
            let is_same = other.is_none() && found.len() == expected.len();
            assert!(
                is_same,
                "{what}, {crash:?}: other files: {other:?} {:?}",
                found.keys()
            );
            if judged % 16 == 0 {
                assert_eq!(fsck(&after), None, "{what}, {crash:?}");
            }
        });
        judged
    });
}

/// An undo file that records each of its syncs in the trace of the volume.
struct Log {
    file: UndoBytes,
    durable: Arc<Mutex<Vec<Vec<u8>>>>,
    volume: Arc<Recorder<CowDevice>>,
}

impl UndoLog for Log {
    fn write_all_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_all_at(offset, data)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.durable.lock().unwrap().push(self.file.bytes());
        self.volume.note(Event::Returned);
        Ok(())
    }
}

/// Repairs with an undo file. Returns the trace of the volume, and the contents of the undo file at
/// each sync.
fn record_with_undo(start: &Snapshot) -> (Trace, Vec<Vec<u8>>) {
    let volume = Arc::new(Recorder::new(start.device()));
    let durable = Arc::<Mutex<Vec<Vec<u8>>>>::default();
    let log = Log {
        file: UndoBytes::default(),
        durable: Arc::clone(&durable),
        volume: Arc::clone(&volume),
    };
    let device = Arc::new(UndoDevice::new(Arc::clone(&volume), Box::new(log)));
    let shared: Arc<dyn BlockDevice> = Arc::<UndoDevice<_>>::clone(&device) as _;
    run(&shared);
    device.finish().unwrap();
    let files = durable.lock().unwrap().clone();
    (volume.take(), files)
}

#[test]
fn an_undo_file_restores_every_byte_after_a_power_cut() {
    each_damage(&mut |what, before, bounds| {
        let mut judged = 0;
        let start = Snapshot::new(before.clone());
        let (trace, files) = record_with_undo(&start);
        let (plain, _) = record(&start);
        let flushes = |trace: &[Event]| trace.iter().filter(|e| **e == Event::Flush).count();
        assert_eq!(flushes(&trace), flushes(&plain) + 1, "{what}");
        crashes(&start, &trace, bounds, &mut |crash| {
            let after = match crash.returned.checked_sub(1) {
                Some(last) => undone(files[last].clone(), crash.state.bytes()),
                None => crash.state.bytes(),
            };
            assert!(after == before, "{what}, {crash:?}");
            judged += 1;
        });
        judged
    });
}
