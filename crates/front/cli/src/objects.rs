//! Images whose files are in an object store.

use forerun::Image;
use forerun::vfs::FileType;

use crate::error::{Failure, Result};

/// Refuses an image whose files are in an object store that the user has not named, because opening
/// each of these files would fail.
pub fn refuse_without_store(image: &Image, hint: &str) -> Result<()> {
    if !needs_store(image) {
        return Ok(());
    }
    let message = "its files are in an object store, and --objects is missing";
    Err(Failure::usage(message).hint(hint))
}

/// Returns whether the image has a regular file whose contents are in an object store. Skips
/// entries that cannot be read; the program that reads them gets the error.
pub fn needs_store(image: &Image) -> bool {
    let reader = image.reader();
    reader.fs().capabilities().objects.is_some()
        && reader.walk(reader.fs().root()).flatten().any(|entry| {
            matches!(&entry.metadata, Ok(metadata) if metadata.kind == FileType::Regular)
                && reader.is_outside(entry.node).unwrap_or(false)
        })
}
