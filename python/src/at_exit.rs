//! The end of the interpreter, at which no thread of the library may be in a Python object.
//!
//! CPython aborts the process where a thread that is not its own returns from a call while the interpreter ends. So
//! calls are counted: a handler of `atexit` lets no new one begin, and waits for those that are in flight.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pyo3::types::{PyAnyMethods, PyCFunction, PyDict, PyTuple};
use pyo3::{Bound, PyResult, Python};

/// How long the end waits. A call that blocks for longer, in a pipe for instance, must not keep the process.
const PATIENCE: Duration = Duration::from_secs(5);
/// From one look at the calls to the next.
const STEP: Duration = Duration::from_millis(1);

/// Calls in flight. No lock, which a process that is forked meanwhile would inherit locked.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static IS_ENDING: AtomicBool = AtomicBool::new(false);
/// The process that has the handler; a forked one registers its own.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// A call of a Python object, from before its thread attaches to the interpreter until after it has detached.
pub struct Call(());

impl Call {
    /// Begins a call; nothing at the end of the interpreter.
    pub fn begin() -> Option<Self> {
        CALLS.fetch_add(1, Ordering::SeqCst);
        let call = Self(());
        // Counted first: either the handler sees this call, or this call sees the end.
        (!IS_ENDING.load(Ordering::SeqCst)).then_some(call)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Registers the handler, once in each process that has objects to call.
pub fn register(py: Python<'_>) -> PyResult<()> {
    let process = std::process::id();
    if PROCESS.swap(process, Ordering::SeqCst) == process {
        return Ok(());
    }
    // The threads whose calls a forked process has inherited are not in it.
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
