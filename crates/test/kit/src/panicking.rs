//! A device that panics at a chosen request, as a driver with a defect would.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use forerun_io::{BlockDevice, MemoryDevice, ReadAt};

/// The message of the panic.
pub const ON_PURPOSE: &str = "the device panics on purpose";

/// Counts requests down to one that panics. Only that one does: the device works again after it.
pub struct PanickingDevice {
    memory: MemoryDevice,
    /// Requests until the panic; negative for never.
    left: AtomicI64,
    changes: AtomicU64,
}

impl PanickingDevice {
    /// Creates a device with these bytes that does not panic yet.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            memory: MemoryDevice::new(bytes),
            left: AtomicI64::new(-1),
            changes: AtomicU64::new(0),
        }
    }

    /// Panics at the request after the next `requests`; never where that is nothing.
    pub fn arm(&self, requests: Option<u32>) {
        let left = requests.map_or(-1, i64::from);
        self.left.store(left, Ordering::SeqCst);
    }

    /// Returns whether the panic is still to come.
    pub fn is_armed(&self) -> bool {
        self.left.load(Ordering::SeqCst) >= 0
    }

    /// Returns the number of writes, flushes and discards that reached the device.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.memory.to_vec()
    }

    fn request(&self) {
        let before = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                (left >= 0).then(|| left - 1)
            });
        assert_ne!(before, Ok(0), "{ON_PURPOSE}");
    }

    fn change(&self) {
        self.request();
        self.changes.fetch_add(1, Ordering::SeqCst);
    }
}

impl ReadAt for PanickingDevice {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.request();
        self.memory.read_exact_at(offset, out)
    }
}

impl BlockDevice for PanickingDevice {
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change();
        self.memory.write_all_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.change();
        self.memory.flush()
    }

    fn discard(&self, range: Range<u64>) -> io::Result<bool> {
        self.change();
        self.memory.discard(range)
    }
}
