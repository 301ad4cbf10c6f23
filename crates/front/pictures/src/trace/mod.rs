//! Draws a trace: what was read where and when, how much was in flight, and which files took
//! longest.
//!
//! A trace can have any number of events. Totals are exact; individually drawn events are thinned
//! out, and the page says so. Memory is bounded to about 100 MiB.

mod file;
mod files;
mod points;
mod summary;
mod timeline;

use forerun_io::{Event, EventKind, Purpose};
use serde_json::{Value, json};

use crate::{page, text};
pub use file::{TraceRecord, TraceWriter};
use files::{Bar, FileTimes, Names};
use points::{Point, Points};
pub use summary::{TraceRow, TraceSummary};
use timeline::{Link, Lookups, Timeline};

const BODY: &str = include_str!("../../assets/trace.html");
const SCRIPT: &str = include_str!("../../assets/trace.js");

const SHOWN_FILES: usize = 40;
/// Number of length classes: 0 and 1 bytes, 2 and 3, and so on, up to 4 GiB and more.
const SIZES: usize = 33;

/// A kind of request, with its own colour in the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Metadata,
    Data,
    Readahead,
    Decode,
    Fetch,
    Write,
}

/// In the order of the legend.
const CLASSES: [Class; 6] = [
    Class::Metadata,
    Class::Data,
    Class::Readahead,
    Class::Decode,
    Class::Fetch,
    Class::Write,
];

impl Class {
    /// Returns the class of an event, `None` if the event requests no bytes of the image.
    const fn of(kind: EventKind) -> Option<Self> {
        match kind {
            EventKind::SourceRead { purpose, .. } => Some(match purpose {
                Purpose::Metadata => Self::Metadata,
                Purpose::Demand => Self::Data,
                Purpose::Readahead => Self::Readahead,
            }),
            EventKind::Decode { .. } => Some(Self::Decode),
            EventKind::Fetch { .. } => Some(Self::Fetch),
            EventKind::Write { .. } => Some(Self::Write),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Data => "data",
            Self::Readahead => "readahead",
            Self::Decode => "decode",
            Self::Fetch => "fetch",
            Self::Write => "write",
        }
    }
}

#[derive(Clone, Debug)]
struct ClassSums {
    requests: u64,
    bytes: u64,
    failed: u64,
    took: u64,
    sizes: [u64; SIZES],
    points: Points,
}

impl Default for ClassSums {
    fn default() -> Self {
        Self {
            requests: 0,
            bytes: 0,
            failed: 0,
            took: 0,
            sizes: [0; SIZES],
            points: Points::default(),
        }
    }
}

impl ClassSums {
    fn add(&mut self, event: &Event, start: u64) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(event.len);
        self.failed += u64::from(!event.kind.ok());
        self.took = self.took.saturating_add(micros(event.took));
        let size = event.len.checked_ilog2().unwrap_or(0);
        let last = SIZES - 1;
        let size = usize::try_from(size).unwrap_or(last).min(last);
        if let Some(count) = self.sizes.get_mut(size) {
            *count += 1;
        }
        self.points.add(Point {
            start,
            took: micros(event.took),
            offset: event.offset,
            len: event.len,
            blob: event.blob.0.into(),
            failed: !event.kind.ok(),
        });
    }
}

#[derive(Clone, Debug, Default)]
pub struct TracePicture {
    classes: [ClassSums; CLASSES.len()],
    lookups: Lookups,
    timeline: Timeline,
    files: FileTimes,
    names: Names,
    flushes: u64,
    events: u64,
    end: u64,
}

