//! Data outside the image: the names of blobs, and the trait that opens them.
//!
//! Some formats keep file data in other files or devices: EROFS on extra devices, composefs in
//! objects of a store. The name of such a blob comes from the image, and so is hostile. The caller
//! decides what a name may open, with the [`ResolveBlob`] that it hands to the driver. The default
//! refuses everything. The engine knows blobs by number only, and asks
//! [`Blobs`](crate::Blobs) for each.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use forerun_io::ReadAt;

/// The image's name for a blob.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BlobName {
    /// A device of the image's device table.
    Device {
        /// Its number, from 1 on.
        index: u32,
        /// The image's name for it; empty if it has none.
        tag: Vec<u8>,
    },
    /// A file of an object store.
    Object {
        /// Its path in the store, as the image gives it: check it before use.
        path: Vec<u8>,
    },
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device { index, tag } if tag.is_empty() => write!(f, "device {index}"),
            Self::Device { index, tag } => {
                write!(f, "device {index} ({})", String::from_utf8_lossy(tag))
            }
            Self::Object { path } => write!(f, "object {}", String::from_utf8_lossy(path)),
        }
    }
}

/// Opens data outside the image.
pub trait ResolveBlob: Send + Sync {
    /// Opens a blob for reading. Called when its data is first needed, and again later if it was
    /// not kept open.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none of that name; any error of opening it.
    fn open(&self, blob: &BlobName) -> io::Result<Arc<dyn ReadAt>>;

    /// Opens a blob that is a whole regular file of the host. Returns `None` if it is something
    /// else. Such files allow what only a file does: handing it to the kernel, and watching it for
    /// changes.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    fn open_file(&self, blob: &BlobName) -> io::Result<Option<File>> {
        let _ = blob;
        Ok(None)
    }
}

/// How the digests that an image holds of data outside it are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verity {
    /// They are not used.
    #[default]
    Off,
    /// Data is served only if it matches its digest, if the image has one.
    On,
    /// Data is served only if the image has its digest and the data matches it.
    Require,
}

/// Opens nothing: the default of a driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBlobs;

impl ResolveBlob for NoBlobs {
    fn open(&self, _blob: &BlobName) -> io::Result<Arc<dyn ReadAt>> {
        Err(io::Error::new(
            io::ErrorKind::NotFound,
            "it was not given along with the image",
        ))
    }
}
