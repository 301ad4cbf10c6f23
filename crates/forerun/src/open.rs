//! From the name of an image to its bytes: a path, or the address of an image at a server.

use std::path::{Path, PathBuf};

use forerun_io::FileSource;

use crate::error::{Cause, Error, Result};
use crate::image::Image;
use crate::options::OpenOptions;

impl Image {
    /// Opens an image with the default options: a path of a file or block device, or the address of an
    /// image at a server, which takes the feature `remote` (`https://`, `http://`, `s3://`, `oci://`).
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// let image = forerun::Image::open("x.sqsh")?;
    /// assert_eq!(image.format(), "squashfs");
    /// assert_eq!(image.read("/etc/passwd")?, b"root:x:0:0\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// `NotFound`, `PermissionDenied` and others if the file cannot be opened; `InvalidData` if no driver
    /// knows its bytes or they are damaged; `ResourceBusy` with an [`InUse`](crate::InUse) if a process or
    /// the kernel writes to the volume; errors of the server.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// Opens an image as [`open`](Self::open) does, with options of the caller's;
    /// [`OpenOptions::open`] is the same.
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open(path.as_ref(), options)
    }
}

impl OpenOptions {
    /// Opens the image in a file or block device, or at a server, as [`Image::open`] does.
    ///
    /// # Errors
    /// The errors of [`Image::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image> {
        Image::open_with(path, self)
    }
}

/// Opens the image that `name` names.
fn open(name: &Path, options: &OpenOptions) -> Result<Image> {
    #[cfg(feature = "remote")]
    if let Some(address) = name.to_str().filter(|name| is_address(name)) {
        return at_server(address, options);
    }
    let opened = file(name).and_then(|file| Ok(Image::from_file(file, options)?));
    named(opened, name.to_path_buf())
}

/// Opens the file of an image.
fn file(path: &Path) -> Result<FileSource> {
    let opened = FileSource::open(path);
    opened.map_err(|error| match path {
        path if path.is_dir() => open_error(std::io::ErrorKind::IsADirectory.into()),
        #[cfg(not(feature = "remote"))]
        path if path.to_str().is_some_and(is_address) => {
            let what = "images at servers, in a program without the feature `remote`".to_string();
            Error::new(Cause::Image(forerun_vfs::Error::Unsupported(what)))
        }
        _ => open_error(error),
    })
}

fn open_error(error: std::io::Error) -> Error {
    Error::new(Cause::Open(std::sync::Arc::new(error)))
}

/// Returns whether a name is that of an image at a server.
#[cfg(feature = "remote")]
fn is_address(name: &str) -> bool {
    forerun_remote::Reference::is_remote(name)
}

/// Returns whether a name that is no file looks like that of an image at a server.
#[cfg(not(feature = "remote"))]
fn is_address(name: &str) -> bool {
    name.contains("://")
}

/// Opens an image at a server. The error of an address that cannot be read has the address, without
/// credentials.
#[cfg(feature = "remote")]
fn at_server(address: &str, options: &OpenOptions) -> Result<Image> {
    let remote = |error| Error::new(Cause::Remote(error));
    let reference = forerun_remote::Reference::parse(address).map_err(remote)?;
    let source = forerun_remote::open(&reference, &options.remote).map_err(remote);
    let opened = source.and_then(|source| Ok(Image::from_source(source, options)?));
    named(opened, reference.place().into())
}

/// Gives an opened image its name, or the error.
fn named(opened: Result<Image>, name: PathBuf) -> Result<Image> {
    match opened {
        Ok(image) => Ok(image.with_name(name)),
        Err(error) => Err(error.of_image(Some(&name))),
    }
}
