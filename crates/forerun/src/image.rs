//! An open image: source, cache, driver and engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_disk::Container;
use forerun_engine::{MetadataSource, Reader};
use forerun_vfs::{Error, Format, Result};

use crate::digest;

/// An open image. Clones share the open image.
#[derive(Clone, Debug)]
pub struct Image {
    pub(crate) name: Option<Arc<Path>>,
    /// The format; `None` for layers, which may have different ones.
    pub(crate) format: Option<&'static Format>,
    pub(crate) container: Option<Container>,
    pub(crate) offset: u64,
    pub(crate) source_len: u64,
    pub(crate) metadata: Arc<MetadataSource>,
    pub(crate) reader: Reader,
}

impl Image {
    /// Sets the image's name in errors.
    pub(crate) fn with_name(self, name: PathBuf) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }

    /// Returns the name by which the image was opened: its path, or its address without
    /// credentials. Returns `None` if it was opened from a source without a name.
    #[must_use]
    pub fn name(&self) -> Option<&Path> {
        self.name.as_deref()
    }

    /// Adds the image and `path` to an error.
    pub(crate) fn failed(&self, path: &Path, error: Error) -> crate::Error {
        crate::Error::from(error).at(path).of_image(self.name())
    }

    /// Returns the name of the format; `layers` for several images as one tree.
    #[must_use]
    pub const fn format(&self) -> &'static str {
        match self.format {
            Some(format) => format.name,
            None => "layers",
        }
    }

    /// Returns the kind of container in which the image was found.
    #[must_use]
    pub const fn container(&self) -> Option<Container> {
        self.container
    }

    /// Returns the offset of the image in the source, in bytes: the one that the caller gave, or
    /// the one found in a container. Offsets in errors and events count from there.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the length of the source from the image's offset on, in bytes. The image may be
    /// shorter.
    #[must_use]
    pub const fn source_len(&self) -> u64 {
        self.source_len
    }

    /// Computes the digests of a composefs image from all of its bytes: what `fsverity digest` prints for its
    /// file, by SHA-256 and by SHA-512. Returns none for other formats.
    ///
    /// # Errors
    /// [`Error::Io`] if the image cannot be read.
    pub fn digests(&self) -> Result<Vec<String>> {
        match self.format {
            Some(format) => digest::measure(format, &*self.metadata, None),
            None => Ok(Vec::new()),
        }
    }

    /// Returns the driver if it is of this type, for functions that only its format has. An image
    /// of several layers has none.
    #[must_use]
    pub fn driver<D: 'static>(&self) -> Option<&D> {
        self.reader.fs().capabilities().driver?.downcast_ref()
    }

    /// Returns the reader of the image's files.
    #[must_use]
    pub const fn reader(&self) -> &Reader {
        &self.reader
    }
}
