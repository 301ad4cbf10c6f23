//! Open files.

use std::ffi::c_char;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Mutex;

use forerun::File;
use forerun_io::Unpoisoned;

use crate::boundary::{answer, buffer, give, object, path, take};
use crate::error::forerun_error;
use crate::failure::Failure;
use crate::image::forerun_image;

/// An open regular file. It keeps the image open.
pub struct forerun_file {
    /// Reads at given offsets, from any number of threads.
    file: File,
    /// Reads at the position; threads take turns.
    stream: Mutex<File>,
}

/// Opens the regular file at `path_in_image`. Follows symbolic links. Returns NULL on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_file_open(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut forerun_file {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let file = object(image)?.image.file(path(path_in_image)?)?;
            let stream = Mutex::new(file.clone());
            Ok(give(forerun_file { file, stream }))
        })
    }
}

/// Returns the length of a file in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_file_size(file: *const forerun_file) -> u64 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    let file = unsafe { file.as_ref() };
    file.map_or(0, |file| file.file.metadata().size)
}

/// Reads up to `len` bytes from `offset` on into `out`, without moving the position. Returns the
/// number of bytes read, less than `len` only at the end of the file; -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_file_pread(
    file: *const forerun_file,
    out: *mut u8,
    len: usize,
    offset: u64,
    error: *mut *mut forerun_error,
) -> isize {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let file = &object(file)?.file;
            let read = file.read_at(offset, buffer(out, len)?);
            let read = read.map_err(|error| Failure::of(&error))?;
            Ok(isize::try_from(read).unwrap_or(isize::MAX))
        })
    }
}

/// Reads up to `len` bytes at the position into `out`, and advances the position. Returns the
/// number of bytes read, 0 only at the end of the file; -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_file_read(
    file: *const forerun_file,
    out: *mut u8,
    len: usize,
    error: *mut *mut forerun_error,
) -> isize {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let mut stream = object(file)?.stream.lock().unpoisoned();
            let read = stream.read(buffer(out, len)?);
            let read = read.map_err(|error| Failure::of(&error))?;
            Ok(isize::try_from(read).unwrap_or(isize::MAX))
        })
    }
}

/// Moves the position as lseek(2) does, with SEEK_SET (0), SEEK_CUR (1) or SEEK_END (2). Returns
/// the new position, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_file_seek(
    file: *const forerun_file,
    offset: i64,
    whence: i32,
    error: *mut *mut forerun_error,
) -> i64 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let to = match (whence, u64::try_from(offset)) {
                (0, Ok(offset)) => SeekFrom::Start(offset),
                (1, _) => SeekFrom::Current(offset),
                (2, _) => SeekFrom::End(offset),
                _ => return Err(Failure::invalid(format!("seek to {offset} by {whence}"))),
            };
            let position = object(file)?.stream.lock().unpoisoned().seek(to);
            let position = position.map_err(|error| Failure::of(&error))?;
            Ok(i64::try_from(position).unwrap_or(i64::MAX))
        })
    }
}

/// Frees a file. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_file_free(object: *mut forerun_file) {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe { take(object) };
}
