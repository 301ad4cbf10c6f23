//! Traces as files, in the format that the `dm-log-writes` target of Linux and the `blklogwrites`
//! driver of QEMU write and other tools replay.
//!
//! All numbers are little-endian. The first sector of the file holds
//!
//! | bytes | meaning |
//! |---|---|
//! | 0..8 | magic, 0x6a736677736872 |
//! | 8..16 | version, 1 |
//! | 16..24 | number of entries |
//! | 24..28 | bytes in a sector of the log |
//!
//! Entries follow, each in a sector of its own: sector of the device (8 bytes), number of sectors
//! (8), flags (8: 1 flush, 2 forced unit access, 4 discard, 8 mark, 16 metadata), length of a mark
//! (8) and the mark itself. A write's bytes come in the sectors after its entry. A write with the
//! flush flag flushes first.
//!
//! Marks of our own are `operation N begun`, `... acknowledged` and `... failed`; contents of files
//! are the writes without the metadata flag, in logs that have the flag at all.

use std::fmt;
use std::io::{self, Read, Write};

use forerun_io::u64_from;

use super::{Event, Mark, SECTOR, Stage, Trace};

const MAGIC: u64 = 0x6a_7366_7773_6872;
const VERSION: u64 = 1;
const FLUSH: u64 = 1;
const FORCED: u64 = 2;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
const METADATA: u64 = 16;
/// A single request of more is damage of the log.
const LONGEST: u64 = 1 << 30;

/// The reasons why a log cannot be read.
#[derive(Debug)]
pub enum LogError {
    /// It could not be read.
    Io(io::Error),
    /// Its first sector is not that of such a log.
    NotALog,
    /// The entry of that number makes no sense.
    Entry(u64),
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "reading the log: {error}"),
            Self::NotALog => f.write_str("not a log of dm-log-writes"),
            Self::Entry(number) => write!(f, "entry {number} of the log is damaged"),
        }
    }
}

impl std::error::Error for LogError {}

impl From<io::Error> for LogError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes `trace` with sectors of 512 bytes.
pub fn write(trace: &Trace, out: &mut dyn Write) -> io::Result<()> {
    let mut head = [0; SECTOR];
    head[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    head[8..16].copy_from_slice(&VERSION.to_le_bytes());
    head[16..24].copy_from_slice(&u64_from(trace.events.len()).to_le_bytes());
    head[24..26].copy_from_slice(&512_u16.to_le_bytes());
    out.write_all(&head)?;
    for event in &trace.events {
        match event {
            Event::Write {
                offset,
                data,
                forced,
                contents,
            } => {
                let mut flags = if *forced { FORCED } else { 0 };
                flags |= if *contents { 0 } else { METADATA };
                let sectors = u64_from(data.len() / SECTOR);
                entry(out, [offset / u64_from(SECTOR), sectors, flags], &[])?;
                out.write_all(data)?;
            }
            Event::Flush => entry(out, [0, 0, FLUSH], &[])?,
            Event::Mark(mark) => entry(out, [0, 0, MARK], text(*mark).as_bytes())?,
            Event::Note(note) => entry(out, [0, 0, MARK], note)?,
        }
    }
    out.flush()
}

fn entry(out: &mut dyn Write, fields: [u64; 3], mark: &[u8]) -> io::Result<()> {
    let mut sector = [0; SECTOR];
    let numbers = fields.into_iter().chain([u64_from(mark.len())]);
    for (at, number) in sector.chunks_exact_mut(8).zip(numbers) {
        at.copy_from_slice(&number.to_le_bytes());
    }
    let room = sector
        .get_mut(32..32 + mark.len())
        .ok_or_else(|| io::Error::other("a mark longer than a sector"))?;
    room.copy_from_slice(mark);
    out.write_all(&sector)
}

/// Reads a log. A discarded range reads as garbage that no writer wrote.
pub fn read(from: &mut dyn Read) -> Result<Trace, LogError> {
    let mut head = [0; SECTOR];
    from.read_exact(&mut head)?;
    let sector = u64::from(u32::from_le_bytes(
        head[24..28].try_into().expect("4 bytes"),
    ));
    if number(&head, 0) != MAGIC || number(&head, 8) != VERSION {
        return Err(LogError::NotALog);
    }
    if !sector.is_power_of_two() || !(512..=65536).contains(&sector) {
        return Err(LogError::NotALog);
    }
    let mut log = LogReader { from, sector };
    log.bytes(sector - u64_from(SECTOR))?;
    let mut entries = Vec::new();
    for index in 0..number(&head, 16) {
        entries.push(log.entry(index)?);
    }
    Ok(Trace {
        events: events(entries),
    })
}

/// An entry as it stands in the log.
struct Entry {
    offset: u64,
    flags: u64,
    data: Vec<u8>,
}

fn events(entries: Vec<Entry>) -> Vec<Event> {
    let tells_metadata = entries.iter().any(|entry| entry.flags & METADATA != 0);
    let mut events = Vec::new();
    for entry in entries {
        if entry.flags & MARK != 0 {
            events.push(parse_mark(&entry.data).map_or(Event::Note(entry.data), Event::Mark));
            continue;
        }
        if entry.flags & FLUSH != 0 {
            events.push(Event::Flush);
        }
        if !entry.data.is_empty() {
            events.push(Event::Write {
                offset: entry.offset,
                data: entry.data.into(),
                forced: entry.flags & FORCED != 0,
                contents: tells_metadata && entry.flags & METADATA == 0,
            });
        }
    }
    events
}

struct LogReader<'a> {
    from: &'a mut dyn Read,
    sector: u64,
}

