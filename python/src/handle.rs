//! An open image that survives a fork of the process.
//!
//! The threads that read ahead and decode belong to the process that opened the image, and may hold
//! locks during a fork. So a forked process opens the image again at its first use, and never
//! touches the inherited one.

use std::fs::File;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use forerun::{Image, OpenOptions};
use forerun_io::Unpoisoned;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::{PyErr, PyResult, Python};

use crate::errors::Result;
use crate::source::FileObject;

/// Where an image was opened from.
pub enum Place {
    /// A path or an address. For a local file also its descriptor, so that a forked process opens
    /// the same file even if it was replaced.
    Name(PathBuf, Option<File>),
    /// Several paths or addresses, shown as one tree.
    Layers(Vec<PathBuf>),
    /// A file object, and its name if it has one.
    Object(Arc<FileObject>, Option<PathBuf>),
}

/// An image opened by one process. Other processes must not use it.
#[derive(Clone, Debug)]
pub struct Held {
    process: u32,
    image: Image,
}

impl Held {
    fn new(image: Image) -> Self {
        Self {
            process: std::process::id(),
            image,
        }
    }

    /// Returns whether this process opened the image.
    pub fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    /// Raises an error for an iterator or mount that another process created.
    pub fn check(&self) -> PyResult<()> {
        if self.is_ours() {
            Ok(())
        } else {
            Err(PyRuntimeError::new_err(
                "made before this process was forked: make another one",
            ))
        }
    }
}

impl Deref for Held {
    type Target = Image;

    fn deref(&self) -> &Image {
        &self.image
    }
}

impl Drop for Held {
    /// Leaks what a forked process has inherited: its threads do not run here, and its locks may be
    /// held.
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.image.clone());
        }
    }
}

/// An image that each process opens again at its first use.
pub struct Handle {
    place: Place,
    options: OpenOptions,
    /// `None` once the image is closed. A thread locks it while holding the interpreter's lock, and
    /// unlocks it before releasing that lock.
    held: Mutex<Option<Held>>,
}

impl Handle {
    pub fn open(py: Python<'_>, place: Place, options: OpenOptions) -> PyResult<Self> {
        let image = py.detach(|| open(&place, &options, false))?;
        Ok(Self {
            place,
            options,
            held: Mutex::new(Some(Held::new(image))),
        })
    }

    /// Returns this process's image.
    pub fn image(&self, py: Python<'_>) -> PyResult<Held> {
        let held = self.held.lock().unpoisoned().clone();
        match held {
            None => Err(closed()),
            Some(held) if held.is_ours() => Ok(held),
            Some(_) => self.open_again(py),
        }
    }

    fn open_again(&self, py: Python<'_>) -> PyResult<Held> {
        if matches!(self.place, Place::Object(..)) {
            return Err(PyRuntimeError::new_err(
                "an image in a file object belongs to the process that opened it: open it in this one",
            ));
        }
        let image = py.detach(|| open(&self.place, &self.options, true))?;
        let mut held = self.held.lock().unpoisoned();
        match &*held {
            None => Err(closed()),
            // Another thread opened it first.
            Some(other) if other.is_ours() => Ok(other.clone()),
            Some(_) => Ok(held.insert(Held::new(image)).clone()),
        }
    }

    /// Closes the image, and returns it for the caller to drop. Files and iterators of it stay
    /// usable.
    pub fn take(&self) -> Option<Held> {
        self.held.lock().unpoisoned().take()
    }

    pub fn is_closed(&self) -> bool {
        self.held.lock().unpoisoned().is_none()
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the image is closed")
}

/// Opens `place`. `again` is set in a forked process.
fn open(place: &Place, options: &OpenOptions, again: bool) -> Result<Image> {
    Ok(match place {
        Place::Name(_, Some(file)) if again => {
            options.open(format!("/proc/self/fd/{}", file.as_raw_fd()))?
        }
        Place::Name(name, _) => options.open(name)?,
        Place::Layers(names) => Image::open_layers(names, options)?,
        Place::Object(object, _) => Image::from_source(Arc::<FileObject>::clone(object), options)?,
    })
}
