//! Counters of an image's reads and decodes, and the library version.

use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use forerun_io::Counter;

use crate::boundary::{answer, c_string, object, total};
use crate::error::forerun_error;
use crate::failure::Failure;
use crate::image::forerun_image;

/// Returns the number of counters.
#[unsafe(no_mangle)]
pub const extern "C" fn forerun_counter_count() -> usize {
    Counter::ALL.len()
}

/// Returns the name of a counter, such as "source_requests"; NULL past the last one. The name is
/// never freed.
#[unsafe(no_mangle)]
pub extern "C" fn forerun_counter_name(index: usize) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    total(std::ptr::null(), || {
        let names = NAMES.get_or_init(|| {
            let names = Counter::ALL
                .iter()
                .map(|counter| c_string(counter.name().as_bytes()));
            names.collect()
        });
        names
            .get(index)
            .map_or(std::ptr::null(), |name| name.as_ptr())
    })
}

/// Writes the value of a counter since the image was opened to `value`. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_counter(
    image: *const forerun_image,
    index: usize,
    value: *mut u64,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let counter = Counter::ALL.get(index);
            let counter = *counter.ok_or_else(|| Failure::invalid(format!("counter {index}")))?;
            let stats = object(image)?.image.reader().observer().stats();
            crate::boundary::put(value, stats.get(counter));
            Ok(0)
        })
    }
}

/// Returns the version of the library, such as "0.1.0". The string is never freed.
#[unsafe(no_mangle)]
pub const extern "C" fn forerun_version() -> *const c_char {
    const VERSION: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
        concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
    ) {
        Ok(version) => version,
        Err(_) => c"",
    };
    VERSION.as_ptr()
}
