//! The directory of a measurement: all mounts and files, which go with it, also after Ctrl-C.

use std::io;
use std::path::{Path, PathBuf};

use forerun::build::is_in_memory;
use tempfile::TempDir;

use super::active;
use crate::error::{Failure, Result};
use crate::interrupt::OnInterrupt;

/// The directory. One in the life of a process.
pub struct Home {
    dir: TempDir,
    _guard: OnInterrupt,
}

impl Home {
    /// Makes it in `parent`, or in the default place.
    pub fn new(parent: Option<&Path>) -> Result<Self> {
        let parent = parent.map_or_else(default_dir, Path::to_path_buf);
        let failed = |error: io::Error| Failure::output(&error).of(parent.display());
        // The table of mounts has no symbolic links.
        let place = parent.canonicalize().map_err(failed)?;
        let dir = tempfile::Builder::new()
            .prefix("forerun-bench-")
            .tempdir_in(place)
            .map_err(failed)?;
        let path = dir.path().to_path_buf();
        active::guard(&path);
        let guard = OnInterrupt::new(move || active::abandon(&path));
        Ok(Self { dir, _guard: guard })
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// Returns `TMPDIR`, or `/var/tmp` where `TMPDIR` is in memory, since there would be no cold caches to
/// measure.
fn default_dir() -> PathBuf {
    let dir = std::env::temp_dir();
    if is_in_memory(&dir) && Path::new("/var/tmp").is_dir() {
        PathBuf::from("/var/tmp")
    } else {
        dir
    }
}
