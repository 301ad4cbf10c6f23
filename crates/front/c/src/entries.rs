//! Directory listings and walks.

use std::ffi::{CString, c_char};
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

use forerun::{DirEntry, ReadDir, Walk};
use forerun_io::Unpoisoned;

use crate::boundary::{answer, c_string, give, object, path, put, take};
use crate::error::forerun_error;
use crate::image::forerun_image;
use crate::metadata::{forerun_kind, forerun_stat};

/// A listing of a directory, or a walk of a tree. It keeps the image open. Threads may share it and
/// take turns, but each call for the next entry invalidates the path of the previous one.
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

/// An entry of a directory, or a node visited by a walk.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forerun_entry {
    /// The path of the start, as the caller gave it, with the names below it appended. Valid until
    /// the next call for an entry.
    pub path: *const c_char,
    /// The kind of the node.
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
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let dir = object(image)?.image.read_dir(path(path_in_image)?)?;
            Ok(entries(Source::Dir(dir)))
        })
    }
}

/// Walks `path_in_image` and everything below it, each directory before its contents. Does not
/// follow symbolic links. Returns NULL on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_walk(
    image: *const forerun_image,
    path_in_image: *const c_char,
    error: *mut *mut forerun_error,
) -> *mut forerun_entries {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, std::ptr::null_mut(), || {
            let image = object(image)?.image.clone();
            let walk = image.into_walk(path(path_in_image)?)?;
            Ok(entries(Source::Walk(Box::new(walk))))
        })
    }
}

/// Writes the next entry to `entry`. Returns 1, or 0 after the last one. Returns -1 for an error,
/// which concerns one entry or directory: the next call continues after it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_entries_next(
    entries: *const forerun_entries,
    entry: *mut forerun_entry,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
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

/// Writes the metadata of the entry that was returned last to `found`. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_entries_stat(
    entries: *const forerun_entries,
    found: *mut forerun_stat,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
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

/// Skips the contents of the directory that a walk returned last. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_entries_skip(
    entries: *const forerun_entries,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
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

/// Frees a listing or walk. Does nothing for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_entries_free(object: *mut forerun_entries) {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe { take(object) };
}
