//! The trace file: events as lines of text, for analysis after the mount has ended.
//!
//! Each event is a line with tab-separated fields: microseconds since the start, kind, structure,
//! purpose, outcome, blob, offset, length, duration in microseconds, node. Older versions wrote no
//! duration and no node. A node's name is a comment, which older versions ignore: `# name`, node,
//! directory and name, tab-separated, with `%xx` for bytes that are not printable ASCII. The format
//! is text because people and awk read traces too. Events are buffered until the buffer is full or
//! the writer is dropped. A failed write ends the trace, but not the traced work.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{self, BufWriter, Write};
use std::sync::Mutex;
use std::time::Duration;

use forerun_io::{BlobId, Event, EventKind, EventSink, Purpose, Structure, Unpoisoned};

const HEAD: &str =
    "# forerun trace 2: microseconds kind structure purpose outcome blob offset bytes took node";

const NAME: &str = "# name\t";

/// Maximum number of nodes whose names are known to be written (32 MiB); names of further nodes are
/// written every time.
const REMEMBERED_NAMES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceRecord {
    Event(Event),
    Name { node: u64, dir: u64, name: Vec<u8> },
    Comment,
}

impl TraceRecord {
    /// Parses a line of a trace. Returns `None` for an invalid line.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        match parse_line(line)? {
            Some(event) => Some(Self::Event(event)),
            None => Some(parse_name(line).unwrap_or(Self::Comment)),
        }
    }
}

#[derive(Debug)]
pub struct TraceWriter {
    out: Mutex<Option<BufWriter<File>>>,
    /// Nodes whose name was written, with a hash of directory and name.
    named: Mutex<HashSet<(u64, u64)>>,
}

impl TraceWriter {
    pub fn begin(file: File) -> io::Result<Self> {
        let mut out = BufWriter::with_capacity(1 << 16, file);
        writeln!(out, "{HEAD}")?;
        out.flush()?;
        let out = Mutex::new(Some(out));
        let named = Mutex::default();
        Ok(Self { out, named })
    }

    /// Writes the buffered events to the file.
    pub fn flush(&self) -> io::Result<()> {
        let mut out = self.out.lock().unpoisoned();
        out.as_mut().map_or(Ok(()), BufWriter::flush)
    }
}

impl TraceWriter {
    fn write(&self, line: &str) {
        let mut out = self.out.lock().unpoisoned();
        let written = out.as_mut().map(|out| writeln!(out, "{line}"));
        if let Some(Err(_disk_full)) = written {
            *out = None;
        }
    }
}

impl EventSink for TraceWriter {
    fn event(&self, event: &Event) {
        self.write(&line(event));
    }

    fn name(&self, node: u64, dir: u64, name: &[u8]) {
        let place = BuildHasherDefault::<DefaultHasher>::default().hash_one((dir, name));
        let mut named = self.named.lock().unpoisoned();
        let is_new = if named.len() < REMEMBERED_NAMES {
            named.insert((node, place))
        } else {
            !named.contains(&(node, place))
        };
        drop(named);
        if is_new {
            self.write(&name_line(node, dir, name));
        }
    }
}

fn name_line(node: u64, dir: u64, name: &[u8]) -> String {
    let mut line = format!("{NAME}{node}\t{dir}\t");
    for &byte in name {
        match byte {
            b'!'..=b'~' if byte != b'%' => line.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(line, "%{byte:02x}")),
        }
    }
    line
}

fn parse_name(line: &str) -> Option<TraceRecord> {
    let mut fields = line.strip_prefix(NAME)?.trim_end().split('\t');
    let node = fields.next()?.parse().ok()?;
    let dir = fields.next()?.parse().ok()?;
    let mut text = fields.next()?.bytes();
    let mut name = Vec::new();
    while let Some(byte) = text.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        name.push(match byte {
            b'%' => {
                let (high, low) = (digit(text.next())?, digit(text.next())?);
                u8::try_from(high * 16 + low).ok()?
            }
            _ => byte,
        });
    }
    Some(TraceRecord::Name { node, dir, name })
}