impl LogReader<'_> {
    fn entry(&mut self, index: u64) -> Result<Entry, LogError> {
        let damaged = || LogError::Entry(index);
        let sector = self.bytes(self.sector)?;
        let flags = number(&sector, 16);
        let count = number(&sector, 8);
        let len = count.checked_mul(self.sector).filter(|&len| len <= LONGEST);
        let len = len.ok_or_else(damaged)?;
        let offset = number(&sector, 0).checked_mul(self.sector);
        let data = if flags & MARK != 0 {
            let len = usize::try_from(number(&sector, 24)).map_err(|_| damaged())?;
            let end = len.checked_add(32).ok_or_else(damaged)?;
            sector.get(32..end).ok_or_else(damaged)?.to_vec()
        } else if flags & DISCARD != 0 {
            vec![0xDB; usize::try_from(len).map_err(|_| damaged())?]
        } else {
            self.bytes(len)?
        };
        Ok(Entry {
            offset: offset.ok_or_else(damaged)?,
            flags,
            data,
        })
    }

    /// Reads bytes as they come: nothing is allocated by a length in the log.
    fn bytes(&mut self, len: u64) -> Result<Vec<u8>, LogError> {
        let mut bytes = Vec::new();
        (&mut *self.from).take(len).read_to_end(&mut bytes)?;
        if u64_from(bytes.len()) < len {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        Ok(bytes)
    }
}

fn number(sector: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(sector[at..at + 8].try_into().expect("8 bytes"))
}

fn text(mark: Mark) -> String {
    let stage = match mark.stage {
        Stage::Begun => "begun",
        Stage::Acknowledged => "acknowledged",
        Stage::Failed => "failed",
    };
    format!("operation {} {stage}", mark.operation)
}

fn parse_mark(text: &[u8]) -> Option<Mark> {
    let text = std::str::from_utf8(text).ok()?.trim_end_matches('\0');
    let (operation, stage) = text.strip_prefix("operation ")?.split_once(' ')?;
    Some(Mark {
        operation: operation.parse().ok()?,
        stage: match stage {
            "begun" => Stage::Begun,
            "acknowledged" => Stage::Acknowledged,
            "failed" => Stage::Failed,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace() -> Trace {
        let write = |offset, byte, forced, contents| Event::Write {
            offset,
            data: vec![byte; 1024].into(),
            forced,
            contents,
        };
        let mark = |stage| {
            Event::Mark(Mark {
                operation: 7,
                stage,
            })
        };
        Trace {
            events: vec![
                mark(Stage::Begun),
                write(512, 1, false, true),
                Event::Flush,
                write(4096, 2, true, false),
                mark(Stage::Acknowledged),
                Event::Note(b"mkfs".to_vec()),
                Event::Flush,
            ],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        let mut log = Vec::new();
        write(&trace(), &mut log).unwrap();
        assert_eq!(log.len(), 512 * (1 + 7 + 2 * 2));
        assert_eq!(read(&mut log.as_slice()).unwrap(), trace());
    }

    #[test]
    fn a_log_cut_short_is_an_error() {
        let mut log = Vec::new();
        write(&trace(), &mut log).unwrap();
        for len in [0, 511, 512, 1000, log.len() - 1] {
            assert!(
                matches!(read(&mut &log[..len]), Err(LogError::Io(_))),
                "{len}"
            );
        }
        log[0] = 0;
        assert!(matches!(read(&mut log.as_slice()), Err(LogError::NotALog)));
    }

    #[test]
    fn an_absurd_length_is_an_error() {
        let mut log = Vec::new();
        write(&trace(), &mut log).unwrap();
        log[1024 + 8 + 5] = 0xFF;
        assert!(matches!(read(&mut log.as_slice()), Err(LogError::Entry(1))));
    }

    #[test]
    fn a_write_that_flushes_flushes_first() {
        let mut log = Vec::new();
        write(&trace(), &mut log).unwrap();
        // The flush flag on the second write's entry: header, mark, write of two sectors, flush.
        let at = 512 * (1 + 1 + 3 + 1) + 16;
        log[at] |= 1;
        let events = read(&mut log.as_slice()).unwrap().events;
        assert_eq!(events[2..4], [Event::Flush, Event::Flush]);
        assert_eq!(events.len(), 8);
    }
}
