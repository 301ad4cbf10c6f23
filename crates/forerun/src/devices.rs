//! The devices of an image, as the caller lists them, its object store, and its base directories.
//!
//! Devices are matched by position, never by the image's name for them: a name in an image must not
//! open a file of the host. All are opened together with the image, so that a wrong path fails at
//! once, and relative paths start at the current directory.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_io::{FileSource, ReadAt};
use forerun_vfs::{BlobName, Error, ResolveBlob, Result};

use crate::options::OpenOptions;
use crate::registry::object_formats;

/// The extra devices of an image; the first is device 1.
pub struct Devices {
    sources: Vec<Arc<dyn ReadAt>>,
    /// The object store and the base directories, in the order in which they are searched.
    stores: Vec<Arc<dyn ResolveBlob>>,
}

impl Devices {
    /// Opens the devices, the object store and the base directories that the options name.
    ///
    /// # Errors
    /// [`Error::Blob`] for the first path that cannot be opened.
    pub fn open(options: &OpenOptions) -> Result<Self> {
        let open = |(index, path): (u32, &PathBuf)| match FileSource::open(path) {
            Ok(source) => {
                let source: Arc<dyn ReadAt> = Arc::new(source);
                Ok(source)
            }
            Err(error) => {
                let text = format!("{}: {error}", path.display());
                let tag = Vec::new();
                let name = BlobName::Device { index, tag };
                Err(Error::blob(name, io::Error::new(error.kind(), text)))
            }
        };
        let sources = (1..).zip(&options.devices).map(open);
        let sources = sources.collect::<Result<_>>()?;
        let objects = options.objects.iter().map(|path| open_store(path, false));
        let bases = options.base_dirs.iter().map(|path| open_store(path, true));
        let stores = objects.chain(bases).collect::<Result<_>>()?;
        Ok(Self { sources, stores })
    }
}

/// Rejects more devices than the `known` ones of the image: a user who names a device expects its
/// data to be read.
///
/// # Errors
/// [`Error::Blob`] for the first extra path.
pub fn check(paths: &[PathBuf], known: u32) -> Result<()> {
    let superfluous = (1..).zip(paths).find(|(index, _)| *index > known);
    let Some((index, path)) = superfluous else {
        return Ok(());
    };
    let path = path.display();
    let reason = match known {
        0 => format!("{path}: the image has no data on other devices"),
        1 => format!("{path}: the image keeps data on one other device"),
        _ => format!("{path}: the image keeps data on {known} other devices"),
    };
    let tag = Vec::new();
    let error = io::Error::new(io::ErrorKind::InvalidInput, reason);
    Err(Error::blob(BlobName::Device { index, tag }, error))
}

fn open_store(path: &Path, is_base: bool) -> Result<Arc<dyn ResolveBlob>> {
    let Some(objects) = object_formats().first() else {
        let path = path.display();
        let text = format!("object stores ({path}) in a program built without composefs");
        return Err(Error::Unsupported(text));
    };
    let open = if is_base {
        objects.open_base
    } else {
        objects.open
    };
    open(path).map_err(|error| {
        let path = path.as_os_str().as_bytes().to_vec();
        Error::blob(BlobName::Object { path }, error)
    })
}

impl ResolveBlob for Devices {
    fn open(&self, blob: &BlobName) -> io::Result<Arc<dyn ReadAt>> {
        let missing = |what: String| Err(io::Error::new(io::ErrorKind::NotFound, what));
        match blob {
            BlobName::Device { index, .. } => {
                let position = usize::try_from(*index).ok().and_then(|n| n.checked_sub(1));
                match position.and_then(|n| self.sources.get(n)) {
                    Some(source) => Ok(Arc::clone(source)),
                    None => missing(format!(
                        "not given along with the image; {} devices were",
                        self.sources.len()
                    )),
                }
            }
            BlobName::Object { .. } => {
                let none = || missing("no object store was given".to_string());
                let found = first_of(&self.stores, |store| store.open(blob));
                found.unwrap_or_else(none)
            }
        }
    }

    fn open_file(&self, blob: &BlobName) -> io::Result<Option<File>> {
        match blob {
            BlobName::Object { .. } => {
                let found = first_of(&self.stores, |store| store.open_file(blob));
                found.unwrap_or(Ok(None))
            }
            BlobName::Device { .. } => Ok(None),
        }
    }
}

/// Returns the first success, as overlayfs searches its layers of data, otherwise the error of the last store.
fn first_of<T>(
    stores: &[Arc<dyn ResolveBlob>],
    open: impl Fn(&dyn ResolveBlob) -> io::Result<T>,
) -> Option<io::Result<T>> {
    let mut last = None;
    for store in stores {
        let opened = open(&**store);
        if opened.is_ok() {
            return Some(opened);
        }
        last = Some(opened);
    }
    last
}
