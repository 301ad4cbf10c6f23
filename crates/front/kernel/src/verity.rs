//! Checks that the kernel can verify the objects of a store.
//!
//! The kernel accepts `verity=on` even if it or the store's filesystem lacks fs-verity, and then
//! fails every open(2). This check reports the problem before the mount.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};

use crate::error::Error;

/// Fails if the first object found lacks fs-verity; an empty store passes. One object is enough:
/// all objects enter a store the same way, and the kernel checks each on open.
pub fn check(store: &Path) -> Result<(), Error> {
    let failed = |source| Error::File {
        path: store.to_path_buf(),
        source,
    };
    match first_object(store).map_err(failed)? {
        Some(object) if !is_protected(&object).map_err(failed)? => Err(Error::NoVerity { object }),
        _ => Ok(()),
    }
}

/// Returns any file two directories down.
fn first_object(store: &Path) -> io::Result<Option<PathBuf>> {
    for shelf in store.read_dir()? {
        let shelf = shelf?;
        if !shelf.file_type()?.is_dir() {
            continue;
        }
        for object in shelf.path().read_dir()? {
            let object = object?;
            if object.file_type()?.is_file() {
                return Ok(Some(object.path()));
            }
        }
    }
    Ok(None)
}

fn is_protected(object: &Path) -> io::Result<bool> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let stat = rustix::fs::statx(CWD, object, flags, StatxFlags::empty())?;
    Ok(stat.stx_attributes.contains(StatxAttributes::VERITY))
}
