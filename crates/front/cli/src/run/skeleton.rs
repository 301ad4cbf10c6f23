//! The layer with mount points that the image lacks.
//!
//! An image is never changed, and the command's changes should not contain empty directories `proc`
//! and `dev`. So these are in a separate layer in memory, between the image and the changes. If the
//! image has the same directory, overlayfs shows the attributes from this layer, so they are
//! copied.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid, chmodat, chownat, fstat, mkdirat};

use super::attach::{by_descriptor, inside, path_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    Directory,
    File,
}

impl TargetKind {
    /// Returns the kind of mount point for an open file.
    pub fn of(file: impl AsFd) -> io::Result<Self> {
        let mode = fstat(file)?.st_mode;
        Ok(match FileType::from_raw_mode(mode) {
            FileType::Directory => Self::Directory,
            _ => Self::File,
        })
    }
}

/// The layer, and the image below it.
#[derive(Clone, Copy, Debug)]
pub struct Skeleton<'a> {
    pub image: BorrowedFd<'a>,
    pub layer: BorrowedFd<'a>,
}

impl Skeleton<'_> {
    /// Copies the attributes of the image's root directory to the layer's.
    pub fn begin(&self) -> io::Result<()> {
        copy_attributes(self.image, self.layer, Path::new("."))
    }

    pub fn image_has(&self, path: &str) -> bool {
        inside(self.image, path).is_ok()
    }

    /// Adds a directory or an empty file at `path`, unless the image has one.
    pub fn add(&self, path: &Path, kind: TargetKind) -> io::Result<()> {
        if let Ok(there) = inside(self.image, path) {
            if TargetKind::of(&there)? == kind {
                return Ok(());
            }
            let why = match kind {
                TargetKind::Directory => "the image has a file there",
                TargetKind::File => "the image has a directory there",
            };
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        match kind {
            TargetKind::Directory => self.make_directories(path).map(drop),
            TargetKind::File => self.write(path, b""),
        }
    }

    /// Puts a file into the layer. It hides the image's file.
    pub fn write(&self, path: &Path, contents: &[u8]) -> io::Result<()> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let parent = self.make_directories(parent)?;
        fs::write(by_descriptor(&parent).join(name), contents)
    }

    /// Creates a directory and its parents in the layer, at the paths where the image has them.
    /// Returns the directory.
    fn make_directories(&self, path: &Path) -> io::Result<OwnedFd> {
        let (there, missing) = self.deepest(path)?;
        let mut made = self.layer.try_clone_to_owned()?;
        let mut of_image = Some(self.image.try_clone_to_owned()?);
        for name in there.iter().map(OsString::from).chain(missing) {
            let name = Path::new(&name);
            match mkdirat(&made, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            of_image = of_image.and_then(|dir| inside(&dir, name).ok());
            if let Some(dir) = &of_image {
                copy_attributes(dir, &made, name)?;
            }
            made = inside(&made, name)?;
        }
        Ok(made)
    }

    /// Returns the deepest directory on the way to `path` that the image has, with symbolic links
    /// resolved, and the missing names below it.
    fn deepest(&self, path: &Path) -> io::Result<(PathBuf, Vec<OsString>)> {
        let root = path_of(&self.image)?;
        let mut missing = Vec::new();
        let mut prefix = path;
        loop {
            if let Ok(there) = inside(self.image, prefix) {
                if TargetKind::of(&there)? != TargetKind::Directory {
                    return Err(io::ErrorKind::NotADirectory.into());
                }
                let there = path_of(&there)?;
                let there = there.strip_prefix(&root).map_err(io::Error::other)?;
                missing.reverse();
                return Ok((there.to_path_buf(), missing));
            }
            let (Some(parent), Some(name)) = (prefix.parent(), prefix.file_name()) else {
                return Err(io::ErrorKind::NotFound.into());
            };
            missing.push(name.to_owned());
            prefix = parent;
        }
    }
}

/// Copies owner and permissions from one directory to another.
fn copy_attributes(from: impl AsFd, dir: impl AsFd, name: &Path) -> io::Result<()> {
    let from = fstat(from)?;
    let (user, group) = (Uid::from_raw(from.st_uid), Gid::from_raw(from.st_gid));
    // An owner that the namespace lacks remains this process's user.
    let _shown_as_root = chownat(
        &dir,
        name,
        Some(user),
        Some(group),
        AtFlags::SYMLINK_NOFOLLOW,
    );
    Ok(chmodat(
        &dir,
        name,
        Mode::from_raw_mode(from.st_mode),
        AtFlags::empty(),
    )?)
}

/// Reads a file of the system. Returns `None` if it does not exist.
pub fn read(path: &str) -> Option<Vec<u8>> {
    /// Longest accepted file: these are lists of a few servers or machines.
    const LONGEST: u64 = 1 << 20;
    let mut contents = Vec::new();
    let file = File::open(path).ok()?;
    io::Read::read_to_end(&mut io::Read::take(file, LONGEST), &mut contents).ok()?;
    Some(contents)
}
