//! The interface for work on images, which other processes do.

use std::io;
use std::path::Path;

/// The parts of a container image's manifest that the snapshotter uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFacts {
    /// Digest of the manifest: `sha256:` and hexadecimal digits.
    pub digest: String,
    /// The layers, lowest first.
    pub layers: Vec<LayerFacts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerFacts {
    pub digest: String,
    /// The chain ID: containerd's name for the layer's snapshot, from the image configuration.
    pub chain: String,
    /// Digest of the table of contents that allows lazy reading. The table has been fetched and
    /// verified. `None` if there is none.
    pub table: Option<String>,
    /// The table is not authenticated by the manifest: a referrer in the image's repository
    /// provides it, and may be a different one at the next mount.
    pub is_claimed: bool,
}

/// Opens and mounts images, in processes that outlive this one. Several threads call it
/// concurrently.
pub trait Images: Send + Sync {
    /// Reads the manifest of `image`, such as `oci://...`, and the tables of its layers.
    ///
    /// # Errors
    /// The reason why the image's layers cannot be mounted, for the log.
    fn manifest(&self, image: &str) -> Result<ManifestFacts, String>;

    /// Mounts the lowest `layers` layers of an image on `dir`. Later errors are logged to the file
    /// `log`.
    ///
    /// # Errors
    /// The reason why the mount failed.
    fn mount(&self, image: &str, layers: usize, dir: &Path, log: &Path) -> Result<(), String>;

    /// Returns whether such a mount on `dir` exists and responds. Unmounts it if its processes are
    /// dead.
    fn is_mounted(&self, dir: &Path) -> io::Result<bool>;

    /// Unmounts `dir`. Open files stay readable.
    ///
    /// # Errors
    /// The reason why the mount remains.
    fn unmount(&self, dir: &Path) -> Result<(), String>;

    /// Frees the cached data of layers that no snapshot needs. Returns the layers still in use:
    /// processes of an unmounted mount take a moment to exit.
    fn forget(&self, layers: Vec<String>) -> Vec<String>;
}
