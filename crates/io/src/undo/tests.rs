//! Restoring from an undo file after power cuts, damage, and changes by other tools.
#![allow(clippy::as_conversions)]

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use super::format::{CHECK, End, Head, Header, MOST, MOST_PENDING, RECORDS_AT, SECTOR, sum};
use super::ranges::Ranges;
use super::*;
use crate::{BlockDevice, CountedDevice, MemoryDevice, MemorySource, ReadAt};

/// An undo file in memory that knows which part of it is durable.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    bytes: Vec<u8>,
    durable: Vec<u8>,
    /// Length from which on writes fail.
    room: Option<usize>,
}

impl Log {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().bytes.clone()
    }
}

impl UndoLog for Log {
    fn write_all_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut log = self.0.lock().unwrap();
        let start = usize::try_from(offset).unwrap();
        assert!(start <= log.bytes.len(), "a hole");
        let end = start + data.len();
        if log.room.is_some_and(|room| end > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = log.bytes.len().max(end);
        log.bytes.resize(len, 0);
        log.bytes[start..end].copy_from_slice(data);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut log = self.0.lock().unwrap();
        log.durable = log.bytes.clone();
        Ok(())
    }
}

/// A volume that records, for each write, its contents and the durable undo file before that write.
struct Watched {
    inner: MemoryDevice,
    log: Log,
    /// The volume, the durable part of the undo file, and the whole undo file.
    moments: Mutex<Vec<[Vec<u8>; 3]>>,
}

impl Watched {
    fn keep(&self) {
        let log = self.log.0.lock().unwrap();
        let moment = [self.inner.to_vec(), log.durable.clone(), log.bytes.clone()];
        self.moments.lock().unwrap().push(moment);
    }
}

impl ReadAt for Watched {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact_at(offset, out)
    }
}

