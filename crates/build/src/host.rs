//! Host files that go into an image.
//!
//! Between the scan and the writing of the image, other processes may rename the scanned files. A
//! file is therefore opened below the given directory, through no symbolic link, and must be the
//! inode that the scan saw.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_sys::beneath::open_beneath;
use rustix::fs::{CWD, Mode, OFlags, Stat};
use rustix::io::Errno;

/// The scanned directory, held open.
#[derive(Debug)]
pub(super) struct Root {
    /// The path as the caller gave it, for messages.
    path: PathBuf,
    dir: OwnedFd,
}

impl Root {
    /// Opens the directory that the caller named. Follows a symbolic link to it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        let path = path.to_path_buf();
        Ok(Self { path, dir })
    }

    pub fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.dir)?)
    }

    /// Returns the path of an entry below the root, for messages.
    pub fn join(&self, path: &Path) -> PathBuf {
        if path.as_os_str().is_empty() {
            self.path.clone()
        } else {
            self.path.join(path)
        }
    }

    /// Opens a directory below the root. Fails if it is not the directory with the identity `seen`.
    pub fn open_dir(&self, path: &Path, seen: Identity) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = open_beneath(&self.dir, path, flags).map_err(replaced_by_link)?;
        seen.check(&dir)?;
        Ok(dir)
    }
}

/// The identity of an inode: device and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Identity {
    device: u64,
    inode: u64,
}

impl Identity {
    pub const fn of(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }

    pub const fn numbers(self) -> (u64, u64) {
        (self.device, self.inode)
    }

    fn check(self, file: impl AsFd) -> io::Result<()> {
        if Self::of(&rustix::fs::fstat(file)?) == self {
            Ok(())
        } else {
            Err(replaced())
        }
    }
}

fn replaced() -> io::Error {
    io::Error::other("another file replaced it while forerun read the directory")
}

/// Converts the error of opening a path that had no symbolic link during the scan.
fn replaced_by_link(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => replaced(),
        error => error.into(),
    }
}

/// A regular file of the host, with its identity during the scan.
#[derive(Clone, Debug)]
pub struct HostFile {
    /// The directory that the path is relative to; `None` if the caller named the file itself.
    root: Option<Arc<Root>>,
    path: PathBuf,
    seen: Identity,
}

impl HostFile {
    /// Returns the record of a file that the caller named.
    #[must_use]
    pub fn named(path: PathBuf, metadata: &Metadata) -> Self {
        let seen = Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
        };
        let root = None;
        Self { root, path, seen }
    }

    pub(super) const fn beneath(root: Arc<Root>, path: PathBuf, seen: Identity) -> Self {
        let root = Some(root);
        Self { root, path, seen }
    }

    /// Returns the full path, for messages.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        match &self.root {
            Some(root) => root.join(&self.path),
            None => self.path.clone(),
        }
    }

    /// Opens the file for reading. Fails if it is not the file that was scanned, because the file
    /// or a directory above it was replaced, for example by a symbolic link.
    pub fn open(&self) -> io::Result<File> {
        // A pipe that replaced the file must not block the caller.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match &self.root {
            Some(root) => open_beneath(&root.dir, &self.path, flags),
            None => rustix::fs::openat(CWD, &self.path, flags, Mode::empty()),
        };
        let file = File::from(file.map_err(replaced_by_link)?);
        self.seen.check(&file)?;
        // A new pipe may have the inode number of a removed file.
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(replaced())
        }
    }
}
