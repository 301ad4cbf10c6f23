//! Errors on their way to Python, where each becomes an `OSError`.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};

use forerun::{Cause, vfs};
use forerun_fuse::errno_of;
use pyo3::types::PyAnyMethods;
use pyo3::{PyErr, Python};

/// "Cannot allocate memory", which is a `MemoryError` in Python.
pub const ENOMEM: i32 = 12;

/// The result of work that is done without the interpreter's lock.
pub type Result<T, E = Failed> = std::result::Result<T, E>;

/// An error, as `forerun._errors` makes an exception of it.
#[derive(Debug)]
pub struct Failed {
    /// Short stable name, which chooses the class.
    kind: &'static str,
    /// The cause, without names of files.
    text: String,
    errno: i32,
    image: Option<PathBuf>,
    path: Option<PathBuf>,
    /// The byte of the image at which reading or checking failed.
    offset: Option<u64>,
}

impl Failed {
    /// Creates the error of a job that is none of an image alone.
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        let inner = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref);
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<forerun::Error>()) {
            return Self::from(error);
        }
        let mut next = Some(error);
        let mut failed = Self {
            kind: "other",
            text: error.to_string(),
            errno: errno_of(error),
            image: None,
            path: None,
            offset: None,
        };
        while let Some(error) = next {
            if let Some(error) = error.downcast_ref::<vfs::Error>() {
                failed.kind = error.kind();
                failed.offset = offset(error);
                break;
            }
            next = error.source();
        }
        failed
    }

    /// Adds a path.
    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    /// Adds the name of the image.
    pub fn in_image(mut self, image: Option<&Path>) -> Self {
        self.image = image.map(Path::to_path_buf);
        self
    }

    /// Creates the exception.
    fn exception(self, py: Python<'_>) -> PyErr {
        let made = py.import("forerun._errors").and_then(|errors| {
            let names = (self.image, self.path);
            errors
                .getattr("make")?
                .call1((self.kind, self.errno, self.text, names, self.offset))
        });
        made.map_or_else(|error| error, PyErr::from_value)
    }
}

impl From<&forerun::Error> for Failed {
    fn from(error: &forerun::Error) -> Self {
        let (kind, text) = match error.cause() {
            Cause::Image(cause) => (cause.kind(), cause.to_string()),
            Cause::Open(cause) => ("open", cause.to_string()),
            Cause::Remote(cause) => ("remote", cause.to_string()),
            _ => ("other", error.to_string()),
        };
        Self {
            kind,
            text,
            errno: match error.cause() {
                // The table of mounts has no number for it, since the kernel expects none.
                Cause::Image(vfs::Error::Io { source, .. })
                    if source.raw_os_error() == Some(ENOMEM) =>
                {
                    ENOMEM
                }
                _ => errno_of(error),
            },
            image: error.image().map(Path::to_path_buf),
            path: error.path().map(Path::to_path_buf),
            offset: match error.cause() {
                Cause::Image(cause) => offset(cause),
                _ => None,
            },
        }
    }
}

impl From<forerun::Error> for Failed {
    fn from(error: forerun::Error) -> Self {
        Self::from(&error)
    }
}

impl From<vfs::Error> for Failed {
    fn from(error: vfs::Error) -> Self {
        Self::from(forerun::Error::from(error))
    }
}

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> Self {
        Python::attach(|py| failed.exception(py))
    }
}

/// Returns the byte of the image that an error is about.
fn offset(error: &vfs::Error) -> Option<u64> {
    match error {
        vfs::Error::Corrupt(corrupt) => Some(corrupt.offset()),
        vfs::Error::Io { offset, len, .. } if *len > 0 => Some(*offset),
        _ => None,
    }
}
