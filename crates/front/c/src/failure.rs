//! Errors as the library builds them, before `forerun_error`.

use std::any::Any;
use std::error::Error as StdError;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use forerun::{Cause, vfs};
use forerun_fuse::errno_of;

/// An error that is about to be returned to the caller.
#[derive(Debug)]
pub struct Failure {
    pub(crate) errno: i32,
    pub(crate) kind: &'static str,
    pub(crate) message: String,
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) offset: Option<u64>,
}

impl Failure {
    /// Creates the error for a null pointer.
    pub fn null(what: &str) -> Self {
        Self::invalid(format!("NULL in place of {what}"))
    }

    /// Creates the error for an invalid argument.
    pub fn invalid(message: String) -> Self {
        let invalid = std::io::Error::from(std::io::ErrorKind::InvalidInput);
        Self {
            errno: errno_of(&invalid),
            kind: "invalid_argument",
            message,
            path: None,
            offset: None,
        }
    }

    /// Creates the error for a panic.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said.or_else(|| panic.downcast_ref::<&str>().copied());
        Self {
            errno: errno_of(&std::io::Error::other("panic")),
            kind: "internal",
            message: format!("an error in the library: {}", said.unwrap_or("unknown")),
            path: None,
            offset: None,
        }
    }

    /// Creates an error from one of a front end or of the system.
    pub fn of(error: &(dyn StdError + 'static)) -> Self {
        let inner = error.downcast_ref::<std::io::Error>();
        let inner = inner.and_then(std::io::Error::get_ref);
        if let Some(error) = inner.and_then(|inner| inner.downcast_ref::<forerun::Error>()) {
            return Self::from(error.clone());
        }
        Self {
            errno: errno_of(error),
            kind: "other",
            message: error.to_string(),
            path: None,
            offset: None,
        }
    }
}

impl From<forerun::Error> for Failure {
    fn from(error: forerun::Error) -> Self {
        let (kind, offset) = match error.cause() {
            Cause::Image(cause) => (cause.kind(), offset(cause)),
            Cause::Open(_) => ("open", None),
            Cause::Remote(_) => ("remote", None),
            _ => ("other", None),
        };
        Self {
            errno: errno_of(&error),
            kind,
            message: error.to_string(),
            path: error
                .path()
                .map(|path: &Path| path.as_os_str().as_bytes().to_vec()),
            offset,
        }
    }
}

impl From<vfs::Error> for Failure {
    fn from(error: vfs::Error) -> Self {
        Self::from(forerun::Error::from(error))
    }
}

const fn offset(error: &vfs::Error) -> Option<u64> {
    match error {
        vfs::Error::Corrupt(corrupt) => Some(corrupt.offset()),
        vfs::Error::Io { offset, len, .. } if *len > 0 => Some(*offset),
        _ => None,
    }
}
