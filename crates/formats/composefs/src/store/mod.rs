//! A directory of objects: files named by their fs-verity digests, as `ab/cdef...`.
//!
//! All names are looked up from one directory descriptor. The kernel keeps lookups beneath it, and
//! follows no symbolic link. The name of an object is not proof of its contents: readers that need
//! proof compute the digest.

mod add;

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

pub use add::{Additions, Source};

use crate::digest::Digest;

/// Prefix and suffix of the name of a file that is being written.
const TEMPORARY: (&str, &str) = (".forerun-", ".tmp");

/// The other entries of a composefs-rs or bootc repository, next to its directory of objects.
const REPOSITORY: [&str; 3] = ["meta.json", "images", "streams"];

#[derive(Debug)]
pub struct ObjectStore {
    dir: OwnedFd,
}

/// A file in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    Object {
        digest: Digest,
        len: u64,
        file: (u64, u64),
        /// Bytes that the file occupies on the disk.
        disk: u64,
    },
    /// A temporary file of an active or an interrupted writer.
    Temporary {
        name: String,
        /// Last modification, in seconds since the epoch.
        mtime: i64,
    },
}

impl ObjectStore {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { dir })
    }

    /// Returns the name of an entry in or next to the directory that marks a repository in which
    /// images and streams are objects too; `None` for a plain store.
    pub fn repository(&self) -> io::Result<Option<&'static str>> {
        for dir in [".", ".."] {
            for name in REPOSITORY {
                let path = format!("{dir}/{name}");
                match rustix::fs::statat(&self.dir, path, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(_) => return Ok(Some(name)),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(None)
    }

    /// Opens the store at `path`, and creates the directory if it is missing.
    pub fn create(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path)?;
        Self::open(path)
    }

    /// Opens an object for reading. Fails with [`io::ErrorKind::InvalidInput`] if it is not a
    /// regular file.
    pub fn open_object(&self, digest: &Digest) -> io::Result<File> {
        self.open_path(digest.object_path().as_bytes())
    }

    /// Like [`open_object`](Self::open_object), for any path below the directory.
    pub fn open_path(&self, path: &[u8]) -> io::Result<File> {
        // A pipe with the name of an object must not block the reader.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::from(self.open_at(path, flags)?);
        if !file.metadata()?.is_file() {
            let kind = io::ErrorKind::InvalidInput;
            return Err(io::Error::new(kind, "not a regular file"));
        }
        Ok(file)
    }

    /// Returns the length of an object in bytes, or `None` if it does not exist.
    pub fn object_len(&self, digest: &Digest) -> io::Result<Option<u64>> {
        self.len_of(digest.object_path().as_bytes())
    }

    /// Like [`object_len`](Self::object_len), for any path below the directory.
    pub fn len_of(&self, path: &[u8]) -> io::Result<Option<u64>> {
        match self.open_at(path, OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW) {
            Ok(file) => {
                let stat = rustix::fs::fstat(file)?;
                let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
                let len = u64::try_from(stat.st_size).map_err(io::Error::other)?;
                Ok(is_file.then_some(len))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn remove(&self, digest: &Digest) -> io::Result<()> {
        let path = digest.object_path();
        let (shelf, name) = path.split_at(2);
        let shelf = self.shelf(shelf)?;
        Ok(rustix::fs::unlinkat(
            shelf,
            name.trim_start_matches('/'),
            AtFlags::empty(),
        )?)
    }

    /// Removes a temporary file. Fails with [`io::ErrorKind::InvalidInput`] for any other name.
    pub fn remove_temporary(&self, name: &str) -> io::Result<()> {
        if !is_temporary(name) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())?)
    }

    /// Visits the objects and temporary files of the store, in no order. Skips other names.
    pub fn list(&self, visit: &mut dyn FnMut(Stored)) -> io::Result<()> {
        for entry in Dir::read_from(&self.dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if is_temporary(name) {
                let stat = rustix::fs::statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
                visit(Stored::Temporary {
                    name: name.to_string(),
                    mtime: stat.st_mtime,
                });
            } else if is_shelf(name) {
                self.list_shelf(name, visit)?;
            }
        }
        Ok(())
    }

    fn list_shelf(&self, shelf: &str, visit: &mut dyn FnMut(Stored)) -> io::Result<()> {
        let dir = match self.shelf(shelf) {
            Ok(dir) => dir,
            // A foreign file or link whose name has two letters.
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in Dir::read_from(&dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let path = [shelf.as_bytes(), b"/", name.to_bytes()].concat();
            let Some(digest) = Digest::from_object_path(&path) else {
                continue;
            };
            let stat = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(stat.st_mode).is_file() {
                visit(Stored::Object {
                    digest,
                    len: u64::try_from(stat.st_size).unwrap_or(0),
                    disk: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
                    file: (stat.st_dev, stat.st_ino),
                });
            }
        }
        Ok(())
    }

    /// Opens one of the 256 directories that contain objects.
    fn shelf(&self, name: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        self.open_at(name.as_bytes(), flags)
    }

    fn open_at(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let path = std::ffi::OsStr::from_bytes(path);
        Ok(rustix::fs::openat2(
            self.dir.as_fd(),
            path,
            flags,
            Mode::empty(),
            resolve,
        )?)
    }
}

/// Returns whether a name is two hexadecimal digits.
fn is_shelf(name: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    name.len() == 2 && name.bytes().all(digit)
}

fn is_temporary(name: &str) -> bool {
    let (start, end) = TEMPORARY;
    name.starts_with(start) && name.ends_with(end) && !name.contains('/')
}
