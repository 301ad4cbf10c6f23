//! Data outside the image: the names of blobs, and the trait that opens them.
//!
//! Some formats keep file data in other files or devices: EROFS on extra devices, composefs in
//! objects of a store. The name of such a blob comes from the image, so it is hostile. The caller
//! decides which names may be opened, with the [`ResolveBlob`] that it passes to the driver. The
//! default refuses all names. The engine knows blobs by number only, and asks
//! [`Blobs`](crate::Blobs) for each.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use forerun_io::ReadAt;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BlobName {
    /// A device of the image's device table.
    Device {
        index: u32,
        /// The image's name for the device; empty if it has none.
        tag: Vec<u8>,
    },
    /// A file of an object store.
    Object {
        /// The path in the store, as the image gives it. It must be checked before use.
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
    /// Opens a blob for reading. Called when its data is first needed, and again if it was closed
    /// since.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no blob of that name; any error of opening it.
    fn open(&self, blob: &BlobName) -> io::Result<Arc<dyn ReadAt>>;

    /// Opens a blob that is a whole regular file of the host. Returns `None` if it is something
    /// else. Only a file can be passed to the kernel, or watched for changes.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    fn open_file(&self, blob: &BlobName) -> io::Result<Option<File>> {
        let _ = blob;
        Ok(None)
    }
}

/// How to use the digests that an image holds of data outside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verity {
    /// Ignore digests.
    #[default]
    Off,
    /// Serve data only if it matches its digest, where the image has one.
    On,
    /// Serve data only if the image has its digest and the data matches it.
    Require,
}

/// Refuses every blob: the default of a driver.
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
