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

/// Opens an image. `name` is the path of a file or device, or the address of an image on a server.
/// `options` may be NULL. Returns NULL on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_open(
    name: *const c_char,
    options: *const forerun_options,
    error: *mut *mut forerun_error,
) -> *mut forerun_image {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
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

/// Returns another object for the same open image. Each object must be freed. Files and walks keep
/// the image open on their own.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_share(
    image: *const forerun_image,
    error: *mut *mut forerun_error,
) -> *mut forerun_image {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
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
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    let image = unsafe { image.as_ref() };
    image.map_or(std::ptr::null(), |image| image.format.as_ptr())
}

/// Returns the name by which the image was opened, without credentials; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_name(image: *const forerun_image) -> *const c_char {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    let image = unsafe { image.as_ref() };
    image.map_or(std::ptr::null(), |image| image.name.as_ptr())
}

/// Reads the whole file at `path_in_image`. Returns its bytes followed by a NUL, and writes their
/// number to `len`, which may be NULL. Returns NULL on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_read(
    image: *const forerun_image,
    path_in_image: *const c_char,
    len: *mut usize,
    error: *mut *mut forerun_error,
) -> *mut u8 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let contents = object(image)?.image.read(path(path_in_image)?)?;
            put(len, contents.len());
            Ok(give_bytes(contents))
        })
    }
}

/// Frees bytes or a string that another function returned for the caller to free. Does nothing for
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_bytes_free(bytes: *mut u8) {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe { take_bytes(bytes) };
}

/// Frees an image. Its files and walks stay usable. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_image_free(object: *mut forerun_image) {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe { take(object) };
}
