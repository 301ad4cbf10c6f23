//! Open images.

use std::ffi::{CString, c_char};

use forerun::{Image, OpenOptions};

use crate::boundary::{answer, c_string, give, give_bytes, object, path, put, take, take_bytes};
use crate::error::forerun_error;
use crate::options::forerun_options;

/// An open image.
pub struct forerun_image {
    pub(crate) image: Image,
    format: CString,
    name: CString,
}

/// Opens an image: a path of a file or device, or an address of one at a server. `options` may be NULL. Returns NULL
/// if it cannot be opened or is no image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_open(
    name: *const c_char,
    options: *const forerun_options,
    error: *mut *mut forerun_error,
) -> *mut forerun_image {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let name = path(name)?;
            let image = match options.as_ref() {
                Some(options) => options.0.open(name)?,
                None => OpenOptions::default().open(name)?,
            };
            let shown = image.name().map(|name| name.as_os_str().as_encoded_bytes());
            let name = c_string(shown.unwrap_or_default());
            let format = c_string(image.format().as_bytes());
            Ok(give(forerun_image {
                image,
                format,
                name,
            }))
        })
    }
}

/// Returns another object for the same open image, to be freed by itself. Files and walks keep the image open
/// anyway.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_share(
    image: *const forerun_image,
    error: *mut *mut forerun_error,
) -> *mut forerun_image {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let shared = object(image)?;
            Ok(give(forerun_image {
                image: shared.image.clone(),
                format: shared.format.clone(),
                name: shared.name.clone(),
            }))
        })
    }
}

/// Returns the name of the format, such as "squashfs"; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_format(image: *const forerun_image) -> *const c_char {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    let image = unsafe { image.as_ref() };
    image.map_or(std::ptr::null(), |image| image.format.as_ptr())
}

/// Returns the name by which the image was opened, without credentials; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_name(image: *const forerun_image) -> *const c_char {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    let image = unsafe { image.as_ref() };
    image.map_or(std::ptr::null(), |image| image.name.as_ptr())
}

/// Reads the whole file at `path_in_image`. Returns its bytes, with a NUL behind them, and puts their number into `len`, which
/// may be NULL. Returns NULL on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_read(
    image: *const forerun_image,
    path_in_image: *const c_char,
    len: *mut usize,
    error: *mut *mut forerun_error,
) -> *mut u8 {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let contents = object(image)?.image.read(path(path_in_image)?)?;
            put(len, contents.len());
            Ok(give_bytes(contents))
        })
    }
}

/// Frees bytes or a string that a function has returned for the caller to free. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_bytes_free(bytes: *mut u8) {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe { take_bytes(bytes) };
}

/// Frees an image. Files and walks of it stay usable. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_free(object: *mut forerun_image) {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe { take(object) };
}
