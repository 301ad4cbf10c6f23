//! The socket that containerd connects to.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::confine::make_private_dir;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;

/// A listening socket, whose file is removed on drop.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Listens on a path that only this user can connect to. Replaces the socket of a killed
    /// process.
    pub fn bind(path: &Path) -> Result<Self> {
        let failed = |error: &io::Error| {
            Failure::new(Exit::Output, "output", reason(error)).of(path.display())
        };
        if let Some(parent) = path.parent().filter(|it| !it.as_os_str().is_empty()) {
            make_private_dir(parent).map_err(|error| failed(&error))?;
        }
        let old = fs::symlink_metadata(path).ok();
        if old.is_some_and(|old| old.file_type().is_socket()) {
            if UnixStream::connect(path).is_ok() {
                let message = "another process listens there";
                return Err(Failure::new(Exit::Output, "exists", message).of(path.display()));
            }
            fs::remove_file(path).map_err(|error| failed(&error))?;
        }
        // The umask belongs to the process, but no other thread runs yet.
        let mask = rustix::process::umask(Mode::RWXG | Mode::RWXO);
        let listener = UnixListener::bind(path);
        rustix::process::umask(mask);
        Ok(Self {
            listener: listener.map_err(|error| failed(&error))?,
            path: path.to_path_buf(),
        })
    }

    pub fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // If this fails, the next process replaces the file.
        let _stays = fs::remove_file(&self.path);
    }
}
