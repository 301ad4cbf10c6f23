//! Files and directories of the host, in the form in which the kernel takes them.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::mark::marked;

/// fsconfig(2) takes 256 bytes at the most, with the NUL at the end.
const VALUE_LEN: usize = 255;

/// A file or directory, open, by its absolute path.
#[derive(Debug)]
pub struct Named {
    /// Without links in it.
    pub path: PathBuf,
    pub file: File,
}

impl Named {
    /// Opens the file or directory that `path` leads to.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::File {
            path: path.to_path_buf(),
            source,
        };
        let absolute = path.canonicalize().map_err(failed)?;
        let file = File::open(&absolute).map_err(failed)?;
        Ok(Self {
            path: absolute,
            file,
        })
    }

    /// Returns the name for the kernel to open.
    pub fn name(&self) -> OsString {
        self.short(self.path.clone().into_os_string())
    }

    /// Returns the same, marked as the source of a mount of ours.
    pub fn marked(&self) -> OsString {
        self.short(marked(&self.path))
    }

    /// Returns `name`, or a path through our descriptor where `name` is longer than the kernel takes.
    fn short(&self, name: OsString) -> OsString {
        if name.len() <= VALUE_LEN {
            return name;
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        marked(Path::new(&path))
    }
}
