//! Output directories that are created before the process enters its sandbox, and removed if there
//! is no output. Landlock rules need existing directories.

use std::io;
use std::path::{Path, PathBuf};

use forerun_sandbox::Sandbox;

pub struct OutputDir {
    path: PathBuf,
    /// Created directories, innermost last.
    made: Vec<PathBuf>,
}

impl OutputDir {
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

    /// Returns whether the directory was created.
    pub fn is_new(&self) -> bool {
        !self.made.is_empty()
    }

    /// Allows in `sandbox` writing below the directory, and removing it.
    pub fn sandbox(&self, sandbox: Sandbox) -> Sandbox {
        let sandbox = sandbox.write_below(&self.path);
        match self.made.first() {
            Some(outermost) => {
                sandbox.remove_directories_in(crate::confine::directory_of(outermost))
            }
            None => sandbox,
        }
    }

    /// Removes the created directories if they are empty.
    pub fn take_back(self) {
        for dir in self.made.iter().rev() {
            if let Err(error) = std::fs::remove_dir(dir) {
                return tracing::debug!("{} stays: {error}", dir.display());
            }
        }
    }
}
