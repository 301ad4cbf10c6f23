//! The order of requests, merging, failures and concurrent commits, on a device that records its
//! calls.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::{Counter, EventKind, EventLog, MemoryDevice};

const FIRST: Group = Group(0);
const SECOND: Group = Group(1);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Did {
    Write(u64, Vec<u8>),
    Flush,
}

struct Recording {
    memory: MemoryDevice,
    did: Mutex<Vec<Did>>,
    fail_writes: AtomicBool,
    fail_flushes: AtomicBool,
    reads: Mutex<Vec<Range<u64>>>,
}

impl ReadAt for Recording {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let range = offset..offset + u64_from(out.len());
        self.reads.lock().unwrap().push(range);
        self.memory.read_exact_at(offset, out)
    }
}

impl BlockDevice for Recording {
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if self.fail_writes.load(Ordering::Relaxed) {
            return Err(io::Error::other("write"));
        }
        let did = Did::Write(offset, data.to_vec());
        self.did.lock().unwrap().push(did);
        self.memory.write_all_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        if self.fail_flushes.load(Ordering::Relaxed) {
            return Err(io::Error::other("flush"));
        }
        self.did.lock().unwrap().push(Did::Flush);
        Ok(())
    }
}

impl Recording {
    /// Returns writes as (offset, length), flushes as (0, 0).
    fn shape(&self) -> Vec<(u64, usize)> {
        let did = std::mem::take(&mut *self.did.lock().unwrap());
        let shapes = did.iter().map(|did| match did {
            Did::Write(offset, data) => (*offset, data.len()),
            Did::Flush => (0, 0),
        });
        shapes.collect()
    }
}

fn new(len: usize) -> (Arc<Recording>, WriteBack) {
    let device = Arc::new(Recording {
        memory: MemoryDevice::new(vec![0; len]),
        did: Mutex::default(),
        fail_writes: AtomicBool::default(),
        fail_flushes: AtomicBool::default(),
        reads: Mutex::default(),
    });
    let inner: Arc<dyn BlockDevice> = Arc::<Recording>::clone(&device);
    (device, WriteBack::new(inner, Arc::default(), 1 << 20))
}

fn read(back: &WriteBack, offset: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xee; len];
    back.read_exact_at(offset, &mut out).unwrap();
    out
}

#[test]
fn each_dirty_sector_is_written_once_and_neighbours_together() {
    let (device, back) = new(1 << 20);
    for n in 0..100 {
        back.write(FIRST, 512 + n, &[1]).unwrap();
    }
    back.write(FIRST, 1024, &[2; 512]).unwrap();
    back.write(FIRST, 8192, &[3; 3]).unwrap();
    assert!(device.shape().is_empty());
    assert_eq!(back.dirty_bytes(), 3 * 512);
    back.commit(&[FIRST, SECOND]).unwrap();
    assert_eq!(device.shape(), [(512, 1024), (8192, 512), (0, 0)]);
    assert!(!back.is_dirty());
    back.commit(&[FIRST, SECOND]).unwrap();
    assert!(device.shape().is_empty(), "nothing to write, no flush");
}

#[test]
fn groups_are_flushed_in_the_order_given() {
    let (device, back) = new(1 << 20);
    back.write(FIRST, 0, &[1; 512]).unwrap();
    back.write(SECOND, 512, &[2; 512]).unwrap();
    back.commit(&[SECOND, FIRST]).unwrap();
    assert_eq!(device.shape(), [(512, 512), (0, 0), (0, 512), (0, 0)]);
}

#[test]
fn a_group_that_is_not_named_stays_dirty() {
    let (device, back) = new(1 << 20);
    back.write(FIRST, 0, &[1; 512]).unwrap();
    back.write(SECOND, 512, &[2; 512]).unwrap();
    back.commit(&[FIRST]).unwrap();
    assert_eq!(device.shape(), [(0, 512), (0, 0)]);
    assert!(back.is_dirty());
}

