//! Opened files and directories of the host, with names for fsconfig(2).

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::mark::marked;

/// Maximum length of a value for fsconfig(2): 256 bytes, including the NUL.
const VALUE_LEN: usize = 255;

/// An opened file or directory and its absolute path.
#[derive(Debug)]
pub struct Named {
    /// Canonical, without symbolic links.
    pub path: PathBuf,
    pub file: File,
}

impl Named {
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

    pub fn name(&self) -> OsString {
        self.short(self.path.clone().into_os_string())
    }

    pub fn marked(&self) -> OsString {
        self.short(marked(&self.path))
    }

    /// Returns `name`, or the path of our descriptor in `/proc` if `name` is too long.
    fn short(&self, name: OsString) -> OsString {
        if name.len() <= VALUE_LEN {
            return name;
        }
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        marked(Path::new(&path))
    }
}
