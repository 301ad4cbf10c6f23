//! Keeps threads of the library out of Python objects while the interpreter exits.
//!
//! CPython aborts the process if a thread that it did not start returns from a call during exit. So
//! calls are counted: an `atexit` handler refuses new calls, and waits for those in flight.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::types::{PyAnyMethods, PyCFunction, PyDict, PyTuple};
use pyo3::{Bound, PyResult, Python};

/// How long exit waits for calls in flight. A call that blocks longer, for instance on a pipe, must
/// not stop the process from exiting.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between checks for calls in flight.
const STEP: Duration = Duration::from_millis(1);

/// Number of calls in flight. Not a lock, because a fork could copy a lock while it is held.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// The process that registered the handler; a forked process registers its own.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// A call of a Python object, from before its thread attaches to the interpreter until after it has
/// detached.
pub struct Call(());

impl Call {
    /// Begins a call. Returns `None` if the interpreter is exiting.
    pub fn begin() -> Option<Self> {
        CALLS.fetch_add(1, Ordering::SeqCst);
        let call = Self(());
        // Count the call first: either the handler sees the call, or the call sees the exit.
        (!IS_ENDING.load(Ordering::SeqCst)).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Registers the exit handler, once in each process that calls Python objects.
pub fn register(py: Python<'_>) -> PyResult<()> {
    let process = std::process::id();
    if PROCESS.swap(process, Ordering::SeqCst) == process {
        return Ok(());
    }
    // The threads with calls in flight exist only in the parent of a forked process.
    CALLS.store(0, Ordering::SeqCst);
    let handler = move |arguments: &Bound<'_, PyTuple>, _: Option<&Bound<'_, PyDict>>| {
        if std::process::id() == process {
            arguments.py().detach(end_calls);
        }
    };
    let handler = PyCFunction::new_closure(py, None, None, handler)?;
    py.import("atexit")?.call_method1("register", (handler,))?;
    Ok(())
}

fn end_calls() {
    IS_ENDING.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    while CALLS.load(Ordering::SeqCst) > 0 && begun.elapsed() < PATIENCE {
        thread::sleep(STEP);
    }
}
