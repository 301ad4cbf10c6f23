//! Reads many files ahead of an iterator.
//!
//! The iterator passes paths to threads in batches, and takes contents from them. It holds the
//! interpreter's lock except while it waits. [`crew`] and [`window`] have the threads' work.

mod crew;
mod gathered;
mod window;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

use forerun_engine::Asked;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::types::{PyAnyMethods, PyBytes, PyIterator, PyTuple, PyTupleMethods};
use pyo3::{Bound, Py, PyAny, PyErr, PyRef, PyResult, Python, pyclass, pymethods};

use crate::contents::Bytes;
use crate::handle::Held;
use crate::path::InImage;
use crew::{Crew, Waited};

/// Most paths passed on at once. They are read in physical order, so larger batches take fewer
/// requests and repeat fewer decodes.
const BATCH: usize = 16 << 10;
/// Longest time spent on collecting a batch from a slow iterator.
const COLLECTING: Duration = Duration::from_millis(20);
/// An iterator counts as slow if its paths take longer than this on average. A list whose thread
/// had to wait for a CPU must not count as slow: reading only half of it would decode many blocks
/// that the other half needs again.
const SLOW: Duration = Duration::from_micros(5);
/// Interval between checks for signals.
const TICK: Duration = Duration::from_millis(50);

/// A file, or a part of one, to be read.
pub struct Request {
    path: PathBuf,
    range: Option<Range<u64>>,
}

/// An iterator over requests and their contents, which other threads read ahead.
#[pyclass(frozen, module = "forerun")]
pub struct ReadMany {
    held: Held,
    crew: Crew,
    in_order: bool,
    as_errors: bool,
    /// Locked by a thread while it advances; a concurrent call raises an error.
    state: Mutex<Dialogue>,
}

struct Dialogue {
    source: Option<Py<PyIterator>>,
    /// The error of the source, raised after the contents that precede it.
    failed: Option<PyErr>,
    /// Unanswered requests by number.
    asked: HashMap<usize, Py<PyAny>>,
    /// Number of requests so far.
    count: usize,
    /// The number to return next, if `in_order`.
    next: usize,
}

impl ReadMany {
    /// Starts the threads. `wanted` is an iterable of paths, or of tuples of path, start and end.
    pub fn new(
        held: Held,
        wanted: &Bound<'_, PyAny>,
        workers: Option<usize>,
        (in_order, as_errors): (bool, bool),
        memory: u64,
    ) -> PyResult<Self> {
        let workers = workers.unwrap_or_else(|| held.reader().options().pool_threads());
        let crew = Crew::start(&held, workers, memory);
        let crew = crew.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        Ok(Self {
            held,
            crew,
            in_order,
            as_errors,
            state: Mutex::new(Dialogue {
                source: Some(wanted.try_iter()?.unbind()),
                failed: None,
                asked: HashMap::new(),
                count: 0,
                next: 0,
            }),
        })
    }

    /// Passes the next paths to the threads if they can use more.
    fn ask(&self, py: Python<'_>, state: &mut Dialogue) {
        if state.asked.len() >= BATCH || !self.crew.takes_more() {
            return;
        }
        let Some(source) = state.source.take() else {
            return;
        };
        let first = state.count;
        let (mut batch, mut source) = (Vec::new(), source.into_bound(py));
        let start = Instant::now();
        let mut is_ended = false;
        while batch.len() < BATCH && !is_slow(start, batch.len()) {
            let item = source.next();
            match item.map(|item| item.and_then(|item| Ok((wanted(&item)?, item)))) {
                Some(Ok((wanted, item))) => {
                    batch.push(wanted);
                    state.asked.insert(state.count, item.unbind());
                    state.count += 1;
                }
                Some(Err(error)) => {
                    state.failed = Some(error);
                    is_ended = true;
                }
                None => is_ended = true,
            }
            if is_ended {
                break;
            }
        }
        if !is_ended {
            state.source = Some(source.unbind());
        }
        if !batch.is_empty() {
            let asked = if is_ended { Asked::All } else { Asked::Part };
            self.crew.ask(first, batch, asked);
        }
    }

    fn answer(
        &self,
        py: Python<'_>,
        state: &mut Dialogue,
        number: usize,
        read: crate::errors::Result<Bytes>,
    ) -> PyResult<Py<PyTuple>> {
        state.next = state.next.max(number.saturating_add(1));
        let asked = state.asked.remove(&number);
        let contents = match read {
            Ok(bytes) => PyBytes::new(py, &bytes).into_any(),
            Err(failed) => {
                let error = PyErr::from(failed);
                if !self.as_errors {
                    return Err(error);
                }
                error.into_value(py).into_bound(py).into_any()
            }
        };
        Ok(PyTuple::new(py, [asked.into_bound_or_none(py), contents])?.unbind())
    }
}

/// Returns whether an iterator that gave `count` paths since `start` keeps the threads waiting.
fn is_slow(start: Instant, count: usize) -> bool {
    let elapsed = start.elapsed();
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    elapsed >= COLLECTING && elapsed >= SLOW.saturating_mul(count)
}

/// Converts an optional object, with `None` for a missing one.
trait OrNone {
    fn into_bound_or_none(self, py: Python<'_>) -> Bound<'_, PyAny>;
}

impl OrNone for Option<Py<PyAny>> {
    fn into_bound_or_none(self, py: Python<'_>) -> Bound<'_, PyAny> {
        self.unwrap_or_else(|| py.None()).into_bound(py)
    }
}

/// Parses a path, or a tuple of path, start and end.
fn wanted(item: &Bound<'_, PyAny>) -> PyResult<Request> {
    if let Ok(tuple) = item.cast::<PyTuple>() {
        let path: InImage = tuple.get_item(0)?.extract()?;
        let (start, end): (u64, u64) =
            (tuple.get_item(1)?.extract()?, tuple.get_item(2)?.extract()?);
        return Ok(Request {
            path: path.0,
            range: Some(start..end),
        });
    }
    Ok(Request {
        path: item.extract::<InImage>()?.0,
        range: None,
    })
}

impl Drop for ReadMany {
    fn drop(&mut self) {
        // In a forked process, the threads do not exist, and their lock may be held forever.
        if self.held.is_ours() {
            self.crew.stop();
        }
    }
}

#[pymethods]
impl ReadMany {
    const fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Returns the next contents. An error concerns one file; the iterator continues after it.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<PyTuple>>> {
        self.held.check()?;
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(PyValueError::new_err(
                    "another thread advances the iterator",
                ));
            }
        };
        loop {
            self.ask(py, &mut state);
            if state.asked.is_empty() {
                if state.source.is_some() {
                    continue;
                }
                return match state.failed.take() {
                    Some(error) => Err(error),
                    None => Ok(None),
                };
            }
            let number = self.in_order.then_some(state.next);
            let waited = match self.crew.poll(number) {
                Waited::Nothing => py.detach(|| self.crew.wait(number, TICK)),
                other => other,
            };
            match waited {
                Waited::Read(number, read) => {
                    return self.answer(py, &mut state, number, read).map(Some);
                }
                Waited::Nothing => py.check_signals()?,
                Waited::Ended => {
                    return Err(PyRuntimeError::new_err("the reading threads have ended"));
                }
            }
        }
    }

    /// Ends the threads. Drops what they have read.
    fn close(&self) {
        if self.held.is_ours() {
            self.crew.stop();
        }
        if let Ok(mut state) = self.state.try_lock() {
            state.source = None;
            state.asked.clear();
        }
    }
}
