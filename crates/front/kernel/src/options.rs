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
    pub objects: Option<PathBuf>,
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
