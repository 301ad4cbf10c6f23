//! A reader over a filesystem in memory, as the tests of the engine use it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]
// Each test binary uses its own part of this, and none is documented for users.
#![allow(dead_code, missing_docs)]

use std::sync::Arc;

use forerun_engine::{EngineOptions, MetadataSource, Reader};
use forerun_io::{BlobId, Counted, Counter, EventLog, Limits, Observer, ReadAt};
use forerun_testkit::MemImage;
use forerun_vfs::NodeId;

pub const KIB: usize = 1 << 10;
pub const MIB: usize = 1 << 20;

pub struct Opened {
    pub reader: Reader,
    pub events: Arc<EventLog>,
}

impl Opened {
    pub fn count(&self, counter: Counter) -> u64 {
        self.reader.observer().stats().get(counter)
    }

    /// Reads a file front to back in steps, compares it, gives its length.
    pub fn read_all(&self, image: &MemImage, node: NodeId, step: usize) -> u64 {
        let size = self.reader.fs().metadata(node).unwrap().size;
        let mut at = 0;
        while at < size {
            let data = self.reader.read(node, at, step).unwrap();
            assert!(!data.is_empty(), "no data at {at} of {size}");
            let end = at + data.len() as u64;
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

pub fn open_on(image: &MemImage, source: Arc<dyn ReadAt>, options: EngineOptions) -> Opened {
    let events = Arc::new(EventLog::new(100_000));
    let observer = Arc::new(Observer::new(Some(events.clone())));
    let counted = Counted::new(source, BlobId::IMAGE, observer);
    let geometry = options.geometry(counted.len());
    let metadata = Arc::new(MetadataSource::new(
        counted.clone(),
        geometry,
        options.cache / 8,
    ));
    let reader = Reader::new(
        image.driver(),
        counted,
        metadata,
        options,
        Limits::default(),
    );
    Opened { reader, events }
}

/// Bytes that differ everywhere and still compress.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let words = (0..len.div_ceil(8)).flat_map(|n| {
        if n % 4 == 0 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
        }
        state.to_le_bytes()
    });
    words.take(len).collect()
}
