//! Packs a directory into an image.

use std::ffi::c_char;

use forerun::PackOptions;

use crate::boundary::{answer, give, object, object_mut, path, put, take, text};
use crate::error::forerun_error;
use crate::failure::Failure;

/// Options of packing. Only one thread at a time may set them.
pub struct forerun_pack_options(PackOptions);

/// Creates the default options of a format: "squashfs", "erofs", "romfs" or "exfat". Returns NULL
/// for NULL. For any other name, `forerun_pack` fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_pack_options_new(
    format: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut forerun_pack_options {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let format = text(format, "a format")?;
            Ok(give(forerun_pack_options(PackOptions::new(format))))
        })
    }
}

/// Sets the compressor, such as "zstd" or "lz4". Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_pack_options_set_compressor(
    options: *mut forerun_pack_options,
    name: *const c_char,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.compressor = Some(text(name, "a compressor")?);
            Ok(0)
        })
    }
}

/// Sets the compression level. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_pack_options_set_level(
    options: *mut forerun_pack_options,
    level: u8,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.level = Some(level);
            Ok(0)
        })
    }
}

/// Sets the block size in bytes. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_pack_options_set_block_size(
    options: *mut forerun_pack_options,
    bytes: u32,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.block_size = Some(bytes);
            Ok(0)
        })
    }
}

/// Sets whether an existing image is replaced. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_pack_options_set_replace(
    options: *mut forerun_pack_options,
    replace: bool,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.replace = replace;
            Ok(0)
        })
    }
}

/// Adds a pattern of paths to leave out, such as "*.o". Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_pack_options_add_exclude(
    options: *mut forerun_pack_options,
    pattern: *const c_char,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let options = object_mut(options)?;
            options.0.exclude.push(text(pattern, "a pattern")?);
            Ok(0)
        })
    }
}

/// Packs the directory `source` into the file `image`, which appears under its name only when it is
/// complete and synced. Writes its length in bytes to `len`, which may be NULL. `options` may be
/// NULL. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_pack(
    source: *const c_char,
    image: *const c_char,
    options: *const forerun_pack_options,
    len: *mut u64,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let defaults = PackOptions::default();
            let options = if options.is_null() {
                &defaults
            } else {
                &object(options)?.0
            };
            let packed = options.pack(path(source)?, path(image)?);
            let packed = packed.map_err(|error| Failure::of(&error))?;
            put(len, packed.len);
            Ok(0)
        })
    }
}

/// Frees pack options. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_pack_options_free(object: *mut forerun_pack_options) {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe { take(object) };
}
