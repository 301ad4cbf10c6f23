//! A Python file object as the source of an image.

use std::io;
use std::sync::Mutex;

use forerun::ReadAt;
use forerun_io::Unpoisoned;
use pyo3::exceptions::PyRuntimeError;
use pyo3::types::{PyAnyMethods, PyBytes, PyBytesMethods};
use pyo3::{Bound, Py, PyAny, PyErr, PyResult, Python};

use crate::at_exit::{self, Call};

/// A seekable binary file object. It has only one position, so reads take turns.
pub struct FileObject {
    object: Py<PyAny>,
    len: u64,
    /// Taken before the interpreter's lock, by threads that do not hold that lock, because methods
    /// of the object may release it.
    turn: Mutex<()>,
}

impl FileObject {
    /// Wraps a file object, and determines its length.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        at_exit::register(object.py())?;
        let len = object.call_method1("seek", (0, 2))?;
        // Raw files return the position; others may return None.
        let len = if len.is_none() {
            object.call_method0("tell")?
        } else {
            len
        };
        Ok(Self {
            len: len.extract()?,
            object: object.clone().unbind(),
            turn: Mutex::new(()),
        })
    }

    fn read(&self, py: Python<'_>, offset: u64, out: &mut [u8]) -> PyResult<()> {
        let object = self.object.bind(py);
        object.call_method1("seek", (offset,))?;
        let mut filled = 0;
        while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let read = object.call_method1("read", (rest.len(),))?;
            let bytes = read.cast::<PyBytes>()?.as_bytes();
            let part = rest.get_mut(..bytes.len());
            match part.filter(|part| !part.is_empty()) {
                Some(part) => part.copy_from_slice(bytes),
                None => return Err(PyRuntimeError::new_err("the file is shorter than it said")),
            }
            filled += bytes.len();
        }
        Ok(())
    }
}

impl ReadAt for FileObject {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(u64::try_from(out.len()).unwrap_or(u64::MAX));
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let _turn = self.turn.lock().unpoisoned();
        let read = Call::begin().and_then(|_call| {
            // While the interpreter exits, the object cannot be read any more.
            Python::try_attach(|py| self.read(py, offset, out).map_err(failed))
        });
        read.unwrap_or_else(|| Err(io::Error::other("the interpreter has ended")))
    }
}

fn failed(error: PyErr) -> io::Error {
    io::Error::other(error.to_string())
}
