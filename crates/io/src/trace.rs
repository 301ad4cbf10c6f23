//! One event for each time a block crosses a boundary.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use crate::BlobId;
use crate::Unpoisoned;

/// The reason for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A reader waits for it.
    #[default]
    Demand,
    /// Readahead of a sequential reader or a bulk stream.
    Readahead,
    Metadata,
}

impl Purpose {
    /// Returns the name in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Demand => "demand",
            Self::Readahead => "readahead",
            Self::Metadata => "metadata",
        }
    }
}

/// The structure of the volume that a request's bytes belong to, as far as the caller knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Structure {
    /// Unknown: an output, a flush.
    #[default]
    Unknown,
    /// A structure that only the driver knows.
    Named(StructureName),
    Directory,
    /// Metadata of any other kind, or of an unknown kind.
    Metadata,
    Data,
}

/// The name of a structure in traces, up to 15 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StructureName([u8; 15]);

impl StructureName {
    fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0);
        let name = self.0.get(..len.unwrap_or(self.0.len()));
        name.and_then(|name| str::from_utf8(name).ok())
            .unwrap_or_default()
    }
}

impl fmt::Debug for StructureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl Structure {
    /// The structures that have the same name in all formats.
    const COMMON: [Self; 4] = [Self::Unknown, Self::Directory, Self::Metadata, Self::Data];

    /// Creates a structure that only the driver knows. Its name is a word of up to 15 lower-case letters.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let mut bytes = [0; 15];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Self::Named(StructureName(bytes))
    }

    /// Returns the name in traces.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Unknown => "unknown",
            Self::Named(name) => name.as_str(),
            Self::Directory => "directory",
            Self::Metadata => "metadata",
            Self::Data => "data",
        }
    }

    /// Returns the structure with this name in traces; `None` for a name that none can have.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let is_name = (1..=15).contains(&name.len());
        if !is_name || !name.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return None;
        }
        let mut common = Self::COMMON.into_iter();
        let common = common.find(|known| known.name() == name);
        Some(common.unwrap_or(Self::named(name)))
    }
}

/// The boundary that was crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// A read of the source ended.
    SourceRead {
        purpose: Purpose,
        /// Whether all bytes were read.
        ok: bool,
    },
    /// Data was found in memory.
    CacheHit,
    /// Data was not in memory.
    CacheMiss,
    /// A reader waited for a read or decode in flight.
    CacheWait,
    /// A block was decoded.
    Decode {
        /// Whether the codec accepted it.
        ok: bool,
    },
    /// A write to an output or device ended.
    Write {
        /// Whether all bytes were written.
        ok: bool,
    },
    /// A flush of an output or device ended.
    Flush { ok: bool },
    /// A device was told to discard a range.
    Discard {
        /// Whether the device accepted it.
        ok: bool,
    },
    /// A request to a server ended.
    Fetch {
        /// Whether an answer came, and all of it was kept.
        ok: bool,
    },
    /// A read of a file ended: its bytes were handed to the front end. Offsets count from the start of
    /// the file.
    FileRead {
        /// Whether all bytes were read.
        ok: bool,
    },
    /// A write to a file ended. Offsets count from the start of the file.
    FileWrite {
        /// Whether all bytes were written.
        ok: bool,
    },
}

impl EventKind {
    /// Returns the name in traces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SourceRead { .. } => "source_read",
            Self::CacheHit => "cache_hit",
            Self::CacheMiss => "cache_miss",
            Self::CacheWait => "cache_wait",
            Self::Decode { .. } => "decode",
            Self::Write { .. } => "write",
            Self::Flush { .. } => "flush",
            Self::Discard { .. } => "discard",
            Self::Fetch { .. } => "fetch",
            Self::FileRead { .. } => "file_read",
            Self::FileWrite { .. } => "file_write",
        }
    }

    /// Returns whether it succeeded. Kinds that cannot fail always have.
    #[must_use]
    pub const fn ok(self) -> bool {
        match self {
            Self::SourceRead { ok, .. }
            | Self::Decode { ok }
            | Self::Write { ok }
            | Self::Flush { ok }
            | Self::Discard { ok }
            | Self::Fetch { ok }
            | Self::FileRead { ok }
            | Self::FileWrite { ok } => ok,
            Self::CacheHit | Self::CacheMiss | Self::CacheWait => true,
        }
    }
}

/// A block crossing a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of its end, since the observer was created.
    pub at: Duration,
    /// Its duration; zero if it was not measured.
    pub took: Duration,
    pub kind: EventKind,
    /// The structure that the bytes belong to.
    pub structure: Structure,
    /// The blob of the bytes.
    pub blob: BlobId,
    /// First byte, as an offset into the blob or output.
    pub offset: u64,
    pub len: u64,
    /// The node of a read or write of a file, if it is known.
    pub node: Option<u64>,
}

impl Event {
    /// Returns when it began.
    #[must_use]
    pub const fn start(&self) -> Duration {
        self.at.saturating_sub(self.took)
    }
}

/// Receives events as they happen, on the thread that caused them.
pub trait EventSink: Send + Sync {
    /// Receives an event. Must not call back into the observed object.
    fn event(&self, event: &Event);

    /// Receives the name of a node, when the front end learns it: the directory that it is in, and the
    /// name there. Ignored by default.
    fn name(&self, node: u64, dir: u64, name: &[u8]) {
        let _ = (node, dir, name);
    }
}

impl<F: Fn(&Event) + Send + Sync> EventSink for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// Keeps the newest events in memory.
#[derive(Debug)]
pub struct EventLog {
    capacity: usize,
    events: Mutex<VecDeque<Event>>,
}

impl EventLog {
    /// Creates a log of the newest `capacity` events.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            events: Mutex::new(VecDeque::new()),
        }
    }

    /// Removes and returns the events, oldest first.
    pub fn take(&self) -> Vec<Event> {
        let mut events = self.events.lock().unpoisoned();
        std::mem::take(&mut *events).into()
    }
}

impl EventSink for EventLog {
    fn event(&self, event: &Event) {
        let mut events = self.events.lock().unpoisoned();
        if events.len() >= self.capacity {
            events.pop_front();
        }
        events.push_back(*event);
    }
}