impl TracePicture {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&mut self, record: &TraceRecord) {
        match record {
            TraceRecord::Event(event) => self.event(event),
            TraceRecord::Name { node, dir, name } => self.names.add(*node, *dir, name),
            TraceRecord::Comment => {}
        }
    }

    fn event(&mut self, event: &Event) {
        self.events += 1;
        let (start, end) = (micros(event.start()), micros(event.at));
        self.end = self.end.max(end);
        if let Some(class) = Class::of(event.kind) {
            let index = CLASSES.iter().position(|&known| known == class);
            if let Some(sums) = index.and_then(|index| self.classes.get_mut(index)) {
                sums.add(event, start);
            }
            match class {
                Class::Fetch => self.timeline.request(Link::Server, start, end, event.len),
                Class::Decode => {}
                Class::Metadata | Class::Data | Class::Readahead | Class::Write => {
                    self.timeline.request(Link::Device, start, end, event.len);
                }
            }
        }
        match event.kind {
            EventKind::CacheHit => self.lookup(end, (1, 0, 0)),
            EventKind::CacheWait => self.lookup(end, (0, 1, 0)),
            EventKind::CacheMiss => self.lookup(end, (0, 0, 1)),
            EventKind::Flush { .. } => self.flushes += 1,
            EventKind::FileRead { .. } | EventKind::FileWrite { .. } => {
                let is_write = matches!(event.kind, EventKind::FileWrite { .. });
                let bar = Bar {
                    start,
                    end,
                    requests: 1,
                    bytes: event.len,
                };
                if let Some(node) = event.node {
                    self.files.add(node, is_write, bar);
                }
            }
            _ => {}
        }
    }

    fn lookup(&mut self, at: u64, (hits, waits, misses): (u64, u64, u64)) {
        let found = Lookups {
            hits,
            waits,
            misses,
        };
        self.lookups = self.lookups.and(found);
        self.timeline.lookup(at, found);
    }

    /// Returns the figures described in docs/json.md.
    #[must_use]
    pub fn json(&self) -> Value {
        let classes = CLASSES.iter().zip(&self.classes).map(|(class, sums)| {
            let sizes = (0..).zip(sums.sizes).filter(|(_, count)| *count > 0);
            let sizes: Vec<_> = sizes
                .map(|(log, count)| json!({ "from": if log == 0 { 0 } else { 1_u64 << log }, "count": count }))
                .collect();
            json!({
                "class": class.name(),
                "count": sums.requests,
                "bytes": sums.bytes,
                "failed": sums.failed,
                "micros": sums.took,
                "sizes": sizes,
            })
        });
        let Lookups {
            hits,
            waits,
            misses,
        } = self.lookups;
        json!({
            "events": self.events,
            "micros": self.end,
            "classes": classes.collect::<Vec<_>>(),
            "cache": { "hits": hits, "waits": waits, "misses": misses },
            "flushes": self.flushes,
            "slowest_files": self.slowest(false),
            "files": self.files.len(),
            "files_left_out": self.files.left_out,
        })
    }

    /// Returns the slowest files, with their periods of activity if `bars` is set.
    fn slowest(&self, bars: bool) -> Vec<Value> {
        let files = self.files.slowest(SHOWN_FILES).into_iter();
        let file = |(node, file): (u64, &files::FileUse)| {
            let path = self.names.path(node).map(|path| text::path(&path));
            let mut shown = json!({
                "node": node,
                "path": path,
                "reads": file.reads,
                "writes": file.writes,
                "bytes": file.bytes,
                "micros": file.took,
                "slowest_micros": file.slowest,
            });
            if bars {
                let list =
                    |bar: &Bar| Value::from(vec![bar.start, bar.end, bar.requests, bar.bytes]);
                shown["bars"] = file.bars.iter().map(list).collect();
            }
            shown
        };
        files.map(file).collect()
    }

    #[must_use]
    pub fn page(&self, title: &str) -> String {
        let points = CLASSES.iter().zip(&self.classes).map(|(class, sums)| {
            json!({
                "class": class.name(),
                "every": sums.points.every,
                "points": sums.points.json(),
            })
        });
        let lookups = self.timeline.lookups().iter();
        let data = json!({
            "figures": self.json(),
            "drawn": points.collect::<Vec<_>>(),
            "width": self.timeline.width,
            "device": self.timeline.in_flight(Link::Device),
            "server": self.timeline.in_flight(Link::Server),
            "lookups": lookups.map(|l| Value::from(vec![l.hits, l.waits, l.misses])).collect::<Vec<_>>(),
            "files": self.slowest(true),
        });
        page::page(&format!("Trace of {title}"), BODY, &data, SCRIPT)
    }
}

fn micros(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
