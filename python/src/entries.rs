//! Iterators over directory entries and tree walks.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, TryLockError};

use forerun::vfs::{FileType, Metadata};
use forerun::{DirEntry, ReadDir, Walk};
use pyo3::exceptions::PyValueError;
use pyo3::{PyRef, PyResult, Python, pyclass, pymethods};

use crate::errors::{Failed, Result};
use crate::handle::{Handle, Held};
use crate::stat::Stat;

/// Number of entries fetched at once, without the interpreter's lock.
const BATCH: usize = 128;

/// An entry of a directory, or a node visited by a walk. Like the methods of `os.DirEntry`, its
/// methods follow symbolic links unless told otherwise.
#[pyclass(frozen, module = "forerun")]
pub struct Entry {
    handle: Arc<Handle>,
    path: PathBuf,
    node: u64,
    /// The process that opened the image to which `node` belongs.
    process: u32,
    kind: FileType,
    known: Option<Metadata>,
}

#[pymethods]
impl Entry {
    /// Returns the path in the image.
    #[getter]
    fn path(&self) -> OsString {
        self.path.clone().into()
    }

    /// Returns the last component of the path.
    #[getter]
    fn name(&self) -> OsString {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_owned()
    }

    /// Returns the file type: `file`, `directory`, `symlink`, `char_device`, `block_device`, `fifo`
    /// or `socket`.
    #[getter]
    const fn kind(&self) -> &'static str {
        self.kind.name()
    }

    /// Returns the node number.
    const fn inode(&self) -> u64 {
        self.node
    }

    /// Returns whether it is a directory or, with `follow_symlinks`, a link to one.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_dir(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Directory, follow_symlinks)
    }

    /// Returns whether it is a regular file or, with `follow_symlinks`, a link to one.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn is_file(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<bool> {
        self.is(py, FileType::Regular, follow_symlinks)
    }

    /// Returns whether it is a symbolic link.
    fn is_symlink(&self) -> bool {
        self.kind == FileType::Symlink
    }

    /// Returns the metadata; with `follow_symlinks`, that of a link's target.
    #[pyo3(signature = (*, follow_symlinks=true))]
    fn stat(&self, py: Python<'_>, follow_symlinks: bool) -> PyResult<Stat> {
        let follow = follow_symlinks && self.is_symlink();
        match &self.known {
            Some(known) if !follow => Ok(Stat::new(known.clone(), self.node)),
            _ => {
                let held = self.handle.image(py)?;
                let is_known = !follow && self.process == std::process::id();
                let node = is_known.then_some(self.node);
                Ok(py.detach(|| stat(&held, &self.path, follow, node))?)
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("<Entry {:?} {}>", self.path, self.kind.name())
    }
}

impl Entry {
    fn is(&self, py: Python<'_>, kind: FileType, follow: bool) -> PyResult<bool> {
        if !follow || self.kind != FileType::Symlink {
            return Ok(self.kind == kind);
        }
        let held = self.handle.image(py)?;
        py.detach(|| {
            if !held.exists(&self.path)? {
                return Ok(false);
            }
            Ok(held.metadata(&self.path)?.kind == kind)
        })
        .map_err(|failed: Failed| failed.into())
    }
}

/// Returns the metadata at a path. `known` is its node, if the caller knows it.
pub fn stat(held: &Held, path: &Path, follow: bool, known: Option<u64>) -> Result<Stat> {
    use forerun::vfs::{FollowLast, NodeId, resolve};
    use std::os::unix::ffi::OsStrExt;
    let reader = held.reader();
    let last = if follow {
        FollowLast::Yes
    } else {
        FollowLast::No
    };
    let found = match known {
        Some(node) => Ok(NodeId(node)),
        None => resolve(
            reader.fs(),
            path.as_os_str().as_bytes(),
            last,
            reader.limits(),
        ),
    };
    let metadata = found.and_then(|node| Ok(Stat::new(reader.fs().metadata(node)?, node.0)));
    metadata.map_err(|error| Failed::from(error).at(path).in_image(held.name()))
}

/// An iterator of entries.
#[pyclass(frozen, module = "forerun")]
pub struct Entries {
    handle: Arc<Handle>,
    held: Held,
    /// Locked by a thread while it advances; a concurrent call raises an error.
    state: Mutex<Advance>,
}

struct Advance {
    source: Option<Source>,
    ready: VecDeque<Result<DirEntry>>,
}

enum Source {
    Dir(ReadDir),
    Walk(Box<Walk<'static>>),
}

impl Entries {
    pub fn of_dir(handle: Arc<Handle>, held: Held, path: &Path) -> Result<Self> {
        let source = Source::Dir(held.read_dir(path)?);
        Ok(Self::new(handle, held, source))
    }

    pub fn of_tree(handle: Arc<Handle>, held: Held, path: &Path) -> Result<Self> {
        let image = forerun::Image::clone(&held);
        let source = Source::Walk(Box::new(image.into_walk(path)?));
        Ok(Self::new(handle, held, source))
    }

    const fn new(handle: Arc<Handle>, held: Held, source: Source) -> Self {
        Self {
            handle,
            held,
            state: Mutex::new(Advance {
                source: Some(source),
                ready: VecDeque::new(),
            }),
        }
    }

    fn entry(&self, entry: &DirEntry, is_walk: bool) -> Entry {
        Entry {
            handle: Arc::clone(&self.handle),
            path: entry.path().to_path_buf(),
            node: entry.node().0,
            process: std::process::id(),
            kind: entry.file_type(),
            // A walk has already read the metadata.
            known: is_walk.then(|| entry.metadata().ok()).flatten(),
        }
    }
}

impl Advance {
    fn fill(&mut self) {
        let ready = &mut self.ready;
        let mut take = |entries: &mut dyn Iterator<Item = forerun::Result<DirEntry>>| {
            ready.extend(entries.take(BATCH).map(|entry| entry.map_err(Failed::from)));
        };
        match &mut self.source {
            Some(Source::Dir(dir)) => take(dir),
            Some(Source::Walk(walk)) => take(walk),
            None => {}
        }
        if self.ready.is_empty() {
            self.source = None;
        }
    }
}

impl Drop for Entries {
    /// Leaks what a forked process has inherited: the parent's threads do not run here.
    fn drop(&mut self) {
        if !self.held.is_ours()
            && let Ok(state) = self.state.get_mut()
        {
            std::mem::forget(state.source.take());
            std::mem::forget(std::mem::take(&mut state.ready));
        }
    }
}

#[pymethods]
impl Entries {
    const fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    /// Returns the next entry. An error concerns one entry or directory; the iterator continues
    /// after it.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Entry>> {
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
        let is_walk = matches!(state.source, Some(Source::Walk(_)));
        if state.ready.is_empty() {
            let state = &mut *state;
            py.detach(|| state.fill());
        }
        match state.ready.pop_front() {
            Some(entry) => Ok(Some(self.entry(&entry?, is_walk))),
            None => Ok(None),
        }
    }
}
