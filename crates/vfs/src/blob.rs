//! Data outside the image: its names, and the trait that opens it.
//!
//! Some formats keep file data in other files or devices: EROFS on extra devices, composefs in
//! objects of a store. What such a blob is called is in the image, and so is hostile; what a name
//! may open is for the caller to say, who hands a [`ResolveBlob`] to the driver. The default refuses
//! everything. The engine knows blobs by number only, and asks
//! [`FileSystem::blob`](crate::FileSystem::blob) for each.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use forerun_io::ReadAt;

/// The image's name for a store of data besides itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BlobName {
    /// A device of the image's device table.
    Device {
        /// Its number, from 1 on.
        index: u32,
        /// The image's name for it; empty where it has none.
        tag: Vec<u8>,
    },
    /// A file of an object store.
    Object {
        /// Its path in the store, as the image has it: check it before use.
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
    /// Opens a blob for reading. Called when its data is first wanted, and again later where it was
    /// not kept open.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] where there is none of that name; what opening it reports.
    fn open(&self, blob: &BlobName) -> io::Result<Arc<dyn ReadAt>>;

    /// Opens a blob that is a whole regular file of the host; nothing where it is something else.
    /// What can be done with a file and with nothing else is done with these: handing it to the
    /// kernel, seeing whether it changes.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    fn open_file(&self, blob: &BlobName) -> io::Result<Option<File>> {
        let _ = blob;
        Ok(None)
    }
}

/// How the digests that an image has of data outside itself are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verity {
    /// Nothing.
    #[default]
    Off,
    /// Data is served only if it has the digest, where the image has one.
    On,
    /// Data is served only if the image has its digest and it has that digest.
    Require,
}

/// Opens nothing: what a driver gets unless the caller says otherwise.
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
