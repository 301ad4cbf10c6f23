//! Entry points for fuzz targets: plain functions over bytes. Not for users. They panic only if a
//! guarantee of undo files is broken.

use std::io;
use std::sync::{Arc, Mutex};

use super::format::{END_AT, End, Head, Header, RECORDS_AT, SECTOR, Seal, sum};
use super::{UndoDevice, UndoError, UndoFile, UndoLog};
use crate::Unpoisoned;
use crate::{
    BlockDevice, CountedDevice, MemoryDevice, MemorySource, Observer, u64_from, usize_from,
};

/// Length of the volume. The last sector is incomplete.
const VOLUME: usize = 40 * 512 + 200;

/// Restores from bytes taken as an undo file.
///
/// # Panics
/// If the volume was changed although the file was refused.
pub fn file(bytes: &[u8]) {
    let before = volume();
    let Ok(file) = UndoFile::open(Arc::new(MemorySource::new(bytes))) else {
        return;
    };
    for force in [false, true] {
        let device = Arc::new(MemoryDevice::new(before.clone()));
        let restored = file.restore(&counted(&device), force);
        match restored {
            Ok(restored) => assert!(restored.written <= restored.saved),
            Err(UndoError::Write { .. }) => unreachable!("a device in memory takes each write"),
            Err(_) => assert!(
                device.to_vec() == before,
                "a file that was refused was used"
            ),
        }
    }
}

/// Creates an undo file with correct checksums, for [`file`], from bytes taken as the fields and
/// bodies of records.
#[must_use]
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes;
    let mut take = |len: usize| {
        let (taken, after) = rest.split_at(len.min(rest.len()));
        rest = after;
        let mut array = [0; 8];
        for (to, byte) in array.iter_mut().zip(taken) {
            *to = *byte;
        }
        (u64::from_le_bytes(array), taken)
    };
    let (flags, _) = take(1);
    let first = volume();
    let header = Header {
        volume_len: u64_from(VOLUME) + (flags >> 7),
        first: sum(first.get(..512).unwrap_or_default()),
        salt: 0,
    };
    let (head, seal) = header.encode();
    let mut out = [head.to_vec(), vec![0; usize_from(SECTOR)]].concat();
    for _ in 0..flags & 15 {
        let (batch, _) = take(1);
        let (start, _) = take(2);
        let (len, _) = take(2);
        let (kind, _) = take(1);
        // Mostly whole sectors, and sometimes a length that no record may have.
        let unit = if kind & 4 == 0 { SECTOR } else { 1 };
        let start = start % 100 * unit;
        let head = Head {
            batch,
            range: start..start + len % 5000 * unit,
            saved: kind & 1 != 0,
            last: kind & 2 != 0,
        };
        let room = head.body_len().min(1 << 16);
        let (_, body) = take(usize_from(room));
        let mut body = body.to_vec();
        body.resize(usize_from(room), 0);
        record(&mut out, &seal, &head, &body);
    }
    if flags & 16 != 0 {
        let end = End::encode(u64_from(out.len()), &seal);
        for (to, byte) in out.iter_mut().skip(usize_from(END_AT)).zip(end) {
            *to = byte;
        }
    }
    // A torn end.
    out.extend_from_slice(rest);
    out
}

fn record(out: &mut Vec<u8>, seal: &Seal, head: &Head, body: &[u8]) {
    let (bytes, seal) = head.encode(u64_from(out.len()), seal);
    out.extend_from_slice(&bytes);
    out.extend_from_slice(body);
    out.extend_from_slice(&seal.check(body));
}

/// Writes and flushes through an [`UndoDevice`], truncates the undo file somewhere after its
/// durable part, and restores from it.
///
/// # Panics
/// If the volume does not have its original contents.
pub fn changes(bytes: &[u8]) {
    let before = volume();
    let device = Arc::new(MemoryDevice::new(before.clone()));
    let log = Arc::new(Mutex::new(Log::default()));
    let shared = Shared(Arc::clone(&log));
    let undo = UndoDevice::new(Arc::clone(&device), Box::new(shared));
    let (steps, cut) = bytes.split_at(bytes.len().saturating_sub(1));
    for step in steps.as_chunks::<6>().0 {
        let [kind, offset, high, len, more, byte] = *step;
        let offset = usize::from(u16::from_le_bytes([offset, high])) % VOLUME;
        let len = usize::from(u16::from_le_bytes([len, more])) % (VOLUME - offset + 1);
        let done = match kind % 8 {
            0 => undo.flush(),
            _ => undo.write_all_at(u64_from(offset), &vec![byte; len]),
        };
        assert!(done.is_ok(), "{done:?}");
    }
    let is_finished = cut.first().is_some_and(|cut| cut & 1 != 0);
    if is_finished {
        assert!(undo.finish().is_ok());
    }
    drop(undo);
    let log = log.lock().unpoisoned();
    let mut file = log.bytes.clone();
    if !is_finished {
        // A power cut may lose bytes that were not synced.
        let lost = file.len() - log.durable;
        let kept = lost * usize::from(cut.first().copied().unwrap_or(0)) / 255;
        file.truncate(log.durable + kept);
    }
    if u64_from(file.len()) < RECORDS_AT {
        assert!(
            device.to_vec() == before,
            "a volume was changed without an undo file"
        );
        return;
    }
    let opened = UndoFile::open(Arc::new(MemorySource::new(file)));
    assert!(opened.is_ok(), "{:?}", opened.err());
    if let Ok(file) = opened {
        let restored = file.restore(&counted(&device), false);
        assert!(restored.is_ok(), "{restored:?}");
        assert!(device.to_vec() == before, "the volume is not as it was");
    }
}

#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    durable: usize,
}

struct Shared(Arc<Mutex<Log>>);

impl UndoLog for Shared {
    fn write_all_at(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut log = self.0.lock().unpoisoned();
        let (start, len) = (usize_from(offset), data.len());
        assert!(start <= log.bytes.len(), "a gap in the undo file");
        let end = log.bytes.len().max(start + len);
        log.bytes.resize(end, 0);
        for (to, byte) in log.bytes.iter_mut().skip(start).zip(data) {
            *to = *byte;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut log = self.0.lock().unpoisoned();
        log.durable = log.bytes.len();
        Ok(())
    }
}

fn counted(device: &Arc<MemoryDevice>) -> CountedDevice {
    let shared: Arc<dyn BlockDevice> = Arc::<MemoryDevice>::clone(device);
    CountedDevice::new(shared, Arc::new(Observer::default()))
}

fn volume() -> Vec<u8> {
    let byte = |at: usize| (at / 7).to_le_bytes()[0] ^ (at >> 9).to_le_bytes()[0];
    (0..VOLUME).map(byte).collect()
}
