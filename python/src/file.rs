//! An open file of an image. The package wraps it as an `io.RawIOBase`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use forerun::vfs::NodeId;
use forerun_engine::Data;
use forerun_io::Unpoisoned;
use pyo3::types::PyBytes;
use pyo3::{Bound, PyResult, Python, pyclass, pymethods};

use crate::contents::{self, Bytes};
use crate::errors::{Failed, Result};
use crate::handle::{Handle, Held};

/// Bytes read at a time by sequential reads.
const STEP: usize = 128 << 10;
/// Fewest bytes read at a time.
const PAGE: usize = 4 << 10;
/// An open file with a position and a buffer. Threads may share it: each read advances the position
/// before it reads.
#[pyclass(frozen, module = "forerun")]
pub struct RawFile {
    handle: Arc<Handle>,
    path: PathBuf,
    /// A thread locks it while holding the interpreter's lock, and unlocks it before releasing that
    /// lock.
    state: Mutex<Position>,
}

struct Position {
    held: Held,
    node: NodeId,
    size: u64,
    position: u64,
    ahead: Data,
    ahead_at: u64,
}

struct Part {
    held: Held,
    node: NodeId,
    offset: u64,
    len: usize,
}

impl Part {
    fn data(&self) -> forerun::vfs::Result<Data> {
        self.held.reader().read(self.node, self.offset, self.len)
    }

    fn read(&self) -> forerun::vfs::Result<Bytes> {
        let len = u64::try_from(self.len).unwrap_or(u64::MAX);
        let range = self.offset..self.offset.saturating_add(len);
        contents::read(self.held.reader(), self.node, range, |_| self.data())
    }
}

impl RawFile {
    pub fn open(py: Python<'_>, handle: Arc<Handle>, path: PathBuf) -> PyResult<Self> {
        let held = handle.image(py)?;
        let file = py.detach(|| held.file(&path).map_err(Failed::from))?;
        let (node, size) = (file.node(), file.metadata().size);
        let state = Position {
            held,
            node,
            size,
            position: 0,
            ahead: Data::default(),
            ahead_at: 0,
        };
        Ok(Self {
            handle,
            path,
            state: Mutex::new(state),
        })
    }

    /// In a forked process, opens the file again.
    fn refresh(&self, py: Python<'_>) -> PyResult<()> {
        if self.state.lock().unpoisoned().held.is_ours() {
            return Ok(());
        }
        let held = self.handle.image(py)?;
        let file = py.detach(|| held.file(&self.path).map_err(Failed::from))?;
        let mut state = self.state.lock().unpoisoned();
        state.held = held;
        state.node = file.node();
        // The buffer belongs to the parent's threads, so this process must not drop it.
        std::mem::forget(std::mem::take(&mut state.ahead));
        Ok(())
    }

    /// Reads a part completely.
    fn whole<'py>(&self, py: Python<'py>, part: &Part) -> PyResult<Bound<'py, PyBytes>> {
        let read = py.detach(|| part.read());
        let read = read.map_err(|error| Failed::from(error).at(&self.path))?;
        Ok(PyBytes::new(py, &read))
    }

    /// Returns bytes from `offset` on, from the buffer if it holds them.
    fn bytes_at<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        len: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        if let Some(bytes) = self.state.lock().unpoisoned().kept(offset, len) {
            return Ok(PyBytes::new(py, bytes));
        }
        let part = self.state.lock().unpoisoned().part(offset, len);
        if len >= STEP {
            return self.whole(py, &part);
        }
        let part = Part {
            len: part.len.max(self.state.lock().unpoisoned().step(offset)),
            ..part
        };
        let data = py.detach(|| part.data());
        let data = data.map_err(|error| Failed::from(error).at(&self.path))?;
        let mut state = self.state.lock().unpoisoned();
        (state.ahead, state.ahead_at) = (data, offset);
        Ok(PyBytes::new(py, state.kept_part(offset, len)))
    }
}

impl Position {
    /// Clamps a part to the file.
    fn part(&self, offset: u64, len: usize) -> Part {
        let left = self.size.saturating_sub(offset);
        Part {
            held: self.held.clone(),
            node: self.node,
            offset,
            len: len.min(usize::try_from(left).unwrap_or(usize::MAX)),
        }
    }

