//! A device that records its writes in order.

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::{BlockDevice, ReadAt, Unpoisoned, u64_from, usize_from};

use super::SECTOR;

/// Fills a discarded sector. Nothing else writes this byte.
pub(super) const DISCARDED: u8 = 0xDB;

/// A request that reached the device, or a step of the workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Write {
        /// Offset in bytes, a multiple of [`SECTOR`].
        offset: u64,
        /// The written bytes, a multiple of [`SECTOR`].
        data: Arc<[u8]>,
        /// Durable when it returns, independent of earlier writes (forced unit access).
        forced: bool,
        /// Contents of files. They are torn in one place only, because tearing them everywhere
        /// finds nothing new.
        contents: bool,
    },
    /// Everything before is durable.
    Flush,
    /// An operation begins: its writes may follow from here on.
    Begun,
    /// The operation has returned: its guarantees hold from here on, unless it failed.
    Returned,
}

/// Everything that reached a device, in order.
pub type Trace = Vec<Event>;

/// A device that forwards all requests and records them as a [`Trace`]. Writes of partial sectors
/// are recorded as the sectors they change.
#[derive(Debug)]
pub struct Recorder<D> {
    inner: D,
    log: Mutex<RecordedLog>,
}

#[derive(Debug, Default)]
struct RecordedLog {
    events: Vec<Event>,
    /// Set while the caller writes contents of files.
    contents: bool,
}

impl<D: BlockDevice> Recorder<D> {
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            log: Mutex::default(),
        }
    }

    pub const fn inner(&self) -> &D {
        &self.inner
    }

    pub fn note(&self, step: Event) {
        self.log().events.push(step);
    }

    /// Writes contents of a file, which the recorder cannot distinguish from metadata.
    pub fn write_contents(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.log().contents = true;
        let result = self.write_all_at(offset, data);
        self.log().contents = false;
        result
    }

    pub fn take(&self) -> Trace {
        std::mem::take(&mut self.log().events)
    }

    fn log(&self) -> MutexGuard<'_, RecordedLog> {
        self.log.lock().unpoisoned()
    }
}

impl<D: BlockDevice> ReadAt for Recorder<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact_at(offset, out)
    }
}

impl<D: BlockDevice> BlockDevice for Recorder<D> {
    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // Held during the write, so that the record has the order of the device.
        let mut log = self.log();
        self.inner.write_all_at(offset, data)?;
        if data.is_empty() {
            return Ok(());
        }
        let sector = u64_from(SECTOR);
        let start = offset / sector * sector;
        let end = (offset + u64_from(data.len())).div_ceil(sector) * sector;
        let mut sectors = vec![0; usize_from(end - start)];
        self.inner.read_exact_at(start, &mut sectors)?;
        let contents = log.contents;
        log.events.push(Event::Write {
            offset: start,
            data: sectors.into(),
            forced: false,
            contents,
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut log = self.log();
        self.inner.flush()?;
        log.events.push(Event::Flush);
        Ok(())
    }

    /// Fills the discarded sectors, which may read as anything, with garbage that no driver would
    /// write.
    fn discard(&self, range: Range<u64>) -> io::Result<bool> {
        let sector = u64_from(SECTOR);
        let (start, end) = (
            range.start.div_ceil(sector) * sector,
            range.end / sector * sector,
        );
        if start < end {
            let garbage = vec![DISCARDED; usize_from(end - start)];
            self.write_contents(start, &garbage)?;
        }
        Ok(true)
    }
}