fn line(event: &Event) -> String {
    let purpose = match event.kind {
        EventKind::SourceRead { purpose, .. } => purpose.name(),
        _ => "-",
    };
    let outcome = if event.kind.ok() { "ok" } else { "failed" };
    let node = event.node.map_or("-".into(), |node| node.to_string());
    format!(
        "{}\t{}\t{}\t{purpose}\t{outcome}\t{}\t{}\t{}\t{}\t{node}",
        event.at.as_micros(),
        event.kind.name(),
        event.structure.name(),
        event.blob.0,
        event.offset,
        event.len,
        event.took.as_micros(),
    )
}

/// Parses a line. Returns `Some(None)` for a comment or blank line, and `None` for an invalid line.
fn parse_line(line: &str) -> Option<Option<Event>> {
    if line.starts_with('#') || line.trim().is_empty() {
        return Some(None);
    }
    let mut fields = line.trim_end().split('\t');
    let mut next = || fields.next();
    let at = Duration::from_micros(next()?.parse().ok()?);
    let (kind, structure, purpose, outcome) = (next()?, next()?, next()?, next()?);
    let blob = BlobId(next()?.parse().ok()?);
    let (offset, len) = (next()?.parse().ok()?, next()?.parse().ok()?);
    let took = next().map_or(Some(0), |took| took.parse().ok())?;
    let node = match next() {
        None | Some("-") => None,
        Some(node) => Some(node.parse().ok()?),
    };
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
        EventKind::Fetch { ok },
        EventKind::FileRead { ok },
        EventKind::FileWrite { ok },
    ];
    let event = Event {
        at,
        took: Duration::from_micros(took),
        node,
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
            EventKind::Fetch { ok: false },
            EventKind::FileRead { ok: true },
            EventKind::FileWrite { ok: true },
        ];
        for (n, kind) in (0..).zip(kinds) {
            let event = Event {
                at: Duration::from_micros(n),
                took: Duration::from_micros(2 * n),
                node: (n % 2 == 0).then_some(n),
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
            "1\twrite\tdata\t-\tok\t0\t0\t1\tx",
            "1\twrite\tdata\t-\tok\t0\t0\t1\t1\tx",
        ] {
            assert_eq!(parse_line(bad), None, "{bad}");
        }
    }

    #[test]
    fn lines_of_older_versions_are_read() {
        let event = parse_line("5\tfile_read\tdata\t-\tok\t0\t8\t9")
            .unwrap()
            .unwrap();
        assert_eq!((event.took, event.node), (Duration::ZERO, None));
        assert_eq!(event.start(), Duration::from_micros(5));
    }

    #[test]
    fn names_of_nodes() {
        let name = b"a b%\t\n\xff~".to_vec();
        let line = name_line(7, u64::MAX, &name);
        assert_eq!(line, "# name\t7\t18446744073709551615\ta%20b%25%09%0a%ff~");
        let dir = u64::MAX;
        assert_eq!(
            TraceRecord::parse(&line),
            Some(TraceRecord::Name { node: 7, dir, name })
        );
        for comment in [
            "# name\t7",
            "# name\t7\t8\t%f",
            "# name\t7\t8\t%zz",
            "#",
            HEAD,
        ] {
            assert_eq!(
                TraceRecord::parse(comment),
                Some(TraceRecord::Comment),
                "{comment}"
            );
        }
        assert_eq!(TraceRecord::parse("x"), None);
    }

    #[test]
    fn a_name_is_written_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let writer = TraceWriter::begin(File::create(&path).unwrap()).unwrap();
        for name in [&b"a"[..], b"a", b"b"] {
            writer.name(5, 4, name);
        }
        writer.flush().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn a_file_of_events() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let writer = TraceWriter::begin(File::create(&path).unwrap()).unwrap();
        let event = Event {
            at: Duration::from_micros(1),
            took: Duration::ZERO,
            node: None,
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
