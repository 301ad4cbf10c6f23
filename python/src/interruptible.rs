//! Long jobs that Ctrl-C cancels.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use forerun_export::Progress;
use forerun_io::Unpoisoned;
use pyo3::exceptions::PyRuntimeError;
use pyo3::types::PyAnyMethods;
use pyo3::{Bound, PyAny, PyErr, PyResult, Python};

use crate::errors::{Failed, Result};

/// Interval between checks for signals, and between calls of a report.
const TICK: Duration = Duration::from_millis(100);

/// The progress of a job, updated by its threads.
#[derive(Debug, Default)]
pub struct Counts {
    total_bytes: AtomicU64,
    bytes: AtomicU64,
}

impl Progress for Counts {
    fn begin(&self, total_bytes: u64, _total_files: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    fn advance(&self, bytes: u64, _files: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Counts {
    /// Calls `report(bytes, total_bytes)`.
    fn tell(&self, report: &Bound<'_, PyAny>) -> PyResult<()> {
        let (bytes, total) = (&self.bytes, &self.total_bytes);
        report.call1((bytes.load(Ordering::Relaxed), total.load(Ordering::Relaxed)))?;
        Ok(())
    }
}

/// Runs `job` in a thread, while this thread checks for signals and calls `report`. If a signal
/// handler or `report` raises an exception, sets `stop` and waits for the job to end.
pub fn run<T: Send>(
    py: Python<'_>,
    report: Option<&Bound<'_, PyAny>>,
    counts: &Counts,
    stop: &AtomicBool,
    job: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let (send, done) = channel();
    // A `Receiver` is not `Sync`, so the closure below cannot borrow it without a mutex.
    let done = Mutex::new(done);
    thread::scope(|scope| {
        scope.spawn(move || {
            let _sent = send.send(job());
        });
        let mut raised: Option<PyErr> = None;
        let result = loop {
            match py.detach(|| done.lock().unpoisoned().recv_timeout(TICK)) {
                Ok(result) => break result,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err("a thread of the job panicked"));
                }
            }
            if raised.is_none() {
                let told = report.map_or(Ok(()), |report| counts.tell(report));
                if let Err(error) = py.check_signals().and(told) {
                    stop.store(true, Ordering::Relaxed);
                    raised = Some(error);
                }
            }
        };
        match raised {
            Some(error) => Err(error),
            None => {
                let result = result.map_err(|failed: Failed| PyErr::from(failed))?;
                report.map_or(Ok(()), |report| counts.tell(report))?;
                Ok(result)
            }
        }
    })
}
