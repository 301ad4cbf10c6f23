//! Options of opening an image.

use std::ffi::c_char;

use forerun::OpenOptions;

use crate::boundary::{answer, give, object_mut, path, take, text};
use crate::error::forerun_error;

/// Options of opening an image. Only one thread at a time may set them.
pub struct forerun_options(pub(crate) OpenOptions);

/// Creates the default options, which suit a whole image of any format, in a file or on a server.
#[unsafe(no_mangle)]
pub extern "C" fn forerun_options_new() -> *mut forerun_options {
    crate::boundary::total(std::ptr::null_mut(), || {
        give(forerun_options(OpenOptions::default()))
    })
}

/// Sets the part of the file that holds the image, in bytes. A length of 0 means up to the end of
/// the file. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_set_range(
    options: *mut forerun_options,
    offset: u64,
    len: u64,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: `error` is null or can be written, and `options` is null or was not freed: see
    // lib.rs.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.offset = offset;
            options.0.size = (len > 0).then_some(len);
            Ok(0)
        })
    }
}

/// Sets the name of the format, such as "squashfs" or "erofs"; by default it is found by content.
/// Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_set_format(
    options: *mut forerun_options,
    format: *const c_char,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.format = Some(text(format, "a format")?);
            Ok(0)
        })
    }
}

/// Sets how many bytes decoded blocks may use in memory. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_set_cache(
    options: *mut forerun_options,
    bytes: u64,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.engine.cache = bytes;
            Ok(0)
        })
    }
}

/// Sets how many bytes are read ahead of a sequential reader; 0 turns readahead off. Returns 0, or
/// -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_set_readahead(
    options: *mut forerun_options,
    bytes: u64,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.engine.readahead = bytes;
            Ok(0)
        })
    }
}

/// Sets the number of threads that read and decode ahead; 0 means one for each CPU. Returns 0, or
/// -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_set_threads(
    options: *mut forerun_options,
    count: usize,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.engine.threads = count;
            Ok(0)
        })
    }
}

/// Sets the length in bytes of the longest file that `forerun_image_read` reads. Returns 0, or -1
/// on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_set_read_limit(
    options: *mut forerun_options,
    bytes: u64,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.limits.read_bytes = bytes;
            Ok(0)
        })
    }
}

/// Sets the directory that caches what was fetched from servers. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_set_cache_dir(
    options: *mut forerun_options,
    dir: *const c_char,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.remote.cache_dir = Some(path(dir)?.to_path_buf());
            Ok(0)
        })
    }
}

/// Sets whether images on servers are read from the cache only. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_set_offline(
    options: *mut forerun_options,
    offline: bool,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.remote.offline = offline;
            Ok(0)
        })
    }
}

/// Frees options. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_options_free(object: *mut forerun_options) {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe { take(object) };
}
