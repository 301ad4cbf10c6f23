//! Opens an image by its name: a path, or the address of an image on a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_disk::Container;
use forerun_io::{FileSource, Observer, ReadAt};
#[cfg(feature = "remote")]
use forerun_remote::Opened;

#[cfg(feature = "remote")]
use crate::containers::container_layers;
use crate::error::{Cause, Error, Result};
use crate::image::Image;
use crate::layer_source::LayerSource;
#[cfg(feature = "layouts")]
use crate::on_disk::DiskImage;
use crate::opened::FoundImage;
use crate::options::OpenOptions;
use crate::{layers, locks, sif};

impl Image {
    /// Opens an image with the default options. `path` names a file or block device, or an image on
    /// a server (`https://`, `http://`, `s3://`, `oci://`), which needs the feature `remote`.
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
    /// `NotFound`, `PermissionDenied` and others if the file cannot be opened; `InvalidData` if no
    /// driver recognises its bytes or they are damaged; `ResourceBusy` with an
    /// [`InUse`](crate::locks::InUse) if a process or the kernel writes to the volume; errors from
    /// the server.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &OpenOptions::default())
    }

    /// Opens an image as [`open`](Self::open) does, with the caller's options. The same as
    /// [`OpenOptions::open`].
    ///
    /// # Errors
    /// The errors of [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        open(path.as_ref(), options)
    }

    /// Opens an image in an open file or block device. An image of a format that changes is locked
    /// against writers for as long as its reader is in use.
    ///
    /// # Errors
    /// The errors of [`from_source`](Self::from_source); [`Io`](forerun_vfs::Error::Io) with an
    /// [`InUse`](crate::locks::InUse) if a process or the kernel writes to the volume.
    pub fn from_file(file: FileSource, options: &OpenOptions) -> forerun_vfs::Result<Self> {
        let source = locks::source(file, options)?;
        Self::from_source(Arc::new(source), options)
    }

    /// Opens an image in any source.
    ///
    /// # Errors
    /// [`UnknownFormat`](forerun_vfs::Error::UnknownFormat) if no driver recognises the bytes,
    /// [`Io`](forerun_vfs::Error::Io) if they cannot be read or offset and size do not fit, and the
    /// errors of the driver.
    pub fn from_source(
        source: Arc<dyn ReadAt>,
        options: &OpenOptions,
    ) -> forerun_vfs::Result<Self> {
        let index = options.index.as_deref();
        if let Some(layers) = sif::layers("", &source, index, options)? {
            let options = OpenOptions {
                index: None,
                ..options.clone()
            };
            let image = layers::open(layers, &options, &mut || ())?;
            return Ok(Self {
                container: Some(Container::Sif),
                ..image
            });
        }
        let observer = Arc::new(Observer::new(options.events.clone()));
        FoundImage::of(&source, options, &observer)?.image(options, observer)
    }

    /// Opens several images as one tree, merged like the layers of overlayfs or of a container
    /// image. The lowest layer comes first; each is a path or an address as for
    /// [`open`](Self::open). `docs/layers.md` has the rules.
    ///
    /// Options that apply to a single image (offset, size, format, devices and digest) must not be
    /// set.
    ///
    /// ```
    #[doc = include_str!("example.md")]
    /// use forerun::{Image, OpenOptions};
    ///
    /// # std::fs::copy("x.sqsh", "upper.sqsh")?;
    /// let image = Image::open_layers(["x.sqsh", "upper.sqsh"], &OpenOptions::new())?;
    /// assert_eq!(image.format(), "layers");
    /// assert_eq!(image.read("/etc/passwd")?, b"root:x:0:0\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`open`](Self::open), with the name of the layer; `Unsupported` for no layers, and for layers
    /// that cannot be merged.
    pub fn open_layers<P: AsRef<Path>>(
        layers: impl IntoIterator<Item = P>,
        options: &OpenOptions,
    ) -> Result<Self> {
        let mut sources = Vec::new();
        for name in layers {
            match source(name.as_ref(), options)? {
                Named::Image(source, shown) => {
                    sources.push(LayerSource::new(shown.display().to_string(), source));
                }
                Named::Layers(layers, _) => sources.extend(layers),
            }
        }
        let names: Vec<&str> = sources.iter().map(|layer| layer.name.as_str()).collect();
        let shown = PathBuf::from(names.join(":"));
        merged(sources, shown, options)
    }

    /// Opens images in any sources as one tree, the lowest first. Their names are used in errors.
    ///
    /// # Errors
    /// The errors of [`from_source`](Self::from_source), with the name of the layer;
    /// [`Unsupported`](forerun_vfs::Error::Unsupported) for options that apply to a single image,
    /// and for layers that cannot be merged.
    pub fn from_layers(
        layers: Vec<LayerSource>,
        options: &OpenOptions,
    ) -> forerun_vfs::Result<Self> {
        layers::open(layers, options, &mut || ())
    }

    /// Opens layers as [`from_layers`](Self::from_layers) does. Calls `waiting` at regular
    /// intervals while layers are fetched from servers.
    ///
    /// # Errors
    /// The errors of [`from_layers`](Self::from_layers).
    pub fn from_layers_with(
        layers: Vec<LayerSource>,
        options: &OpenOptions,
        waiting: &mut dyn FnMut(),
    ) -> forerun_vfs::Result<Self> {
        layers::open(layers, options, waiting)
    }
}

