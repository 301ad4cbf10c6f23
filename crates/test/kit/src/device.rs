//! A device in memory that logs its requests, and fails or panics at chosen requests.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use forerun_io::{BlockDevice, MemoryDevice, ReadAt, Unpoisoned, u64_from};
pub use rustix::io::Errno;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    Read(Range<u64>),
    /// The caller will read this range.
    Hint(Range<u64>),
    Write(Range<u64>),
    Flush,
}

impl Request {
    pub const fn is_read(&self) -> bool {
        matches!(self, Self::Read(_))
    }

    pub const fn is_write(&self) -> bool {
        matches!(self, Self::Write(_))
    }

    pub const fn is_change(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Flush)
    }

    /// Returns the bytes that the request concerns.
    pub fn range(&self) -> Range<u64> {
        match self {
            Self::Read(range) | Self::Hint(range) | Self::Write(range) => range.clone(),
            Self::Flush => 0..0,
        }
    }

    pub fn touches(&self, bytes: &Range<u64>) -> bool {
        let range = self.range();
        range.start < bytes.end && bytes.start < range.end
    }
}

type Hook = dyn FnMut(&Request) -> io::Result<()> + Send;

pub struct TestDevice {
    pub memory: MemoryDevice,
    log: Mutex<Vec<Request>>,
    hook: Mutex<Option<Box<Hook>>>,
}

impl TestDevice {
    pub fn new(bytes: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            memory: MemoryDevice::new(bytes.to_vec()),
            log: Mutex::default(),
            hook: Mutex::default(),
        })
    }

    /// Calls `hook` before each request from now on. If it returns an error, the request fails.
    pub fn hook(&self, hook: impl FnMut(&Request) -> io::Result<()> + Send + 'static) {
        *self.hook.lock().unpoisoned() = Some(Box::new(hook));
    }

    pub fn unhook(&self) {
        *self.hook.lock().unpoisoned() = None;
    }

    /// Fails all requests of a kind after the next `passing` of them.
    pub fn fail_after(&self, passing: u64, of_kind: fn(&Request) -> bool, error: Errno) {
        let mut left = passing;
        self.hook(move |request| {
            if !of_kind(request) {
                return Ok(());
            }
            left = left.checked_sub(1).ok_or(error)?;
            Ok(())
        });
    }

    /// Panics once, after the next `passing` requests. Returns a flag that is set then.
    pub fn panic_after(&self, passing: u64) -> Arc<AtomicBool> {
        let panicked = Arc::new(AtomicBool::default());
        let (flag, mut left) = (Arc::clone(&panicked), Some(passing));
        self.hook(move |_| {
            if left == Some(0) {
                left = None;
                flag.store(true, Ordering::SeqCst);
                panic!("the device panics on purpose");
            }
            left = left.map(|left| left - 1);
            Ok(())
        });
        panicked
    }

    /// Takes the requests that did not fail, in order.
    pub fn take_log(&self) -> Vec<Request> {
        std::mem::take(&mut *self.log.lock().unpoisoned())
    }

    /// Takes the log. Returns its writes and flushes.
    pub fn take_changes(&self) -> Vec<Request> {
        let mut log = self.take_log();
        log.retain(Request::is_change);
        log
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.memory.to_vec()
    }

    fn request(&self, request: Request) -> io::Result<()> {
        if let Some(hook) = &mut *self.hook.lock().unpoisoned() {
            hook(&request)?;
        }
        self.log.lock().unpoisoned().push(request);
        Ok(())
    }
}

fn range(offset: u64, bytes: &[u8]) -> Range<u64> {
    offset..offset + u64_from(bytes.len())
}

impl ReadAt for TestDevice {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.request(Request::Read(range(offset, out)))?;
        self.memory.read_exact_at(offset, out)
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        self.request(Request::Hint(range)).is_ok()
    }
}

impl BlockDevice for TestDevice {
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.request(Request::Write(range(offset, data)))?;
        self.memory.write_all_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.request(Request::Flush)?;
        self.memory.flush()
    }
}
