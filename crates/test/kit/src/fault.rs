//! Sources that misbehave on purpose, at a read that the test chooses.
//!
//! Everything is deterministic: reads are counted from 0 in the order of their arrival, and a slow
//! read waits for a [`Gate`] that the test opens; nothing sleeps. A failed read leaves garbage in
//! the buffer, which exposes callers that use the bytes of a failed read.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use forerun_io::{ReadAt, Unpoisoned, u64_from};

/// Fills a buffer after a failed read.
const GARBAGE: u8 = 0xA5;
/// Time after which an expected event will not happen.
const FAULT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
enum Fault {
    /// The n-th read fails with EIO.
    Fail(u64),
    /// The n-th read returns only the first half of its bytes.
    Short(u64),
    /// The n-th read waits for the gate and then succeeds.
    Slow(u64, Gate),
    /// Every read that touches the range fails with EIO.
    BadRange(Range<u64>),
}

#[derive(Debug)]
pub struct FaultSource<S> {
    inner: S,
    fault: Fault,
    reads: AtomicU64,
}

impl<S: ReadAt> FaultSource<S> {
    /// Fails the `n`-th read, counted from 0, with EIO. All others succeed.
    pub const fn fail_nth(inner: S, n: u64) -> Self {
        Self::new(inner, Fault::Fail(n))
    }

    /// Ends the `n`-th read, counted from 0, halfway with `UnexpectedEof`. All others succeed.
    pub const fn short_nth(inner: S, n: u64) -> Self {
        Self::new(inner, Fault::Short(n))
    }

    /// Delays the `n`-th read, counted from 0, until the gate is opened. All others succeed at
    /// once.
    pub fn slow_nth(inner: S, n: u64) -> (Self, Gate) {
        let gate = Gate::default();
        (Self::new(inner, Fault::Slow(n, gate.clone())), gate)
    }

    /// Fails every read that touches `range` with EIO. Others succeed.
    pub const fn bad_range(inner: S, range: Range<u64>) -> Self {
        Self::new(inner, Fault::BadRange(range))
    }

    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    const fn new(inner: S, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            reads: AtomicU64::new(0),
        }
    }
}

impl<S: ReadAt> ReadAt for FaultSource<S> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let this = self.reads.fetch_add(1, Ordering::SeqCst);
        match &self.fault {
            Fault::Fail(n) if *n == this => {
                out.fill(GARBAGE);
                return Err(eio());
            }
            Fault::Short(n) if *n == this => {
                let half = out.len() / 2;
                out[half..].fill(GARBAGE);
                self.inner.read_exact_at(offset, &mut out[..half])?;
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    format!("short read: {half} bytes at {offset}"),
                ));
            }
            Fault::Slow(n, gate) if *n == this => gate.pass(),
            Fault::BadRange(bad) => {
                let end = offset.saturating_add(u64_from(out.len()));
                if offset < bad.end && bad.start < end {
                    out.fill(GARBAGE);
                    return Err(eio());
                }
            }
            Fault::Fail(_) | Fault::Short(_) | Fault::Slow(..) => {}
        }
        self.inner.read_exact_at(offset, out)
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

/// A gate that blocks a slow read until the test opens it.
#[derive(Clone, Debug, Default)]
pub struct Gate {
    state: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Debug, Default)]
struct GateState {
    reached: bool,
    open: bool,
}

impl Gate {
    /// Lets the slow read continue, even if it has not arrived yet.
    pub fn open(&self) {
        self.change(|state| state.open = true);
    }

    pub fn wait_until_reached(&self) {
        self.wait(|state| state.reached, "no read arrived at the gate");
    }

    pub fn reached(&self) -> bool {
        self.lock().reached
    }

    fn pass(&self) {
        self.change(|state| state.reached = true);
        self.wait(|state| state.open, "the gate was never opened");
    }

    fn change(&self, change: impl FnOnce(&mut GateState)) {
        change(&mut self.lock());
        self.state.1.notify_all();
    }

    fn wait(&self, done: impl Fn(&GateState) -> bool, complaint: &str) {
        let guard = self.lock();
        let (guard, timeout) = self
            .state
            .1
            .wait_timeout_while(guard, FAULT_TIMEOUT, |state| !done(state))
            .unpoisoned();
        drop(guard);
        assert!(!timeout.timed_out(), "{complaint}");
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, GateState> {
        self.state.0.lock().unpoisoned()
    }
}

/// A source that records the requested ranges. Clones share the record.
#[derive(Debug)]
pub struct CountingSource<S> {
    inner: S,
    log: Arc<Mutex<Vec<Range<u64>>>>,
}

impl<S: ReadAt> CountingSource<S> {
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            log: Arc::default(),
        }
    }

    pub fn reads(&self) -> u64 {
        u64_from(self.lock().len())
    }

    /// Returns the number of requested bytes.
    pub fn bytes(&self) -> u64 {
        self.lock()
            .iter()
            .map(|range| range.end - range.start)
            .sum()
    }

    /// Returns the requested ranges in the order of arrival, and empties the log.
    pub fn take_log(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Range<u64>>> {
        self.log.lock().unpoisoned()
    }
}

impl<S: Clone> Clone for CountingSource<S> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            log: Arc::clone(&self.log),
        }
    }
}

impl<S: ReadAt> ReadAt for CountingSource<S> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.saturating_add(u64_from(out.len()));
        self.lock().push(offset..end);
        self.inner.read_exact_at(offset, out)
    }
}
