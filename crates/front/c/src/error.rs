//! Errors as the caller gets them.

use std::ffi::{CStr, CString, c_char};

use crate::boundary::{c_string, take, total};
use crate::failure::Failure;

/// An error: errno, message, and the path and offset in the image.
pub struct forerun_error {
    errno: i32,
    kind: CString,
    message: CString,
    path: Option<CString>,
    offset: Option<u64>,
}

impl From<Failure> for forerun_error {
    fn from(failure: Failure) -> Self {
        Self {
            errno: failure.errno,
            kind: c_string(failure.kind.as_bytes()),
            message: c_string(failure.message.as_bytes()),
            path: failure.path.map(|path| c_string(&path)),
            offset: failure.offset,
        }
    }
}

impl forerun_error {
    /// Returns the errno.
    #[must_use]
    pub const fn errno(&self) -> i32 {
        self.errno
    }

    /// Returns the message.
    #[must_use]
    pub fn message(&self) -> &CStr {
        &self.message
    }
}

/// Returns the errno of an error, such as ENOENT, EISDIR or EIO; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_error_errno(error: *const forerun_error) -> i32 {
    // SAFETY: it is null or an error that was not freed: see lib.rs.
    let error = unsafe { error.as_ref() };
    error.map_or(0, |error| error.errno)
}

/// Returns a short, stable name for the kind of error, such as "not_found" or "corrupt"; NULL for
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_error_kind(error: *const forerun_error) -> *const c_char {
    // SAFETY: it is null or an error that was not freed: see lib.rs.
    let error = unsafe { error.as_ref() };
    error.map_or(std::ptr::null(), |error| error.kind.as_ptr())
}

/// Returns the message of an error, with the image and the path; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_error_message(error: *const forerun_error) -> *const c_char {
    // SAFETY: it is null or an error that was not freed: see lib.rs.
    let error = unsafe { error.as_ref() };
    error.map_or(std::ptr::null(), |error| error.message.as_ptr())
}

/// Returns the path in the image that an error is about, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_error_path(error: *const forerun_error) -> *const c_char {
    // SAFETY: it is null or an error that was not freed: see lib.rs.
    let error = unsafe { error.as_ref() };
    let path = error.and_then(|error| error.path.as_ref());
    path.map_or(std::ptr::null(), |path| path.as_ptr())
}

/// Returns the offset in the image at which reading or checking failed, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_error_offset(error: *const forerun_error) -> i64 {
    // SAFETY: it is null or an error that was not freed: see lib.rs.
    let error = unsafe { error.as_ref() };
    let offset = error.and_then(|error| error.offset);
    total(-1, || {
        offset
            .and_then(|offset| i64::try_from(offset).ok())
            .unwrap_or(-1)
    })
}

/// Frees an error. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_error_free(error: *mut forerun_error) {
    // SAFETY: it is null or an error that was not freed: see lib.rs.
    unsafe { take(error) };
}