    /// Returns `len` bytes, or fewer at the end of the file. Returns `None` if the buffer lacks
    /// some.
    fn kept(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let part = self.kept_part(offset, len);
        (part.len() == len.min(left)).then_some(part)
    }

    /// Returns the buffered bytes from `offset` on.
    fn kept_part(&self, offset: u64, len: usize) -> &[u8] {
        let start = offset.checked_sub(self.ahead_at);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let kept = start.and_then(|start| self.ahead.get(start..));
        let kept = kept.unwrap_or_default();
        kept.get(..len).unwrap_or(kept)
    }

    /// Returns how much to read at `offset`: more if the preceding bytes are in the buffer.
    fn step(&self, offset: u64) -> usize {
        let end = u64::try_from(self.ahead.len()).unwrap_or(u64::MAX);
        if offset == self.ahead_at.saturating_add(end) {
            STEP
        } else {
            PAGE
        }
    }
}

#[pymethods]
impl RawFile {
    /// Returns the length in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.state.lock().unpoisoned().size
    }

    /// Returns the position, in bytes.
    #[getter]
    fn get_position(&self) -> u64 {
        self.state.lock().unpoisoned().position
    }

    #[setter]
    fn set_position(&self, position: u64) {
        self.state.lock().unpoisoned().position = position;
    }

    /// Reads up to `len` bytes, or everything that is left if no length is given. Returns less only
    /// at the end of the file.
    #[pyo3(signature = (len=None))]
    fn read<'py>(&self, py: Python<'py>, len: Option<usize>) -> PyResult<Bound<'py, PyBytes>> {
        self.refresh(py)?;
        let (offset, len) = {
            let mut state = self.state.lock().unpoisoned();
            let offset = state.position;
            let left = state.size.saturating_sub(offset);
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let len = len.unwrap_or(left).min(left);
            state.position = offset + u64::try_from(len).unwrap_or(u64::MAX);
            (offset, len)
        };
        let read = self.bytes_at(py, offset, len);
        if read.is_err() {
            self.state.lock().unpoisoned().position = offset;
        }
        read
    }

    /// Returns buffered bytes at the position without advancing it; at least one byte unless the
    /// file ends there.
    fn peek<'py>(&self, py: Python<'py>, len: usize) -> PyResult<Bound<'py, PyBytes>> {
        self.refresh(py)?;
        let offset = self.state.lock().unpoisoned().position;
        let is_kept = !self
            .state
            .lock()
            .unpoisoned()
            .kept_part(offset, 1)
            .is_empty();
        if !is_kept {
            self.bytes_at(py, offset, len.clamp(1, PAGE))?;
        }
        let state = self.state.lock().unpoisoned();
        Ok(PyBytes::new(py, state.kept_part(offset, PAGE)))
    }

    /// Reads up to `len` bytes from `offset` on, without moving the position.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        len: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.refresh(py)?;
        let part = self.state.lock().unpoisoned().part(offset, len);
        self.whole(py, &part)
    }
}

/// Reads the whole file at `path` into a `bytes` object.
pub fn read_path<'py>(
    py: Python<'py>,
    held: &Held,
    path: &std::path::Path,
) -> PyResult<Bound<'py, PyBytes>> {
    let read = py.detach(|| {
        let read = whole(held, path)?.read();
        read.map_err(|error| Failed::from(error).at(path).in_image(held.name()))
    })?;
    Ok(PyBytes::new(py, &read))
}

/// Finds a file to be read completely.
fn whole(held: &Held, path: &std::path::Path) -> Result<Part> {
    let file = held.file(path)?;
    let size = file.metadata().size;
    let limit = held.reader().limits().read_bytes;
    if size > limit {
        let what = format!("length of a file that is read as a whole, {size} bytes,");
        let error = forerun::vfs::Error::limit(forerun::vfs::Bound::ReadBytes, what, limit);
        return Err(Failed::from(error).at(path).in_image(held.name()));
    }
    Ok(Part {
        held: held.clone(),
        node: file.node(),
        offset: 0,
        len: usize::try_from(size).unwrap_or(usize::MAX),
    })
}
