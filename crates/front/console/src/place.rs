//! Directories that are made for a result before the process enters its sandbox, and are removed if
//! there is none. Landlock makes rules of directories, so these must exist.

use std::io;
use std::path::{Path, PathBuf};

use forerun_sandbox::Sandbox;

/// A directory for a result.
pub struct OutputDir {
    path: PathBuf,
    /// Directories that were missing, the innermost last.
    made: Vec<PathBuf>,
}

impl OutputDir {
    /// Makes `path`, and the directories above it, where they are missing.
    pub fn make(path: &Path) -> io::Result<Self> {
        let missing =
            |dir: &&Path| !dir.as_os_str().is_empty() && !dir.try_exists().unwrap_or(true);
        let above = path.ancestors().take_while(missing);
        let mut made: Vec<_> = above.map(Path::to_path_buf).collect();
        made.reverse();
        std::fs::create_dir_all(path)?;
        let path = path.to_path_buf();
        Ok(Self { path, made })
    }

    /// Returns whether it was missing.
    pub fn is_new(&self) -> bool {
        !self.made.is_empty()
    }

    /// Adds to `sandbox` what writing below it takes, and taking it back.
    pub fn sandbox(&self, sandbox: Sandbox) -> Sandbox {
        let sandbox = sandbox.write_below(&self.path);
        match self.made.first() {
            Some(outermost) => {
                sandbox.remove_directories_in(crate::confine::directory_of(outermost))
            }
            None => sandbox,
        }
    }

    /// Removes the directories that were made, as far as they are empty.
    pub fn take_back(self) {
        for dir in self.made.iter().rev() {
            if let Err(error) = std::fs::remove_dir(dir) {
                return tracing::debug!("{} stays: {error}", dir.display());
            }
        }
    }
}
