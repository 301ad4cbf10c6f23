//! Reads traces in the format of the `dm-log-writes` target of Linux, which QEMU's `blklogwrites`
//! driver writes.
//!
//! All numbers are little-endian. The first sector has a magic number, the version, the number of
//! entries (8 bytes each) and the length of a sector (4). Each entry has its own sector: sector of
//! the device, number of sectors, flags and length of a mark (8 bytes each). The bytes of a write
//! follow its entry. A write with the flush flag flushes first.

use std::io::{self, Read};

use forerun_io::usize_from;

use super::{Event, SECTOR, Trace};

const MAGIC: u64 = 0x6a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FORCED: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;

/// Reads a log of a device with sectors of 512 bytes.
pub fn read(from: &mut dyn Read) -> io::Result<Trace> {
    let head = bytes(from, SECTOR)?;
    assert_eq!((number(&head, 0), number(&head, 8)), (MAGIC, VERSION));
    assert_eq!(number(&head, 24), 512, "bytes of a sector");
    let mut events = Vec::new();
    for _ in 0..number(&head, 16) {
        let entry = bytes(from, SECTOR)?;
        let flags = number(&entry, 16);
        if flags & MARK != 0 {
            continue;
        }
        if flags & FLUSH != 0 {
            events.push(Event::Flush);
        }
        let len = usize_from(number(&entry, 8)) * SECTOR;
        let data = if flags & DISCARD == 0 {
            bytes(from, len)?
        } else {
            vec![super::recorder::DISCARDED; len]
        };
        if len > 0 {
            events.push(Event::Write {
                offset: number(&entry, 0) * 512,
                data: data.into(),
                forced: flags & FORCED != 0,
                contents: false,
            });
        }
    }
    Ok(events)
}

fn bytes(from: &mut dyn Read, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn number(sector: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(sector[at..at + 8].try_into().unwrap())
}