#[test]
fn data_is_flushed_before_the_first_group() {
    let (device, back) = new(1 << 20);
    back.note_data_written();
    assert!(back.is_dirty());
    back.write(FIRST, 0, &[1; 512]).unwrap();
    back.commit(&[FIRST]).unwrap();
    assert_eq!(device.shape(), [(0, 0), (0, 512), (0, 0)]);
    back.note_data_written();
    back.commit(&[FIRST]).unwrap();
    assert_eq!(device.shape(), [(0, 0)]);
}

#[test]
fn data_is_flushed_with_groups_that_say_nothing_of_it() {
    let order = CommitOrder {
        before_data: &[FIRST],
        after_data: &[SECOND],
        along: None,
    };
    let (device, back) = new(1 << 20);
    back.note_data_written();
    back.write(FIRST, 0, &[1; 512]).unwrap();
    back.write(SECOND, 512, &[1; 512]).unwrap();
    back.commit_ordered(&order).unwrap();
    assert_eq!(device.shape(), [(0, 512), (0, 0), (512, 512), (0, 0)]);
    back.note_data_written();
    back.write(SECOND, 512, &[2; 512]).unwrap();
    back.commit_ordered(&order).unwrap();
    assert_eq!(device.shape(), [(0, 0), (512, 512), (0, 0)]);
    back.note_data_written();
    device.fail_flushes.store(true, Ordering::Relaxed);
    back.write(FIRST, 0, &[2; 512]).unwrap();
    assert!(back.commit_ordered(&order).is_err());
    device.fail_flushes.store(false, Ordering::Relaxed);
    device.shape();
    back.commit_ordered(&order).unwrap();
    assert_eq!(device.shape(), [(0, 512), (0, 0)]);
    assert!(!back.is_dirty());
}

#[test]
fn what_may_be_late_goes_along_with_something() {
    let late = Group(2);
    let order = CommitOrder {
        before_data: &[FIRST],
        after_data: &[SECOND],
        along: Some(late),
    };
    let (device, back) = new(1 << 20);
    back.write(late, 0, &[1; 3]).unwrap();
    back.commit_ordered(&order).unwrap();
    assert!(device.shape().is_empty());
    assert!(back.is_dirty());
    back.write(FIRST, 2, &[2; 3]).unwrap();
    back.write(SECOND, 3, &[3]).unwrap();
    back.write(SECOND, 512, &[4]).unwrap();
    back.commit_ordered(&order).unwrap();
    assert_eq!(device.shape(), [(0, 512), (0, 0), (0, 1024), (0, 0)]);
    assert_eq!(device.memory.to_vec()[..6], [1, 1, 2, 3, 2, 0]);
    assert!(!back.is_dirty());
    // The later change of the same bytes wins.
    back.write(SECOND, 0, &[5]).unwrap();
    back.write(late, 0, &[6]).unwrap();
    back.commit_ordered(&order).unwrap();
    assert_eq!(device.memory.to_vec()[0], 6);
    assert!(!back.is_dirty());
}

#[test]
fn reads_show_what_is_dirty_on_top_of_what_is_not() {
    let (device, back) = new(10_000);
    device.memory.write_all_at(0, &[9; 10_000]).unwrap();
    back.write(FIRST, 510, &[1; 4]).unwrap();
    assert_eq!(read(&back, 508, 8), [9, 9, 1, 1, 1, 1, 9, 9]);
    // The last sector is short.
    back.write(FIRST, 9999, &[2]).unwrap();
    assert_eq!(read(&back, 9998, 2), [9, 2]);
    back.commit(&[FIRST]).unwrap();
    assert_eq!(device.shape(), [(0, 1024), (9728, 272), (0, 0)]);
    assert_eq!(read(&back, 508, 8), [9, 9, 1, 1, 1, 1, 9, 9]);
    assert_eq!(read(&back, 0, 10_000), device.memory.to_vec());
    assert!(back.write(FIRST, 9999, &[2; 2]).is_err());
    assert!(!back.is_dirty());
}

