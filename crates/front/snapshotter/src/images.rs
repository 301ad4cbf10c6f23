//! The work on images that the snapshotter has others do.

use std::io;
use std::path::Path;

/// The manifest of a container image, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestFacts {
    /// Its digest: `sha256:` and the digits.
    pub digest: String,
    /// The layers, the lowest first.
    pub layers: Vec<LayerFacts>,
}

/// A layer of a container image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerFacts {
    pub digest: String,
    /// The name that containerd gives its snapshot, by the configuration of the image.
    pub chain: String,
    /// The digest of the table of contents by which it can be read before all of it is here. The table was fetched and
    /// is sound.
    pub table: Option<String>,
    /// Whether the manifest does not vouch for how it is read: whatever refers to the image in its repository decides, now
    /// and when it is mounted again.
    pub is_claimed: bool,
}

/// Opens and mounts images, in processes that outlive this one. Calls come from several threads.
pub trait Images: Send + Sync {
    /// Reads the manifest of the image with this name, `oci://` and so on, and the tables of its layers.
    ///
    /// # Errors
    /// The reason why it is no image whose layers can be mounted, for the log.
    fn manifest(&self, image: &str) -> Result<ManifestFacts, String>;

    /// Mounts the lowest `layers` layers of an image on a directory. What goes wrong later is logged to the file `log`.
    ///
    /// # Errors
    /// The reason why it could not be mounted.
    fn mount(&self, image: &str, layers: usize, dir: &Path, log: &Path) -> Result<(), String>;

    /// Returns whether such a mount is on the directory and answers. One whose processes are dead is taken down.
    ///
    /// # Errors
    /// The errors of the table of mounts, and of taking one down.
    fn is_mounted(&self, dir: &Path) -> io::Result<bool>;

    /// Takes the mount on a directory down. Files that are open stay readable.
    ///
    /// # Errors
    /// The reason why it is still there.
    fn unmount(&self, dir: &Path) -> Result<(), String>;

    /// Frees what is kept of these layers, which no snapshot needs any more. Returns those that are still in use: the
    /// processes of a mount that was taken down end a moment later.
    fn forget(&self, layers: Vec<String>) -> Vec<String>;
}
