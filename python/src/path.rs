//! Paths in an image, as Python programs pass them.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use pyo3::types::{PyBytes, PyBytesMethods};
use pyo3::{Borrowed, FromPyObject, PyAny, PyErr};

/// A path in an image: `str` in the file system encoding, `bytes`, or `os.PathLike`.
pub struct InImage(pub PathBuf);

impl<'a, 'py> FromPyObject<'a, 'py> for InImage {
    type Error = PyErr;

    fn extract(given: Borrowed<'a, 'py, PyAny>) -> Result<Self, PyErr> {
        match given.cast::<PyBytes>() {
            Ok(bytes) => {
                let bytes = bytes.as_bytes().to_vec();
                Ok(Self(OsString::from_vec(bytes).into()))
            }
            Err(_) => given.extract().map(Self),
        }
    }
}

impl From<&str> for InImage {
    fn from(path: &str) -> Self {
        Self(path.into())
    }
}
