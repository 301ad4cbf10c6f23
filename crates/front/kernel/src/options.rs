//! Options of a mount by the kernel.

use std::path::PathBuf;

use forerun_vfs::Verity;

/// Options of a mount. [`Options::default`] is a nosuid, nodev mount whose metadata is read ahead. The
/// image itself knows its offset and length in the source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Files and devices with the data that the image keeps outside itself, in the order of its
    /// device table.
    pub devices: Vec<PathBuf>,
    /// The object store of a composefs image.
    pub objects: Option<PathBuf>,
    /// The kernel's use of the fs-verity digests of objects.
    pub verity: Verity,
    pub suid: bool,
    pub dev: bool,
    pub exec: bool,
    /// Read the metadata ahead.
    pub prefetch: bool,
    /// The way for the kernel to read the image.
    pub route: Route,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            objects: None,
            verity: Verity::Off,
            suid: false,
            dev: false,
            exec: true,
            prefetch: true,
            route: Route::default(),
        }
    }
}

/// A way for the kernel to read the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// From the file where it can, else through a loop device.
    #[default]
    Any,
    /// From the file, or not at all.
    File,
    /// Through a loop device, even where the file would do.
    Loop,
}
