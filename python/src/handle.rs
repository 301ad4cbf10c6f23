//! An open image that survives a fork of the process.
//!
//! The threads that read ahead and decode belong to the process that opened the image; a lock of theirs may be
//! held at the moment of a fork. So a forked process opens the image again, at its first use, and keeps its hands
//! off what it has inherited.

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

/// The place that an image was opened from.
pub enum Place {
    /// A path or an address; of a local file its descriptor too, so that a forked process opens the same file
    /// though another one has its name by then.
    Name(PathBuf, Option<File>),
    /// Several of them, shown as one tree.
    Layers(Vec<PathBuf>),
    /// A file object, with the name that it has.
    Object(Arc<FileObject>, Option<PathBuf>),
}

/// An image of one process. In another one it is of no use.
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

    /// Refuses an iterator or a mount that another process has made.
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
    /// Leaves what a forked process has inherited as it is: its threads do not run here, and its locks may be held.
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.image.clone());
        }
    }
}

/// An image that is opened, again in each process that uses it.
pub struct Handle {
    place: Place,
    options: OpenOptions,
    /// Nothing once it is closed. Locked with the interpreter's lock held, and never across its release.
    held: Mutex<Option<Held>>,
}

impl Handle {
    /// Opens the image.
    pub fn open(py: Python<'_>, place: Place, options: OpenOptions) -> PyResult<Self> {
        let image = py.detach(|| open(&place, &options, false))?;
        Ok(Self {
            place,
            options,
            held: Mutex::new(Some(Held::new(image))),
        })
    }

    /// Returns the image of this process.
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
            // Another thread was faster.
            Some(other) if other.is_ours() => Ok(other.clone()),
            Some(_) => Ok(held.insert(Held::new(image)).clone()),
        }
    }

    /// Closes the image, and returns it for the caller to drop. Files and iterators of it stay usable until they
    /// end.
    pub fn take(&self) -> Option<Held> {
        self.held.lock().unpoisoned().take()
    }

    /// Returns whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.held.lock().unpoisoned().is_none()
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the image is closed")
}

/// Opens what `place` names; `again` is that of a forked process.
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
