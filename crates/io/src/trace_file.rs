//! Writes events as lines of text, for analysis after the mount has ended.
//!
//! One event a line, fields between tabs: microseconds since the start, kind, structure, purpose,
//! outcome, blob, offset, length. Text, because people and awk read such files as often as this
//! program does. Events stay in a buffer until it is full or the writer is dropped. A failed write
//! ends the trace, not the traced work.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use crate::Unpoisoned;
use crate::{BlobId, Event, EventKind, EventSink, OutputFile, Purpose, Structure};

/// The first line of a trace.
const HEAD: &str =
    "# forerun trace 1: microseconds kind structure purpose outcome blob offset bytes";

/// Writes each event to a file.
#[derive(Debug)]
pub struct TraceWriter {
    out: Mutex<Option<BufWriter<File>>>,
}

impl TraceWriter {
    /// Creates a trace in a file, and drops its old contents.
    ///
    /// # Errors
    /// The errors of [`OutputFile::open`] and of writing.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 16, OutputFile::Replace.open(path)?);
        writeln!(out, "{HEAD}")?;
        out.flush()?;
        let out = Mutex::new(Some(out));
        Ok(Self { out })
    }

    /// Writes the buffered events to the file.
    ///
    /// # Errors
    /// The errors of writing the file.
    pub fn flush(&self) -> io::Result<()> {
        let mut out = self.out.lock().unpoisoned();
        out.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

impl EventSink for TraceWriter {
    fn event(&self, event: &Event) {
        let mut out = self.out.lock().unpoisoned();
        let written = out.as_mut().map(|out| writeln!(out, "{}", line(event)));
        if let Some(Err(_disk_full)) = written {
            *out = None;
        }
    }
}

/// Formats an event as a line of a trace, without a newline.
#[must_use]
pub fn line(event: &Event) -> String {
    let purpose = match event.kind {
        EventKind::SourceRead { purpose, .. } => purpose.name(),
        _ => "-",
    };
    let outcome = if event.kind.ok() { "ok" } else { "failed" };
    format!(
        "{}\t{}\t{}\t{purpose}\t{outcome}\t{}\t{}\t{}",
        event.at.as_micros(),
        event.kind.name(),
        event.structure.name(),
        event.blob.0,
        event.offset,
        event.len,
    )
}

/// Parses a line into its event. Returns `Some(None)` for a comment or blank line, and `None` for a
/// line that is no event.
#[must_use]
pub fn parse_line(line: &str) -> Option<Option<Event>> {
    if line.starts_with('#') || line.trim().is_empty() {
        return Some(None);
    }
    let mut fields = line.trim_end().split('\t');
    let mut next = || fields.next();
    let at = Duration::from_micros(next()?.parse().ok()?);
    let (kind, structure, purpose, outcome) = (next()?, next()?, next()?, next()?);
    let blob = BlobId(next()?.parse().ok()?);
    let (offset, len) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let ok = match outcome {
        "ok" => true,
        "failed" => false,
        _ => return None,
    };
    let purposes = [Purpose::Demand, Purpose::Readahead, Purpose::Metadata];
    let purpose = purposes.into_iter().find(|p| p.name() == purpose);
    let purpose = purpose.unwrap_or_default();
    let kinds = [
        EventKind::SourceRead { purpose, ok },
        EventKind::CacheHit,
        EventKind::CacheMiss,
        EventKind::CacheWait,
        EventKind::Decode { ok },
        EventKind::Write { ok },
        EventKind::Flush { ok },
        EventKind::Discard { ok },
    ];
    let event = Event {
        at,
        kind: kinds.into_iter().find(|known| known.name() == kind)?,
        structure: Structure::parse(structure)?,
        blob,
        offset,
        len,
    };
    Some(Some(event))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_back() {
        let kinds = [
            EventKind::SourceRead {
                purpose: Purpose::Readahead,
                ok: false,
            },
            EventKind::Write { ok: true },
            EventKind::Flush { ok: false },
            EventKind::Discard { ok: true },
            EventKind::Decode { ok: true },
            EventKind::CacheHit,
        ];
        for (n, kind) in (0..).zip(kinds) {
            let event = Event {
                at: Duration::from_micros(n),
                kind,
                structure: Structure::named("tables"),
                blob: BlobId(7),
                offset: u64::MAX,
                len: n,
            };
            assert_eq!(parse_line(&line(&event)), Some(Some(event)));
        }
        assert_eq!(parse_line(HEAD), Some(None));
        for bad in [
            "x",
            "1\twrite",
            "1\twrite\tdata\t-\tmaybe\t0\t0\t1",
            "1\twrite\tof many words\t-\tok\t0\t0\t1",
            "1\twrite\tmorethanfifteenletters\t-\tok\t0\t0\t1",
            "1\twrite\t\t-\tok\t0\t0\t1",
        ] {
            assert_eq!(parse_line(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_file_of_events() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let writer = TraceWriter::create(&path).unwrap();
        let event = Event {
            at: Duration::from_micros(1),
            kind: EventKind::Write { ok: true },
            structure: Structure::named("tables"),
            blob: BlobId::IMAGE,
            offset: 512,
            len: 1024,
        };
        writer.event(&event);
        writer.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let events: Vec<_> = text.lines().map(|line| parse_line(line).unwrap()).collect();
        assert_eq!(events, [None, Some(event)]);
    }
}
