//! Moves the bytes of writable volumes.
//!
//! A [`Reader`](crate::Reader) may cache what it has read, because its image does not change. Here
//! the next write may change it. So nothing is cached: the kernel's page cache lies below a local
//! device and, in a mount, above it. Reads go from the device into the caller's buffer, writes from
//! the caller's buffer to the device, one request per run of neighbouring extents.
//!
//! The driver handles metadata, and the order in which changes become durable: data is written to
//! the device before the driver is told of it.

mod ahead;
mod extents;
mod seek;

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use forerun_io::{
    BlockDevice, CountedDevice, Counter, Observer, Purpose, Structure, Unpoisoned, u64_from,
    usize_from,
};
use forerun_vfs::{
    Changes, DirCursor, DirEntry, Error, FileSystemMut, Metadata, NodeId, Result, Timestamp,
};

use crate::tuning::{NOTED_ENTRIES, ZEROS_BY_DEVICE, ZEROS_WRITE};
use ahead::VolumeAhead;
use extents::{Run, clip, merged};

/// Number of locks, which files share by their node number: enough that two files seldom share one.
const LOCKS: usize = 64;
/// A volume open for reading and writing.
///
/// Reads and writes of one file exclude each other, so that no reader sees half of a write, or a
/// length without its bytes. Different files wait for each other only if they share a lock.
pub struct Volume {
    /// Declared before `fs`, so that its thread ends before the driver is dropped.
    ahead: Option<VolumeAhead>,
    fs: Arc<dyn FileSystemMut>,
    device: CountedDevice,
    locks: Vec<RwLock<()>>,
}

/// A guard that abandons the volume if this thread panics while it changes a file.
struct OnPanic<'a> {
    fs: &'a dyn FileSystemMut,
    /// Whether the thread was already unwinding when the guard was created.
    was_panicking: bool,
}

impl<'a> OnPanic<'a> {
    fn new(fs: &'a dyn FileSystemMut) -> Self {
        let was_panicking = std::thread::panicking();
        Self { fs, was_panicking }
    }
}

