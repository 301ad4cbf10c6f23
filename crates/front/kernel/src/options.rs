//! Options of a kernel mount.

use std::path::PathBuf;

use forerun_vfs::Verity;

/// Options of a mount. [`Options::default`] is a nosuid, nodev mount with prefetched metadata. The
/// image itself knows its offset and length in the source.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// Files and devices with the data outside the image, in the order of its device table.
    pub devices: Vec<PathBuf>,
    /// The directories with the files of a composefs image, in the order in which overlayfs searches them.
    pub stores: Vec<PathBuf>,
    /// The writable layer of the overlayfs of a composefs image.
    pub upper: Option<Upper>,
    /// Whether a mount with a writable layer is read-only.
    pub read_only: bool,
    /// How the kernel uses the fs-verity digests of objects.
    pub verity: Verity,
    pub suid: bool,
    pub dev: bool,
    pub exec: bool,
    pub prefetch: bool,
    pub route: Route,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            devices: Vec::new(),
            stores: Vec::new(),
            upper: None,
            read_only: false,
            verity: Verity::Off,
            suid: false,
            dev: false,
            exec: true,
            prefetch: true,
            route: Route::default(),
        }
    }
}

/// The directories of a writable layer of overlayfs, on one filesystem.
#[derive(Clone, Debug)]
pub struct Upper {
    pub dir: PathBuf,
    pub work: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// From the file if possible, otherwise through a loop device.
    #[default]
    Any,
    /// Only from the file.
    File,
    /// Only through a loop device.
    Loop,
}
