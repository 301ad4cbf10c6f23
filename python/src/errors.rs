//! Conversion of errors to `OSError` and its subclasses.

use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};

use forerun::{Cause, vfs};
use forerun_fuse::errno_of;
use pyo3::types::PyAnyMethods;
use pyo3::{PyErr, Python};

/// "Cannot allocate memory", which Python reports as `MemoryError`.
pub const ENOMEM: i32 = 12;

/// The result of work done without the interpreter's lock.
pub type Result<T, E = Failed> = std::result::Result<T, E>;

/// An error, from which `forerun._errors` makes an exception.
#[derive(Debug)]
pub struct Failed {
    /// A short, stable name, which selects the exception class.
    kind: &'static str,
    /// The cause, without file names.
    text: String,
    errno: i32,
    image: Option<PathBuf>,
    path: Option<PathBuf>,
    /// Offset in the image at which reading or checking failed.
    offset: Option<u64>,
}

impl Failed {
    /// Creates an error for a job that involves more than an image.
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

    pub fn at(mut self, path: &Path) -> Self {
        self.path.get_or_insert_with(|| path.to_path_buf());
        self
    }

    pub fn in_image(mut self, image: Option<&Path>) -> Self {
        self.image = image.map(Path::to_path_buf);
        self
    }

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
                // The table of errno values for mounts does not have it: the kernel does not expect
                // it.
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

/// Returns the offset in the image that an error refers to.
fn offset(error: &vfs::Error) -> Option<u64> {
    match error {
        vfs::Error::Corrupt(corrupt) => Some(corrupt.offset()),
        vfs::Error::Io { offset, len, .. } if *len > 0 => Some(*offset),
        _ => None,
    }
}