impl BlockDevice for Watched {
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // Record the moments before the write, after the first sector, and after the write.
        self.keep();
        let (first, rest) = data.split_at(data.len().min(512));
        self.inner.write_all_at(offset, first)?;
        self.keep();
        self.inner
            .write_all_at(offset + 512, rest)
            .or_else(|error| match rest {
                [] => Ok(()),
                _ => Err(error),
            })?;
        self.keep();
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

const LEN: usize = 8 * 512 + 100;

fn volume() -> Vec<u8> {
    (0..LEN)
        .map(|at| u8::try_from(at * 7 % 251).unwrap())
        .collect()
}

/// Writes in one sector, across sectors, over an earlier write, and at the end of the volume.
fn change(device: &UndoDevice<Watched>) {
    device.write_all_at(600, b"within a sector").unwrap();
    device.write_all_at(1000, &[0xAA; 1100]).unwrap();
    device.flush().unwrap();
    device.write_all_at(0, &[1; 700]).unwrap();
    device.write_all_at(LEN as u64 - 10, &[2; 10]).unwrap();
    device.flush().unwrap();
    device.write_all_at(1500, &[3; 2000]).unwrap();
    device.flush().unwrap();
    device.finish().unwrap();
}

/// Returns the volume after the changes, the undo file, and each moment in between.
fn changed() -> (Vec<u8>, Vec<u8>, Vec<[Vec<u8>; 3]>) {
    let log = Log::default();
    let watched = Watched {
        inner: MemoryDevice::new(volume()),
        log: log.clone(),
        moments: Mutex::default(),
    };
    let device = UndoDevice::new(watched, Box::new(log.clone()));
    change(&device);
    let mut after = vec![0; LEN];
    device.read_exact_at(0, &mut after).unwrap();
    let moments = device.inner().moments.lock().unwrap().clone();
    (after, log.bytes(), moments)
}

fn open(file: &[u8]) -> Result<UndoFile, UndoError> {
    UndoFile::open(Arc::new(MemorySource::new(file.to_vec())))
}

fn restore(file: &[u8], volume: Vec<u8>, force: bool) -> (Vec<u8>, Result<Restored, UndoError>) {
    let device = Arc::new(MemoryDevice::new(volume));
    let shared: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(&device);
    let counted = CountedDevice::new(shared, Arc::default());
    let restored = open(file).and_then(|file| file.restore(&counted, force));
    (device.to_vec(), restored)
}

#[test]
fn restores_every_byte() {
    let (after, file, _) = changed();
    assert!(after != volume());
    let (restored, told) = restore(&file, after, false);
    assert!(restored == volume());
    let told = told.unwrap();
    assert!(told.complete);
    // Sectors 0 to 6 and the short one at the end, each once.
    assert_eq!(told.saved, 7 * 512 + 100);
    assert_eq!(told.written, told.saved);
    let (again, told) = restore(&file, restored, false);
    assert!(again == volume());
    assert_eq!(told.unwrap().written, 0);
}

#[test]
fn the_undo_file_is_durable_before_the_volume_is_written() {
    let (_, _, moments) = changed();
    let mut torn = 0;
    for [now, durable, all] in moments {
        if now == volume() && durable.is_empty() {
            continue;
        }
        // Bytes that were not durable may be in the file in part.
        for len in durable.len()..=all.len() {
            let (restored, told) = restore(&all[..len], now.clone(), false);
            told.unwrap_or_else(|error| panic!("{len}: {error}"));
            assert!(restored == volume(), "{len}");
            torn += 1;
        }
    }
    assert!(torn > 10, "{torn}");
}

#[test]
fn a_torn_last_batch_is_left_out() {
    // The power failed while the second batch was being appended, so the volume has only the first.
    let log = Log::default();
    let device = UndoDevice::new(MemoryDevice::new(volume()), Box::new(log.clone()));
    device.write_all_at(512, &[1; 1024]).unwrap();
    device.flush().unwrap();
    let first = log.bytes().len();
    let now = device.inner().to_vec();
    device.write_all_at(2048, &[2; 512]).unwrap();
    device.write_all_at(3584, &[2; 512]).unwrap();
    device.flush().unwrap();
    let file = log.bytes();
    for len in first..file.len() {
        let (restored, told) = restore(&file[..len], now.clone(), false);
        assert!(restored == volume() && !told.unwrap().complete, "{len}");
        // Any part of the second batch may be missing.
        let mut torn = file.clone();
        torn[first..len].fill(0);
        let (restored, told) = restore(&torn, now.clone(), false);
        assert!(restored == volume() && told.is_ok(), "{len}");
    }
    // Damage in the first batch does not pass as a torn end, since another batch follows.
    let mut damaged = file.clone();
    damaged[first - 20] ^= 1;
    let (same, told) = restore(&damaged, now.clone(), false);
    assert!(same == now);
    assert!(matches!(told, Err(UndoError::Damaged { .. })), "{told:?}");
}

#[test]
fn a_damaged_undo_file_restores_all_or_is_refused() {
    let (after, file, _) = changed();
    let check = |file: &[u8], what: &str| {
        let (found, told) = restore(file, after.clone(), false);
        match told {
            Ok(_) => assert!(found == volume(), "{what}: other bytes"),
            Err(_) => assert!(found == after, "{what}: written and refused"),
        }
        let (found, told) = restore(file, after.clone(), true);
        assert!(
            found
                == if told.is_ok() {
                    volume()
                } else {
                    after.clone()
                },
            "{what}, forced"
        );
    };
    for at in 0..file.len() {
        for mask in [0x01, 0x80, 0xFF] {
            let mut mutated = file.clone();
            mutated[at] ^= mask;
            check(&mutated, &format!("byte {at} ^ {mask:#x}"));
        }
        check(&file[..at], &format!("cut to {at}"));
    }
    check(&[&file[..], b"x"].concat(), "one more byte");
}

#[test]
fn a_volume_that_was_changed_since_is_refused_unless_forced() {
    let (after, file, _) = changed();
    for (at, expected) in [
        (100, "another volume"),
        (2000, "0x600"),
        (LEN - 1, "0x1000"),
    ] {
        let mut now = after.clone();
        now[at] ^= 1;
        let (same, told) = restore(&file, now.clone(), false);
        let error = told.unwrap_err();
        assert!(
            error.is_of_volume() && error.to_string().contains(expected),
            "{error}"
        );
        assert!(same == now);
        let (restored, told) = restore(&file, now, true);
        assert!(told.is_ok() && restored == volume());
    }
    // Sectors that the file does not name are not checked.
    let mut now = after;
    now[7 * 512 + 1] ^= 1;
    assert!(restore(&file, now, false).1.is_ok());
}

#[test]
fn another_volume_is_refused() {
    let (after, file, _) = changed();
    let longer = [&after[..], b"x"].concat();
    for force in [false, true] {
        let told = restore(&file, longer.clone(), force).1;
        assert!(matches!(told, Err(UndoError::Length { .. })), "{told:?}");
    }
    // If the first sector did not change, its sum is in the header.
    let log = Log::default();
    let device = UndoDevice::new(MemoryDevice::new(volume()), Box::new(log.clone()));
    device.write_all_at(1024, &[1; 512]).unwrap();
    device.flush().unwrap();
    let mut other = device.inner().to_vec();
    assert!(restore(&log.bytes(), other.clone(), false).1.is_ok());
    other[100] ^= 1;
    let told = restore(&log.bytes(), other, false).1;
    assert!(matches!(told, Err(UndoError::OtherVolume)), "{told:?}");
}

#[test]
fn other_files_are_no_undo_files() {
    for file in [&b""[..], b"FRRNUNDO", &[0; 4096]] {
        assert!(matches!(open(file), Err(UndoError::NotUndo)));
    }
    let (_, mut file, _) = changed();
    file[8] = 9;
    let error = open(&file).unwrap_err();
    assert!(matches!(error, UndoError::Version(9)), "{error}");
}

/// Creates a file with these records, each a batch, with correct checksums.
fn forged(records: &[(Range<u64>, bool)]) -> Vec<u8> {
    let header = Header {
        volume_len: LEN as u64,
        first: sum(&volume()[..512]),
        salt: 0,
    };
    let (block, seal) = header.encode();
    let mut file = [block, [0; 512]].concat();
    for (batch, (range, saved)) in (0..).zip(records) {
        let head = Head {
            batch,
            range: range.clone(),
            saved: *saved,
            last: true,
        };
        let (bytes, body_seal) = head.encode(file.len() as u64, &seal);
        let body = vec![7; usize::try_from(head.body_len().min(1 << 16)).unwrap()];
        file.extend_from_slice(&bytes);
        file.extend_from_slice(&body);
        file.extend_from_slice(&body_seal.check(&body));
    }
    let end = End::encode(file.len() as u64, &seal);
    file[512..1024].copy_from_slice(&end);
    file
}

#[test]
fn a_forged_file_writes_nothing_outside_of_the_volume_and_allocates_no_more_than_it_has() {
    let len = LEN as u64;
    let (far, huge) = (u64::MAX / 512 * 512 - 512, MOST + 512);
    for (records, expected) in [
        (vec![(0..8192, true)], "not on the volume"),
        (vec![(far..far + 512, true)], "not on the volume"),
        (vec![(0..huge, true)], "not on the volume"),
        (vec![(0..u64::from(u32::MAX), true)], "not on the volume"),
        (vec![(512..512, true)], "no record may have"),
        (vec![(100..612, true)], "no record may have"),
        (vec![(512..1000, true)], "no record may have"),
        (
            vec![(0..1024, true), (512..1024, true)],
            "another record has",
        ),
        (vec![(0..512, true), (0..1024, false)], "no record has"),
    ] {
        let (same, told) = restore(&forged(&records), volume(), true);
        let error = told.unwrap_err().to_string();
        assert!(error.contains(expected), "{records:?}: {error}");
        assert!(same == volume());
    }
    // The last sector of a volume may be short. Without `force` it is compared too.
    let file = forged(&[(4096..len, true)]);
    assert!(restore(&file, volume(), true).1.is_ok());
    assert!(matches!(
        restore(&file, volume(), false).1,
        Err(UndoError::Changed { offset: 4096 })
    ));
}

#[test]
fn nothing_is_written_where_the_undo_file_cannot_be() {
    for room in [0, 1023, 1100] {
        let log = Log::default();
        log.0.lock().unwrap().room = Some(room);
        let device = UndoDevice::new(MemoryDevice::new(volume()), Box::new(log.clone()));
        device.write_all_at(0, &[1; 1024]).unwrap();
        let error = device.flush().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(device.inner().to_vec() == volume());
        // Another attempt continues once there is room.
        log.0.lock().unwrap().room = None;
        device.finish().unwrap();
        let (restored, told) = restore(&log.bytes(), device.inner().to_vec(), false);
        assert!(restored == volume() && told.unwrap().written == 1024);
    }
}

#[test]
fn a_write_after_the_end_is_refused() {
    let log = Log::default();
    let device = UndoDevice::new(MemoryDevice::new(volume()), Box::new(log.clone()));
    device.write_all_at(0, &[1; 512]).unwrap();
    device.finish().unwrap();
    let (file, now) = (log.bytes(), device.inner().to_vec());
    device.finish().unwrap();
    device.write_all_at(512, &[1; 512]).unwrap();
    assert!(device.flush().is_err());
    assert!(log.bytes() == file && device.inner().to_vec() == now);
}

#[test]
fn no_change_makes_no_file() {
    let log = Log::default();
    let device = UndoDevice::new(MemoryDevice::new(volume()), Box::new(log.clone()));
    device.flush().unwrap();
    device.finish().unwrap();
    assert!(log.bytes().is_empty());
}

#[test]
fn what_waits_is_read_and_bounded() {
    let log = Log::default();
    let len = usize::try_from(MOST_PENDING).unwrap() * 2;
    let device = UndoDevice::new(MemoryDevice::new(vec![0; len]), Box::new(log.clone()));
    device.write_all_at(1000, b"abc").unwrap();
    let mut out = [9; 5];
    device.read_exact_at(999, &mut out).unwrap();
    assert_eq!(&out, b"\0abc\0");
    device.read_exact_at(1001, &mut out[..1]).unwrap();
    assert_eq!(out[0], b'b');
    assert!(log.bytes().is_empty());
    device.write_all_at(0, &vec![5; len]).unwrap();
    assert!(log.bytes().len() > len / 2 && log.bytes().len() < len);
    device.finish().unwrap();
    assert!(device.inner().to_vec() == vec![5; len]);
    let (restored, told) = restore(&log.bytes(), device.inner().to_vec(), false);
    assert!(told.unwrap().complete && restored == vec![0; len]);
}

#[test]
fn a_batch_is_one_sync_and_long_requests() {
    let log = Log::default();
    let device = UndoDevice::new(MemoryDevice::new(volume()), Box::new(log.clone()));
    for at in [0, 512, 1024, 3072] {
        device.write_all_at(at, &[1; 512]).unwrap();
    }
    device.flush().unwrap();
    // Two records: three sectors together, and one alone.
    let expected = RECORDS_AT + 4 * (SECTOR + 8) + 2 * (48 + CHECK);
    assert_eq!(log.bytes().len() as u64, expected);
}

#[test]
fn ranges_are_a_set() {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..200 {
        let (mut ranges, mut model) = (Ranges::default(), [false; 40]);
        for _ in 0..12 {
            let start = random(40);
            let end = (start + random(8)).min(40);
            ranges.insert(start..end);
            (start..end).for_each(|at| model[at as usize] = true);
            let (start, end) = (random(40), random(40));
            let mut all = start..end;
            assert_eq!(
                ranges.first_gap(start..end),
                all.clone().find(|&at| !model[at as usize])
            );
            assert_eq!(
                ranges.first_in(start..end),
                all.find(|&at| model[at as usize])
            );
        }
        let total: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        assert_eq!(total as usize, model.iter().filter(|&&is_in| is_in).count());
        let all: Vec<_> = ranges.iter().collect();
        assert!(
            all.windows(2).all(|pair| pair[0].end < pair[1].start),
            "{all:?}"
        );
    }
}
