//! A check that the kernel can verify the objects of a store.
//!
//! The kernel accepts `verity=on` even where neither it nor the file system of the store has fs-verity,
//! and then fails every open(2). The check reports this before the mount.

use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};

use crate::error::Error;

/// Fails unless fs-verity protects the first object that is found, or the store is empty. One object
/// stands for all: objects come into a store in one way, and the kernel checks each when it is opened.
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

/// Returns a file two levels down.
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