#[test]
fn blocks_are_read_once_and_neighbours_in_one_request() {
    let (device, back) = new(1 << 20);
    read(&back, 5000, 1);
    read(&back, 4096, 4096);
    assert_eq!(device.reads.lock().unwrap().len(), 1);
    read(&back, 0, 20_000);
    assert_eq!(
        *device.reads.lock().unwrap(),
        [4096..8192, 0..4096, 8192..20_480]
    );
    let stats = back.counted().observer().stats();
    assert_eq!(stats.get(Counter::SourceRequests), 3);
    assert_eq!(stats.get(Counter::MetadataMisses), 5);
}

#[test]
fn what_was_committed_is_what_is_read_from_memory() {
    let (device, back) = new(1 << 20);
    read(&back, 0, 8192);
    back.write(FIRST, 4000, &[5; 200]).unwrap();
    back.commit(&[FIRST]).unwrap();
    assert_eq!(read(&back, 4000, 200), [5; 200]);
    assert_eq!(device.reads.lock().unwrap().len(), 1);
}

#[test]
fn a_sector_of_two_groups_keeps_their_order() {
    let (device, back) = new(4096);
    back.write(FIRST, 0, &[1]).unwrap();
    back.write(SECOND, 1, &[2]).unwrap();
    back.write(FIRST, 2, &[3]).unwrap();
    assert_eq!(read(&back, 0, 3), [1, 2, 3]);
    back.commit(&[FIRST]).unwrap();
    assert_eq!(device.memory.to_vec()[..3], [1, 0, 3]);
    assert_eq!(read(&back, 0, 3), [1, 2, 3]);
    back.commit(&[SECOND]).unwrap();
    assert_eq!(device.memory.to_vec()[..3], [1, 2, 3]);
    assert!(!back.is_dirty());
}

#[test]
fn of_two_changes_of_a_byte_the_later_wins_in_any_order() {
    for order in [[FIRST, SECOND], [SECOND, FIRST]] {
        let (device, back) = new(4096);
        back.write(SECOND, 0, &[1; 4]).unwrap();
        back.write(FIRST, 2, &[2; 4]).unwrap();
        back.commit(&order).unwrap();
        assert_eq!(device.memory.to_vec()[..6], [1, 1, 2, 2, 2, 2], "{order:?}");
        assert!(!back.is_dirty());
    }
    // If only the group of the older change is committed, the device has the older value.
    let (device, back) = new(4096);
    back.write(FIRST, 0, &[1]).unwrap();
    back.write(SECOND, 0, &[2]).unwrap();
    back.commit(&[FIRST]).unwrap();
    assert_eq!(device.memory.to_vec()[0], 1);
    // The first group changes the byte again, so the second has no change left.
    back.write(FIRST, 0, &[3]).unwrap();
    back.commit(&[FIRST]).unwrap();
    assert_eq!((device.memory.to_vec()[0], back.is_dirty()), (3, false));
}

#[test]
fn what_fails_stays_dirty() {
    let (device, back) = new(4096);
    back.write(FIRST, 512, &[1; 512]).unwrap();
    back.write(SECOND, 0, &[2; 512]).unwrap();
    device.fail_writes.store(true, Ordering::Relaxed);
    let error = back.commit(&[FIRST, SECOND]).unwrap_err();
    assert_eq!((error.offset, error.len), (512, 512));
    device.fail_writes.store(false, Ordering::Relaxed);
    device.fail_flushes.store(true, Ordering::Relaxed);
    let error = back.commit(&[FIRST, SECOND]).unwrap_err();
    assert_eq!(error.to_string(), "flushing the device");
    assert_eq!(device.shape(), [(512, 512)]);
    assert_eq!(back.dirty_bytes(), 1024);
    device.fail_flushes.store(false, Ordering::Relaxed);
    back.commit(&[FIRST, SECOND]).unwrap();
    assert_eq!(device.shape(), [(512, 512), (0, 0), (0, 512), (0, 0)]);
    let stats = back.counted().observer().stats();
    assert_eq!(stats.get(Counter::WriteErrors), 2);
}

