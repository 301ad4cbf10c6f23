//! Mounts served by this process.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;

use forerun_fuse::{MountOptions, mount};
use forerun_io::Unpoisoned;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::types::PyAny;
use pyo3::{Bound, PyRef, PyResult, Python, pyclass, pymethods};

use crate::errors::{Failed, Result};
use crate::handle::Held;

/// A mounted image, served by threads of this process. They do not need the interpreter's lock,
/// because this program itself may access the mount.
#[pyclass(frozen, module = "forerun")]
pub struct Mount {
    /// The process that serves the mount. A forked process must not touch it.
    process: u32,
    path: OsString,
    /// `None` once it is unmounted. A thread locks it while holding the interpreter's lock, and
    /// unlocks it before releasing that lock.
    mounted: Mutex<Option<forerun_fuse::Mount>>,
}

impl Mount {
    /// Mounts an image on a directory. `options` has the syntax of `forerun mount -o`.
    pub fn new(held: &Held, dir: &Path, options: &str) -> Result<Self> {
        let mut options = MountOptions::parse(options).map_err(|error| Failed::of(&error))?;
        if options.fsname.is_none() {
            options.fsname = held.name().map(|name| name.display().to_string());
        }
        let mounted = mount(held, dir, &options).map_err(|error| Failed::of(&error).at(dir))?;
        Ok(Self {
            process: std::process::id(),
            path: mounted.path().as_os_str().to_owned(),
            mounted: Mutex::new(Some(mounted)),
        })
    }
}

impl Mount {
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }
}

impl Drop for Mount {
    /// In a forked process, leaves the parent's mount alone.
    fn drop(&mut self) {
        let mounted = self.mounted.lock().unpoisoned().take();
        if self.is_ours() {
            Python::attach(|py| py.detach(|| drop(mounted)))
        } else {
            std::mem::forget(mounted)
        }
    }
}

#[pymethods]
impl Mount {
    /// Returns the mountpoint, without symbolic links.
    #[getter]
    fn path(&self) -> OsString {
        self.path.clone()
    }

    /// Returns false once this process has unmounted the image.
    #[getter]
    fn mounted(&self) -> bool {
        self.mounted.lock().unpoisoned().is_some()
    }

    /// Unmounts the image. Programs can still read the files that they have open. A second call
    /// does nothing.
    fn unmount(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_ours() {
            let message = "the process that mounted it unmounts it";
            return Err(PyRuntimeError::new_err(message));
        }
        let Some(mounted) = self.mounted.lock().unpoisoned().take() else {
            return Ok(());
        };
        py.detach(|| {
            mounted.unmount().map_err(|error| Failed::of(&error))?;
            drop(mounted);
            Ok(())
        })
        .map_err(|failed: Failed| failed.into())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyResult<OsString> {
        if this.mounted.lock().unpoisoned().is_some() {
            Ok(this.path.clone())
        } else {
            Err(PyValueError::new_err("it is unmounted already"))
        }
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: Bound<'_, PyAny>,
        _value: Bound<'_, PyAny>,
        _trace: Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.unmount(py)
    }

    fn __repr__(&self) -> String {
        let state = if self.mounted.lock().unpoisoned().is_some() {
            ""
        } else {
            ", unmounted"
        };
        format!("<Mount {:?}{state}>", self.path)
    }
}
