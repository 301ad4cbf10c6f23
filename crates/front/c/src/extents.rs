//! Where the bytes of a file are stored.

use std::ffi::{c_char, c_void};
use std::ops::ControlFlow;

use forerun::vfs::Place;

use crate::boundary::{answer, object, path};
use crate::error::forerun_error;
use crate::failure::Failure;
use crate::image::forerun_image;

/// How an extent is stored.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum forerun_place {
    FORERUN_ZERO = 0,
    FORERUN_STORED = 1,
    FORERUN_ENCODED = 2,
    FORERUN_INLINE = 3,
}

/// A part of a file, and where it is stored. Offsets and lengths are in bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct forerun_extent {
    /// Offset in the file.
    pub start: u64,
    /// Length in the file.
    pub len: u64,
    /// How the extent is stored.
    pub place: forerun_place,
    /// Number of the file or device that holds it; 0 is the image itself.
    pub blob: u32,
    /// Offset in that file or device of the bytes, or of the encoded block.
    pub offset: u64,
    /// Stored length in that file or device.
    pub stored: u64,
    /// Offset of the extent in the decoded block.
    pub skip: u32,
}

/// Receives each extent, in file order. Returns whether to continue.
pub type forerun_extent_callback =
    Option<unsafe extern "C" fn(extent: *const forerun_extent, context: *mut c_void) -> bool>;

fn extent(extent: &forerun::vfs::Extent) -> forerun_extent {
    let len = extent.logical.end.saturating_sub(extent.logical.start);
    let bare = forerun_extent {
        start: extent.logical.start,
        len,
        place: forerun_place::FORERUN_ZERO,
        blob: 0,
        offset: 0,
        stored: 0,
        skip: 0,
    };
    match &extent.place {
        Place::Zero => bare,
        Place::Inline(_) => forerun_extent {
            place: forerun_place::FORERUN_INLINE,
            ..bare
        },
        Place::Stored { blob, offset } => forerun_extent {
            place: forerun_place::FORERUN_STORED,
            blob: blob.0,
            offset: *offset,
            stored: len,
            ..bare
        },
        Place::Encoded { block, skip } => forerun_extent {
            place: forerun_place::FORERUN_ENCODED,
            blob: block.blob.0,
            offset: block.offset,
            stored: block.len.into(),
            skip: *skip,
            ..bare
        },
    }
}

/// Calls `callback` with `context` for each extent of the file at `path_in_image`. The callback
/// must return, and must not call functions on this image. Returns 0, or -1 on errors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn forerun_map(
    image: *const forerun_image,
    path_in_image: *const c_char,
    callback: forerun_extent_callback,
    context: *mut c_void,
    error: *mut *mut forerun_error,
) -> i32 {
    // SAFETY: the caller keeps the contract in lib.rs: pointers are null or valid for their use
    // here.
    unsafe {
        answer(error, -1, || {
            let callback = callback.ok_or_else(|| Failure::null("a callback"))?;
            let image = &object(image)?.image;
            let path = path(path_in_image)?;
            let file = image.file(path)?;
            let range = 0..file.metadata().size;
            let fs = image.reader().fs();
            fs.map(file.node(), range, &mut |found| {
                let found = extent(&found);
                if callback(&raw const found, context) {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })?;
            Ok(0)
        })
    }
}
