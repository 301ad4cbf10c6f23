//! Events of a trace.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use crate::BlobId;
use crate::Unpoisoned;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// A reader waits for the bytes.
    #[default]
    Demand,
    /// Readahead of a sequential reader or a bulk stream.
    Readahead,
    Metadata,
}

impl Purpose {
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
    /// Also for outputs and flushes.
    #[default]
    Unknown,
    Named(StructureName),
    Directory,
    /// Metadata of another or an unknown kind.
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

    /// Creates a structure that only the driver knows. The name is a word of up to 15 lower-case
    /// letters.
    #[must_use]
    pub fn named(name: &str) -> Self {
        let mut bytes = [0; 15];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = from;
        }
        Self::Named(StructureName(bytes))
    }

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

    /// Parses the name of a structure in traces. Returns `None` for an invalid name.
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

/// What happened to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    SourceRead {
        purpose: Purpose,
        /// Whether all bytes were transferred.
        ok: bool,
    },
    CacheHit,
    CacheMiss,
    CacheWait,
    Decode {
        ok: bool,
    },
    Write {
        /// Whether all bytes were transferred.
        ok: bool,
    },
    Flush {
        ok: bool,
    },
    Discard {
        /// Whether the device accepted the range.
        ok: bool,
    },
    Fetch {
        /// Whether the server answered, and the whole answer was stored.
        ok: bool,
    },
    /// A read of a file ended, and its bytes were passed to the front end. Offsets count from the
    /// start of the file.
    FileRead {
        /// Whether all bytes were transferred.
        ok: bool,
    },
    /// A write to a file ended. Offsets count from the start of the file.
    FileWrite {
        /// Whether all bytes were transferred.
        ok: bool,
    },
}

impl EventKind {
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

    /// Returns whether the operation succeeded; true for kinds that cannot fail.
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

/// An event in the life of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time of the end, since the observer was created.
    pub at: Duration,
    /// Duration; zero if it was not measured.
    pub took: Duration,
    pub kind: EventKind,
    pub structure: Structure,
    pub blob: BlobId,
    /// First byte, as an offset into the blob or output.
    pub offset: u64,
    pub len: u64,
    pub node: Option<u64>,
}

impl Event {
    /// Returns the time of the start.
    #[must_use]
    pub const fn start(&self) -> Duration {
        self.at.saturating_sub(self.took)
    }
}

/// Receives events as they happen, on the thread that caused them.
pub trait EventSink: Send + Sync {
    /// Receives an event. Must not call back into the observed object.
    fn event(&self, event: &Event);

    /// Receives the name of a node and its directory, when the front end learns it. Ignored by
    /// default.
    fn name(&self, node: u64, dir: u64, name: &[u8]) {
        let _ = (node, dir, name);
    }
}

impl<F: Fn(&Event) + Send + Sync> EventSink for F {
    fn event(&self, event: &Event) {
        self(event);
    }
}

/// A sink that keeps the newest events in memory.
#[derive(Debug)]
pub struct EventLog {
    capacity: usize,
    events: Mutex<VecDeque<Event>>,
}

impl EventLog {
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            events: Mutex::new(VecDeque::new()),
        }
    }

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
