//! Listings and walks.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

use forerun::{DirEntry, ReadDir, Walk};
use forerun_io::Unpoisoned;

use crate::boundary::{answer, c_string, give, object, path, put, take};
use crate::error::forerun_error;
use crate::image::forerun_image;
use crate::metadata::{forerun_kind, forerun_stat};

/// A listing of a directory, or a walk of a tree. It keeps the image open. Threads take turns, but the path of an
/// entry is that of the next one as soon as one of them advances.
pub struct forerun_entries(Mutex<Entries>);

struct Entries {
    source: Source,
    last: Option<DirEntry>,
    path: CString,
}

enum Source {
    Dir(ReadDir),
    Walk(Box<Walk<'static>>),
}

/// An entry of a directory, or a node that a walk has met.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forerun_entry {
    /// Its path: that of the start as it was given, and what is below. Lives until the next entry is asked for.
    pub path: *const c_char,
    /// Its kind, which takes no read.
    pub kind: forerun_kind,
}

fn entries(source: Source) -> *mut forerun_entries {
    give(forerun_entries(Mutex::new(Entries {
        source,
        last: None,
        path: CString::default(),
    })))
}

/// Lists the directory at `path_in_image`, in the image's order. Returns NULL on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_list(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut forerun_entries {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let dir = object(image)?.image.read_dir(path(path_in_image)?)?;
            Ok(entries(Source::Dir(dir)))
        })
    }
}

/// Walks `path_in_image` and all below it, a directory before what is in it. Symbolic links are not followed. Returns NULL on
/// errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_walk(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut forerun_entries {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let image = object(image)?.image.clone();
            let walk = image.into_walk(path(path_in_image)?)?;
            Ok(entries(Source::Walk(Box::new(walk))))
        })
    }
}

/// Puts the next entry into `entry`. Returns 1, 0 after the last one, or -1: that concerns one entry or directory, and
/// the next call goes on after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_entries_next(
    entries: *const forerun_entries,
    entry: *mut forerun_entry,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, -1, || {
            let mut state = object(entries)?.0.lock().unpoisoned();
            let next = match &mut state.source {
                Source::Dir(dir) => dir.next(),
                Source::Walk(walk) => walk.next(),
            };
            let Some(next) = next else {
                state.last = None;
                return Ok(0);
            };
            let next = next?;
            state.path = c_string(next.path().as_os_str().as_bytes());
            put(
                entry,
                forerun_entry {
                    path: state.path.as_ptr(),
                    kind: next.file_type().into(),
                },
            );
            state.last = Some(next);
            Ok(1)
        })
    }
}

/// Puts the metadata of the entry that was returned last into `found`. Returns 0, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_entries_stat(
    entries: *const forerun_entries,
    found: *mut forerun_stat,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, -1, || {
            let state = object(entries)?.0.lock().unpoisoned();
            let last = state.last.as_ref();
            let last = last.ok_or_else(|| crate::failure::Failure::null("an entry"))?;
            put(found, forerun_stat::from(&last.metadata()?));
            Ok(0)
        })
    }
}

/// Leaves out what is in the directory that a walk has returned last. Returns 0, or -1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_entries_skip(
    entries: *const forerun_entries,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe {
        answer(error, -1, || {
            let mut state = object(entries)?.0.lock().unpoisoned();
            if let Source::Walk(walk) = &mut state.source {
                walk.skip_children();
            }
            Ok(0)
        })
    }
}

/// Frees a listing or walk. NULL is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_entries_free(object: *mut forerun_entries) {
    // SAFETY: the caller keeps to the contract of lib.rs: pointers are null, or good for what is done with them.
    unsafe { take(object) };
}