impl Drop for OnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.was_panicking {
            self.fs.abandon();
        }
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Volume")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl Volume {
    /// Creates a volume of `fs`, which was opened on `device`. Reports requests for data to
    /// `observer`; the driver reports its requests for metadata itself.
    #[must_use]
    pub fn new(
        fs: Arc<dyn FileSystemMut>,
        device: Arc<dyn BlockDevice>,
        observer: Arc<Observer>,
    ) -> Self {
        Self {
            ahead: None,
            fs,
            device: CountedDevice::new(device, observer),
            locks: (0..LOCKS).map(|_| RwLock::default()).collect(),
        }
    }

    /// Turns on readahead of small files in the order of the listings, at most `window` bytes ahead
    /// of each reader (0 leaves it off). Only listings through [`read_dir`](Self::read_dir) count.
    #[must_use]
    pub fn with_readahead(mut self, window: u64) -> Self {
        let (fs, device) = (Arc::clone(&self.fs), self.device.clone());
        self.ahead = (window > 0).then(|| VolumeAhead::new(fs, device, window));
        self
    }

    /// Lists as [`FileSystem::read_dir`](forerun_vfs::FileSystem::read_dir) does, and records the
    /// entries for readahead.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let Some(ahead) = &self.ahead else {
            return self.fs.read_dir(dir, from, visit);
        };
        let mut entries = Vec::new();
        let result = self.fs.read_dir(dir, from, &mut |entry| {
            entries.push((entry.node, entry.next));
            if entries.len() == NOTED_ENTRIES {
                ahead.listed(dir, &entries);
                entries.clear();
            }
            visit(entry)
        });
        ahead.listed(dir, &entries);
        result
    }

    /// Returns the driver. A caller that changes the length or the allocation of a file must use
    /// [`change`](Self::change) and [`allocate`](Self::allocate) instead.
    #[must_use]
    pub fn fs(&self) -> &dyn FileSystemMut {
        &*self.fs
    }

    #[must_use]
    pub const fn observer(&self) -> &Arc<Observer> {
        self.device.observer()
    }

    /// Reads from `offset` on. Returns the number of bytes, which is less than the length of `out`
    /// only at the end of the file.
    ///
    /// # Errors
    /// The errors of [`map`](forerun_vfs::FileSystem::map); [`Error::Io`]. The contents of `out`
    /// must not be used then.
    pub fn read(&self, node: NodeId, offset: u64, out: &mut [u8]) -> Result<usize> {
        let timer = self.observer().timer();
        let read = self.read_untimed(node, offset, out);
        let len = read.as_ref().map_or(out.len(), |&len| len);
        let place = (offset, u64_from(len));
        self.observer()
            .file_read(timer, node.0, place, read.is_ok());
        read
    }

    fn read_untimed(&self, node: NodeId, offset: u64, out: &mut [u8]) -> Result<usize> {
        if offset == 0
            && let Some(ahead) = &self.ahead
        {
            ahead.on_read(node);
        }
        let _no_writer = self.shared(node);
        let size = self.fs.metadata(node)?.size;
        let left = usize_from(size.saturating_sub(offset));
        let Some(out) = out.get_mut(..left.min(out.len())).filter(|o| !o.is_empty()) else {
            // This call is only for the error if the node is not a file.
            self.runs(node, 0..0)?;
            return Ok(0);
        };
        let end = offset + u64_from(out.len());
        let mut at = offset;
        for run in self.runs(node, offset..end)? {
            let Some(run) = clip(&run, at..end) else {
                continue;
            };
            if run.logical.start != at {
                break;
            }
            let from = usize_from(run.logical.start - offset);
            let to = usize_from(run.logical.end - offset);
            let part = &mut out[from..to];
            match run.place {
                None => part.fill(0),
                Some(place) => self
                    .device
                    .read(place, part, Purpose::Demand, Structure::Data)
                    .map_err(|error| self.failed(Error::io(place, part.len(), error)))?,
            }
            at = run.logical.end;
        }
        if at < end {
            return Err(extents::gap(node, at));
        }
        let stats = self.device.observer().stats();
        stats.add(Counter::ServedBytes, end - offset);
        Ok(out.len())
    }

    /// Writes all of `data` at `offset`. The file grows as needed, and the bytes between its old
    /// end and `offset` read as zeros.
    ///
    /// # Errors
    /// The errors of [`map_write`](FileSystemMut::map_write) and
    /// [`written`](FileSystemMut::written); [`Error::Write`]. The file then has its old length, and
    /// its old contents except for bytes that were to be overwritten.
    pub fn write(&self, node: NodeId, offset: u64, data: &[u8], time: Timestamp) -> Result<()> {
        let timer = self.observer().timer();
        let written = self.write_untimed(node, offset, data, time);
        let place = (offset, u64_from(data.len()));
        self.observer()
            .file_write(timer, node.0, place, written.is_ok());
        written
    }

    fn write_untimed(&self, node: NodeId, offset: u64, data: &[u8], time: Timestamp) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(u64_from(data.len()));
        let range = offset..end.ok_or(Error::TooLarge)?;
        let _no_other_user = self.exclusive(node);
        let _abandons = OnPanic::new(&*self.fs);
        let mut extents = Vec::new();
        self.fs.map_write(node, range.clone(), &mut |extent| {
            extents.push(extent);
            ControlFlow::Continue(())
        })?;
        let runs = merged(extents)?;
        let mut at = runs.first().map_or(range.end, |run| run.logical.start);
        if at > offset {
            return Err(extents::gap(node, offset));
        }
        for run in &runs {
            let place = run.place.filter(|_| run.logical.start == at);
            let Some(place) = place else {
                return Err(extents::gap(node, at));
            };
            at = run.logical.end;
            self.put(run, place, offset, data)?;
        }
        if at < range.end {
            return Err(extents::gap(node, at));
        }
        self.fs.written(node, range, time)
    }

    /// Writes the part of `data` (the bytes from `offset` on) that belongs to `run`, and zeros
    /// before it.
    fn put(&self, run: &Run, place: u64, offset: u64, data: &[u8]) -> Result<()> {
        let before = run.logical.start..run.logical.end.min(offset);
        if before.start < before.end {
            self.zero(place..place + (before.end - before.start))?;
        }
        let from = run.logical.start.max(offset);
        let skipped = usize_from(from - offset);
        let upto = usize_from(run.logical.end.saturating_sub(offset)).min(data.len());
        match data.get(skipped..upto) {
            None | Some([]) => Ok(()),
            Some(part) => self.store(place + (from - run.logical.start), part),
        }
    }

    fn zero(&self, range: Range<u64>) -> Result<()> {
        let len = range.end - range.start;
        if len >= ZEROS_BY_DEVICE {
            self.in_use()?;
            let made = self.device.write_zeros(range.clone(), Structure::Data);
            let failed = |error| Error::write(range.start, usize_from(len), error);
            if made.map_err(|error| self.failed(failed(error)))? {
                return Ok(());
            }
        }
        let zeros = vec![0; usize_from(len.min(ZEROS_WRITE))];
        let mut at = range.start;
        while at < range.end {
            let part = usize_from((range.end - at).min(ZEROS_WRITE));
            self.store(at, &zeros[..part])?;
            at += u64_from(part);
        }
        Ok(())
    }

    fn store(&self, place: u64, bytes: &[u8]) -> Result<()> {
        self.in_use()?;
        self.device
            .write(place, bytes, Structure::Data)
            .map_err(|error| self.failed(Error::write(place, bytes.len(), error)))
    }

    /// Fails once a thread has panicked during a change, so that no data is written after that.
    fn in_use(&self) -> Result<()> {
        if self.fs.is_abandoned() {
            Err(Error::ReadOnly("a thread panicked".into()))
        } else {
            Ok(())
        }
    }

    fn failed(&self, error: Error) -> Error {
        self.fs.device_failed(&error);
        error
    }

    /// Changes a file as [`FileSystemMut::change`] does, while no other thread reads or writes it.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn change(&self, node: NodeId, changes: &Changes) -> Result<Metadata> {
        let _no_other_user = self.exclusive(node);
        let _abandons = OnPanic::new(&*self.fs);
        self.fs.change(node, changes)
    }

    /// Allocates as [`FileSystemMut::allocate`] does, while no other thread reads or writes the
    /// file.
    ///
    /// # Errors
    /// The errors of the driver.
    pub fn allocate(&self, node: NodeId, range: Range<u64>, keep_size: bool) -> Result<()> {
        let _no_other_user = self.exclusive(node);
        let _abandons = OnPanic::new(&*self.fs);
        self.fs.allocate(node, range, keep_size)
    }

    fn lock(&self, node: NodeId) -> &RwLock<()> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(node);
        let index = usize_from(hash % u64_from(LOCKS));
        &self.locks[index]
    }

    fn shared(&self, node: NodeId) -> RwLockReadGuard<'_, ()> {
        let lock = self.lock(node).read();
        lock.unpoisoned()
    }

    /// Locks a file against other threads. Ignores poisoning: the driver knows of the panic and
    /// refuses changes.
    fn exclusive(&self, node: NodeId) -> RwLockWriteGuard<'_, ()> {
        let lock = self.lock(node).write();
        lock.unpoisoned()
    }
}
