//! Pointers of C, followed here and nowhere else, and the wall that no panic passes.

use std::ffi::{CStr, CString, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use crate::failure::Failure;

/// The result of what a function does.
pub type Result<T> = std::result::Result<T, Failure>;

/// Runs `work`. Gives its error, or the message of its panic, to `error`, and returns `failed` then.
///
/// # Safety
/// `error` is null, or may be written.
pub unsafe fn answer<T, E: From<Failure>>(
    error: *mut *mut E,
    failed: T,
    work: impl FnOnce() -> Result<T>,
) -> T {
    // What the caller can still see after a panic is behind locks, which the library takes though poisoned.
    let outcome = catch_unwind(AssertUnwindSafe(work));
    let failure = match outcome {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::of_panic(&*panic),
    };
    if !error.is_null() {
        let made = Box::into_raw(Box::new(failure.into()));
        // SAFETY: it is not null, and so may be written, says the caller.
        unsafe { error.write(made) };
    }
    failed
}

/// Runs `work`, which cannot fail, and returns `failed` after a panic.
pub fn total<T>(failed: T, work: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or(failed)
}

/// Returns an object of the caller's.
///
/// # Safety
/// `pointer` is null, or was returned by [`give`] and not freed.
pub unsafe fn object<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: an object that `give` has returned lives until it is freed.
    unsafe { pointer.as_ref() }.ok_or_else(|| Failure::null("an object"))
}

/// Returns an object of the caller's that is changed: one that no other thread uses now.
///
/// # Safety
/// As for [`object`], and no other function uses it now.
pub unsafe fn object_mut<'a, T>(pointer: *mut T) -> Result<&'a mut T> {
    // SAFETY: as for `object`; the caller lets no other function have it.
    unsafe { pointer.as_mut() }.ok_or_else(|| Failure::null("an object"))
}

/// Returns an object for the caller, which frees it with [`take`].
pub fn give<T>(value: T) -> *mut T {
    Box::into_raw(Box::new(value))
}

/// Takes an object back and drops it. Null is none.
///
/// # Safety
/// `pointer` is null, or was returned by [`give`] and not freed.
pub unsafe fn take<T>(pointer: *mut T) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: it came out of a box of `give`, and the caller gives it back once.
    let value = unsafe { Box::from_raw(pointer) };
    total((), move || drop(value));
}

/// Returns a string of the caller's.
///
/// # Safety
/// `text` is null, or ends with a NUL.
pub unsafe fn bytes<'a>(text: *const c_char, what: &'static str) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: it is not null, and ends with a NUL, says the caller.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns a path of the caller's.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's contract is the same.
    let bytes = unsafe { bytes(text, "a path") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns a string of UTF-8 of the caller's.
///
/// # Safety
/// As for [`bytes`].
pub unsafe fn text(text: *const c_char, what: &'static str) -> Result<String> {
    // SAFETY: the caller's contract is the same.
    let bytes = unsafe { bytes(text, what) }?;
    String::from_utf8(bytes.to_vec()).map_err(|_| Failure::invalid(format!("{what}: not UTF-8")))
}

/// Returns a buffer of the caller's.
///
/// # Safety
/// `start` is null, or `len` bytes from it on may be written, by this function only.
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
    // SAFETY: it is not null, and the caller has so many bytes there; no buffer is longer than an isize counts. That
    // they may not be initialised does no harm: the library writes there and does not read.
    Ok(unsafe { std::slice::from_raw_parts_mut(start, len) })
}

/// Writes an answer to a place of the caller's. Null is none.
///
/// # Safety
/// `place` is null, or may be written.
pub unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: it is not null, and so may be written, says the caller.
        unsafe { place.write(value) };
    }
}

/// Returns a string for C. A NUL inside, which no name in an image has, ends it.
pub fn c_string(bytes: &[u8]) -> CString {
    let end = bytes.iter().position(|&byte| byte == 0);
    let bytes = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
    CString::new(bytes).unwrap_or_default()
}

/// Returns bytes for the caller, with a NUL behind them. The caller frees them with [`take_bytes`].
pub fn give_bytes(mut bytes: Vec<u8>) -> *mut u8 {
    // The length is kept before the bytes, for the function that frees them.
    let mut whole = Vec::with_capacity(bytes.len().saturating_add(HEAD + 1));
    whole.extend_from_slice(&bytes.len().to_ne_bytes());
    whole.append(&mut bytes);
    whole.push(0);
    let start = Box::into_raw(whole.into_boxed_slice()).cast::<u8>();
    start.wrapping_add(HEAD)
}

/// Bytes that [`give_bytes`] puts before the pointer it returns: they hold the length of the allocation.
const HEAD: usize = size_of::<usize>();

/// Frees bytes that [`give_bytes`] returned. Does nothing for null.
///
/// # Safety
/// `bytes` is null, or was returned by [`give_bytes`] and not freed.
pub unsafe fn take_bytes(bytes: *mut u8) {
    if bytes.is_null() {
        return;
    }
    let start = bytes.wrapping_sub(HEAD);
    // SAFETY: `give_bytes` has put the length there; its place need not be aligned.
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
