//! Builds a reader over any driver and source as the library does, and gives access to its
//! counters.

use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource, Reader};
use forerun_io::{BlobId, Counted, Counter, EventLog, Limits, Observer, ReadAt, u64_from};
use forerun_vfs::{FileSystem, NodeId};

use crate::MemImage;

pub struct Opened {
    pub reader: Reader,
    /// The events, until the log is full.
    pub events: Arc<EventLog>,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened").finish_non_exhaustive()
    }
}

impl Opened {
    pub fn count(&self, counter: Counter) -> u64 {
        self.reader.observer().stats().get(counter)
    }

    /// Reads a file of `image` sequentially, `step` bytes at a time, and compares it. Returns its
    /// length.
    pub fn read_all(&self, image: &MemImage, node: NodeId, step: usize) -> u64 {
        let size = self.reader.fs().metadata(node).unwrap().size;
        let mut at = 0;
        while at < size {
            let data = self.reader.read(node, at, step).unwrap();
            assert!(!data.is_empty(), "no data at {at} of {size}");
            let end = at + u64_from(data.len());
            assert!(
                data[..] == image.fs.content(node, at..end),
                "wrong bytes at {at}..{end}"
            );
            at = end;
        }
        assert!(self.reader.read(node, size, step).unwrap().is_empty());
        size
    }
}

pub fn open(image: &MemImage, options: EngineOptions) -> Opened {
    open_on(image, Arc::new(image.source.clone()), options)
}

/// Opens a filesystem in memory whose bytes come from `source`.
pub fn open_on(image: &MemImage, source: Arc<dyn ReadAt>, options: EngineOptions) -> Opened {
    let events = Arc::new(EventLog::new(100_000));
    let observer = Arc::new(Observer::new(Some(events.clone())));
    let (fs, limits) = (image.driver(), Limits::default());
    let reader = observed(fs, source, options, limits, observer);
    Opened { reader, events }
}

pub fn reader_on(
    fs: Arc<dyn FileSystem>,
    source: Arc<dyn ReadAt>,
    options: EngineOptions,
    limits: Limits,
) -> Reader {
    observed(fs, source, options, limits, Arc::default())
}

fn observed(
    fs: Arc<dyn FileSystem>,
    source: Arc<dyn ReadAt>,
    options: EngineOptions,
    limits: Limits,
    observer: Arc<Observer>,
) -> Reader {
    let counted = Counted::new(source, BlobId::IMAGE, observer);
    let geometry = options.geometry(counted.len());
    let metadata = MetadataSource::new(counted.clone(), geometry, options.cache / 8);
    Reader::new(fs, counted, Arc::new(metadata), options, limits)
}
