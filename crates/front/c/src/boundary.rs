//! Dereferences C pointers, in this module only, and stops panics from reaching C.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::failure::Failure;

/// The result of a fallible operation.
pub type Result<T> = std::result::Result<T, Failure>;

/// Runs `work`. On failure or panic, writes the error to `error` and returns `failed`.
///
/// # Safety
/// `error` must be null or valid for a write.
pub unsafe fn answer<T, E: From<Failure>>(
    error: *mut *mut E,
    failed: T,
    work: impl FnOnce() -> Result<T>,
) -> T {
    // Unwind safe: state that the caller can see after a panic is behind locks, which ignore
    // poisoning.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let failure = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::of_panic(&*panic),
    };
    if !error.is_null() {
        let made = Box::into_raw(Box::new(failure.into()));
        // SAFETY: it is not null, so the caller guarantees that it can be written.
        unsafe { error.write(made) };
    }
    failed
}

/// Runs `work`, which has no error to report. Returns `failed` after a panic.
pub fn total<T>(failed: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(failed)
}

/// Returns a reference to an object of the caller.
///
/// # Safety
/// `pointer` must be null, or returned by [`give`] and not freed.
pub unsafe fn object<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: an object that `give` has returned lives until it is freed.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null("an object"))
}

/// Returns a mutable reference to an object of the caller.
///
/// # Safety
/// As for [`object`]. No other thread or function may use the object at the same time.
pub unsafe fn object_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: as for `object`; the caller guarantees that nothing else uses it.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::null("an object"))
}

/// Moves a value to the heap for the caller, which frees it with [`take`].
pub fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Drops an object that [`give`] returned. Does nothing for null.
///
/// # Safety
/// `pointer` must be null, or returned by [`give`] and not freed.
pub unsafe fn take<T>(pointer: *mut T) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: `give` got the pointer from a box, and the caller gives it back only once.
    let value = unsafe { Box::from_raw(pointer) };
    total((), move || drop(value));
}

/// Returns the bytes of a C string, without its NUL.
///
/// # Safety
/// `text` must be null or end with a NUL.
pub unsafe fn bytes<'a>(text: *const c_char, what: &'static str) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: it is not null, and the caller guarantees that it ends with a NUL.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns a C string as a path.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's contract is the same.
    let bytes = unsafe { bytes(text, "a path") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns a C string, which must be UTF-8.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn text(text: *const c_char, what: &'static str) -> Result<String> {
    // SAFETY: the caller's contract is the same.
    let bytes = unsafe { bytes(text, what) }?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Failure::invalid(format!("{what}: not UTF-8")))
}

/// Returns a buffer of the caller as a slice.
///
/// # Safety
/// `start` must be null, or `len` bytes from it on must be writable, and used by this function
/// only.
pub unsafe fn buffer<'a>(start: *mut u8, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    if start.is_null() {
        return Err(Failure::null("a buffer"));
    }
    if isize::try_from(len).is_err() {
        return Err(Failure::invalid(format!("a buffer of {len} bytes")));
    }
    // SAFETY: it is not null, and the caller guarantees `len` bytes there; no allocation exceeds
    // `isize::MAX`. The bytes may be uninitialised: the library only writes them.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, len) })
}

/// Writes an answer to `place`. Does nothing for null.
///
/// # Safety
/// `place` must be null or valid for a write.
pub unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: it is not null, so the caller guarantees that it can be written.
        unsafe { place.write(value) };
    }
}

/// Converts bytes to a C string. A NUL inside truncates it; no name in an image has one.
pub fn c_string(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|&byte| byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    CString::new(bytes).unwrap_or_default()
}

/// Copies bytes for the caller and appends a NUL. The caller frees them with [`take_bytes`].
pub fn give_bytes(mut bytes: Vec<u8>) -> *mut u8 {
    // Put the length before the bytes, for `take_bytes`.
    let mut whole = Vec::with_capacity(bytes.len().saturating_add(HEAD + 1));
    whole.extend_from_slice(&bytes.len().to_ne_bytes());
    whole.append(&mut bytes);
    whole.push(0);
    let start = Box::into_raw(whole.into_boxed_slice()).cast::<u8>();
    start.wrapping_add(HEAD)
}

/// Bytes before the pointer that [`give_bytes`] returns. They hold the length of the allocation.
const HEAD: usize = size_of::<usize>();

/// Frees bytes that [`give_bytes`] returned. Does nothing for null.
///
/// # Safety
/// `bytes` must be null, or returned by [`give_bytes`] and not freed.
pub unsafe fn take_bytes(bytes: *mut u8) {
    if bytes.is_null() {
        return;
    }
    let start = bytes.wrapping_sub(HEAD);
    // SAFETY: `give_bytes` stored the length there. An unaligned read needs no alignment.
    let len = unsafe { start.cast::<usize>().read_unaligned() };
    let whole = std::ptr::slice_from_raw_parts_mut(start, len.saturating_add(HEAD + 1));
    // SAFETY: this is the slice that `give_bytes` took out of its box.
    drop(unsafe { Box::from_raw(whole) });
}

#[cfg(test)]
#[allow(clippy::panic, clippy::undocumented_unsafe_blocks)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error() {
        let mut error: *mut crate::error::forerun_error = std::ptr::null_mut();
        let place = &raw mut error;
        let answered = unsafe { answer(place, -1, || panic!("a bug in {}", "the library")) };
        assert_eq!(answered, -1);
        let made = unsafe { Box::from_raw(error) };
        assert_eq!(made.errno(), 5);
        assert!(
            made.message()
                .to_string_lossy()
                .contains("a bug in the library")
        );
        assert_eq!(
            unsafe { answer::<_, Failure>(std::ptr::null_mut(), 3, || panic!()) },
            3
        );
        assert_eq!(total(7, || panic!()), 7);
    }

    #[test]
    fn null_is_refused_and_bytes_come_back() {
        assert!(unsafe { object::<u8>(std::ptr::null()) }.is_err());
        assert!(unsafe { path(std::ptr::null()) }.is_err());
        assert!(unsafe { buffer(std::ptr::null_mut(), 1) }.is_err());
        assert!(unsafe { buffer(std::ptr::null_mut(), 0) }.is_ok());
        unsafe { take::<u8>(std::ptr::null_mut()) };
        for len in [0, 1, 1000] {
            let given = give_bytes(vec![7; len]);
            assert_eq!(unsafe { given.add(len).read() }, 0);
            unsafe { take_bytes(given) };
        }
        assert_eq!(c_string(b"a\0b").as_bytes(), b"a");
    }
}