#[test]
fn a_failed_flush_of_data_is_made_up_for() {
    let (device, back) = new(4096);
    back.note_data_written();
    device.fail_flushes.store(true, Ordering::Relaxed);
    assert!(back.commit(&[]).is_err());
    assert!(back.is_dirty());
}

#[test]
fn writing_what_is_there_dirties_nothing() {
    let (device, back) = new(4096);
    back.write(FIRST, 5, &[0; 10]).unwrap();
    assert!(!back.is_dirty());
    back.write(FIRST, 5, &[1]).unwrap();
    back.commit(&[FIRST]).unwrap();
    assert_eq!(device.shape().len(), 2);
}

#[test]
fn the_trace_names_what_was_written() {
    let log = Arc::new(EventLog::new(100));
    let sink: Arc<dyn crate::EventSink> = Arc::<EventLog>::clone(&log);
    let observer = Arc::new(Observer::new(Some(sink)));
    let device = Arc::new(MemoryDevice::new(vec![0; 1 << 20]));
    let back = WriteBack::new(device, observer, 1 << 20);
    let (head, tables) = (Structure::named("head"), Structure::named("tables"));
    back.name_regions(vec![(0..512, head), (512..4096, tables)]);
    back.write(FIRST, 0, &[1; 1024]).unwrap();
    back.write(FIRST, 8192, &[1; 512]).unwrap();
    back.commit(&[FIRST]).unwrap();
    let events: Vec<_> = log
        .take()
        .iter()
        .filter(|event| !matches!(event.kind, EventKind::SourceRead { .. }))
        .map(|event| (event.kind, event.structure, event.offset, event.len))
        .collect();
    let write = EventKind::Write { ok: true };
    assert_eq!(
        events,
        [
            (write, head, 0, 512),
            (write, tables, 512, 512),
            (write, Structure::Metadata, 8192, 512),
            (EventKind::Flush { ok: true }, Structure::Unknown, 0, 0),
        ]
    );
}

/// Makes random changes in three groups and commits them in random order. Readers always see all
/// changes, and at the end so does the device.
#[test]
fn random_changes_and_commits_agree_with_plain_bytes() {
    let (device, back) = new(6000);
    let mut model = vec![0_u8; 6000];
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for _ in 0..20_000 {
        let group = Group(u8::try_from(random(3)).unwrap());
        if random(20) == 0 {
            back.commit(&[group]).unwrap();
        }
        let len = random(700) + 1;
        let offset = random(6000 - len);
        let data = vec![u8::try_from(random(256)).unwrap(); usize_from(len)];
        back.write(group, offset, &data).unwrap();
        let start = usize_from(offset);
        model[start..start + data.len()].copy_from_slice(&data);
        if random(10) == 0 {
            assert_eq!(read(&back, 0, 6000), model);
        }
    }
    back.commit(&[Group(2), Group(0), Group(1)]).unwrap();
    assert!(!back.is_dirty());
    assert_eq!(device.memory.to_vec(), model);
}

#[test]
fn changes_during_a_commit_are_not_lost() {
    let (device, back) = new(8192);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                back.commit(&[FIRST, SECOND]).unwrap();
            }
        });
        let changers = [0_u64, 1].map(|which| {
            let back = &back;
            scope.spawn(move || {
                let group = if which == 0 { FIRST } else { SECOND };
                for n in 0..5000_u64 {
                    let offset = (n % 128) * 64 + which * 32;
                    back.write(group, offset, &n.to_le_bytes()).unwrap();
                    assert_eq!(read(back, offset, 8), n.to_le_bytes());
                }
            })
        });
        for changer in changers {
            changer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    back.commit(&[FIRST, SECOND]).unwrap();
    assert!(!back.is_dirty());
    assert_eq!(read(&back, 0, 8192), device.memory.to_vec());
    for n in 4900..5000_u64 {
        let bytes = device.memory.to_vec();
        let at = usize_from((n % 128) * 64);
        assert_eq!(bytes[at..at + 8], n.to_le_bytes());
    }
}