impl OpenOptions {
    /// Opens the image in a file or block device, or on a server, as [`Image::open`] does.
    ///
    /// # Errors
    /// The errors of [`Image::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Image> {
        Image::open_with(path, self)
    }
}

/// The sources that a name stands for.
enum Named {
    /// One image, and its name for display.
    Image(Arc<dyn ReadAt>, PathBuf),
    /// The layers of a container image, the lowest first.
    #[cfg_attr(not(any(feature = "layouts", feature = "remote")), expect(dead_code))]
    Layers(Vec<LayerSource>, PathBuf),
}

fn open(name: &Path, options: &OpenOptions) -> Result<Image> {
    match source(name, options)? {
        Named::Image(source, shown) => match Image::from_source(source, options) {
            Ok(image) => Ok(image.with_name(shown)),
            Err(error) => Err(Error::from(error).of_image(Some(&shown))),
        },
        Named::Layers(layers, shown) => merged(layers, shown, options),
    }
}

/// Opens layers as one image. An error names its layer.
fn merged(layers: Vec<LayerSource>, shown: PathBuf, options: &OpenOptions) -> Result<Image> {
    let image = Image::from_layers(layers, options).map_err(|error| {
        #[cfg(feature = "remote")]
        if let Some(error) = forerun_remote::RemoteError::within(&error) {
            return Error::new(Cause::Remote(error.clone())).of_image(Some(&shown));
        }
        Error::from(error)
    })?;
    Ok(image.with_name(shown))
}

/// Opens the sources that `name` stands for. A file is locked against writers if its format
/// changes.
fn source(name: &Path, options: &OpenOptions) -> Result<Named> {
    #[cfg(feature = "remote")]
    if let Some(address) = name.to_str().filter(|name| is_address(name)) {
        return at_server(address, options);
    }
    #[cfg(feature = "layouts")]
    if let Some(image) = DiskImage::parse(name) {
        return Ok(Named::Layers(image.layers(options)?, name.to_path_buf()));
    }
    let locked = file(name).and_then(|file| Ok(locks::source(file, options)?));
    match locked {
        Ok(locked) => Ok(Named::Image(Arc::new(locked), name.to_path_buf())),
        Err(error) => Err(error.of_image(Some(name))),
    }
}

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
    Error::new(Cause::Open(Arc::new(error)))
}

/// Returns whether a name is the address of an image on a server.
#[cfg(feature = "remote")]
fn is_address(name: &str) -> bool {
    forerun_remote::Reference::is_remote(name)
}

/// Returns whether a name that is not a file looks like an address.
#[cfg(not(feature = "remote"))]
fn is_address(name: &str) -> bool {
    name.contains("://")
}

/// Opens an image on a server, or the layers of a container image. An error for a malformed address
/// shows it without credentials.
#[cfg(feature = "remote")]
fn at_server(address: &str, options: &OpenOptions) -> Result<Named> {
    let remote = |error| Error::new(Cause::Remote(error));
    let reference = forerun_remote::Reference::parse(address).map_err(remote)?;
    let shown = PathBuf::from(reference.place());
    let failed = |error| remote(error).of_image(Some(&shown));
    let opened = forerun_remote::open_all(&reference, &options.remote).map_err(failed)?;
    match opened {
        Opened::Image(image) => Ok(Named::Image(image, shown)),
        Opened::Layers(layers) => {
            let layers = container_layers(layers, &options.remote);
            Ok(Named::Layers(layers, shown))
        }
    }
}
