//! Mountpoints by descriptor, and mounts by number.
//!
//! A path may lead to another directory or mount by the time that a check of it has passed. So a
//! mountpoint is opened once: the checks and move_mount(2) use that descriptor. A mount is
//! identified by its number and device. Before it is unmounted, its number is compared with that of
//! the mount that is visible at its path.
//!
//! No function here sends a request to the mounted filesystem, whose server may be dead or never
//! answer. A mount to be unmounted is not opened either: a program that another thread is just
//! starting would inherit a copy of the descriptor, and the mount would be busy.
//!
//! umount(2) takes only paths, and unmounts the topmost mount there. A mount that is put on top
//! between the comparison and the call is unmounted instead. Only root, or the owner of the
//! directory, can mount there.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, UnmountFlags};

use crate::mount_table::{MountEntry, mounts};

/// A directory to mount on, held open.
#[derive(Debug)]
pub struct Mountpoint {
    dir: OwnedFd,
    path: PathBuf,
}

impl Mountpoint {
    /// Opens the directory at `path`. Sends no request to the filesystem mounted there.
    ///
    /// # Errors
    /// `ENOTDIR` if it is not a directory, and the errors of open(2).
    pub fn open(path: &Path) -> io::Result<Self> {
        let dir = open_path(CWD, path, OFlags::DIRECTORY)?;
        let path = path_of(&dir)?;
        Ok(Self { dir, path })
    }

    /// Returns the absolute path of the directory when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the current absolute path of the directory.
    ///
    /// # Errors
    /// The errors of readlink(2).
    pub fn current_path(&self) -> io::Result<PathBuf> {
        path_of(&self.dir)
    }

    /// Returns a path that leads to the directory in this process, wherever it has been moved.
    #[must_use]
    pub fn by_descriptor(&self) -> PathBuf {
        descriptor_path(&self.dir)
    }

    /// Returns the mount whose root is the directory, if any.
    ///
    /// # Errors
    /// If the mounts cannot be read.
    pub fn mounted(&self) -> io::Result<Option<MountEntry>> {
        mount_with_root(&self.dir)
    }

    /// Attaches `mount`, which fsmount(2) or open_tree(2) returned, to the directory. Covers an
    /// existing mount.
    ///
    /// # Errors
    /// The errors of move_mount(2).
    pub fn attach(&self, mount: impl AsFd) -> rustix::io::Result<()> {
        let flags =
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        rustix::mount::move_mount(mount, "", &self.dir, "", flags)
    }
}

impl AsFd for Mountpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Returns the topmost mount at `path`, if `path` is a mountpoint. Sends no request to its
/// filesystem.
///
/// # Errors
/// The errors of open(2), or if the mounts cannot be read.
pub fn mount_at(path: &Path) -> io::Result<Option<MountEntry>> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return mount_with_root(&open_path(CWD, path, OFlags::empty())?);
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let parent = open_path(CWD, parent, OFlags::DIRECTORY)?;
    match seen_at(&parent, name)? {
        Some(id) => mount_on(id, &path_of(&parent)?.join(name)),
        // A symbolic link, or an old kernel.
        None => mount_with_root(&open_path(&parent, Path::new(name), OFlags::empty())?),
    }
}

/// Returns the mount through which `descriptor` was opened, or that fsmount(2) returned.
///
/// # Errors
/// If the mounts cannot be read; `NotFound` if this mount is not attached anywhere in this
/// namespace.
pub fn mount_of(descriptor: impl AsFd) -> io::Result<MountEntry> {
    let id = mount_id(descriptor)?;
    let found = mounts()?.into_iter().find(|entry| entry.id == id);
    found.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Whether a mount is visible at its path.
#[derive(Debug)]
pub enum Sight {
    /// The mount has ended, or is not attached anywhere in this namespace.
    Gone,
    /// Another mount covers it.
    Covered,
    /// Its path leads to it.
    Visible(VisibleMount),
}

/// A mount that was visible at its path a moment ago.
#[derive(Debug)]
pub struct VisibleMount {
    /// The directory that contains the mountpoint. A descriptor of the mount itself would keep it
    /// busy.
    parent: OwnedFd,
    name: OsString,
    path: PathBuf,
    inner: Option<PathBuf>,
}

/// Finds a mount by its number and device, wherever it has been moved.
///
/// # Errors
/// If the mounts cannot be read, or its path cannot be followed.
pub fn find_mount(mount: &MountEntry) -> io::Result<Sight> {
    let is_it = |entry: &&MountEntry| entry.id == mount.id && entry.device == mount.device;
    let all = mounts()?;
    let Some(here) = all.iter().find(is_it) else {
        return Ok(Sight::Gone);
    };
    let path = here.mount_point.clone();
    let mut inside = all.iter().filter(|entry| entry.parent == mount.id);
    let inner = inside.next().map(|entry| entry.mount_point.clone());
    if inner.as_ref() == Some(&path) || inside.any(|entry| entry.mount_point == path) {
        return Ok(Sight::Covered);
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Sight::Covered);
    };
    let parent = open_path(CWD, parent, OFlags::DIRECTORY)?;
    let seen = match seen_at(&parent, name)? {
        Some(id) => id,
        None => mount_id(open_path(&parent, Path::new(name), OFlags::NOFOLLOW)?)?,
    };
    if seen == mount.id {
        let name = name.to_os_string();
        return Ok(Sight::Visible(VisibleMount {
            parent,
            name,
            path,
            inner,
        }));
    }
    if mounts()?.iter().any(|entry| is_it(&entry)) {
        Ok(Sight::Covered)
    } else {
        Ok(Sight::Gone)
    }
}

impl VisibleMount {
    /// Returns the path of its mountpoint.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a mount inside this one, which a lazy unmount would detach too.
    #[must_use]
    pub fn inner(&self) -> Option<&Path> {
        self.inner.as_deref()
    }

    /// Unmounts it. With `lazy`, the mount disappears from the tree at once and ends with its last
    /// user.
    ///
    /// # Errors
    /// The errors of umount(2).
    pub fn unmount(&self, lazy: bool) -> rustix::io::Result<()> {
        let mut flags = UnmountFlags::NOFOLLOW;
        flags.set(UnmountFlags::DETACH, lazy);
        rustix::mount::unmount(descriptor_path(&self.parent).join(&self.name), flags)
    }

    /// Makes the filesystem fail all of its requests (`MNT_FORCE`). It stays mounted, because a
    /// descriptor keeps it busy.
    ///
    /// # Errors
    /// The errors of open(2) and umount(2).
    pub fn fail_requests(&self) -> io::Result<()> {
        let _kept_busy = open_path(&self.parent, Path::new(&self.name), OFlags::NOFOLLOW)?;
        let path = descriptor_path(&self.parent).join(&self.name);
        match rustix::mount::unmount(path, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
            Ok(()) | Err(Errno::BUSY) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Returns the mount whose root was opened as `opened`.
fn mount_with_root(opened: &OwnedFd) -> io::Result<Option<MountEntry>> {
    mount_on(mount_id(opened)?, &path_of(opened)?)
}

/// Returns the mount with this number if it is mounted exactly at `path`.
fn mount_on(id: u64, path: &Path) -> io::Result<Option<MountEntry>> {
    let mut all = mounts()?;
    all.retain(|entry| entry.id == id && entry.mount_point == path);
    Ok(all.pop())
}

/// Returns the number of the topmost mount at `name`, without opening it. Returns `None` for a
/// symbolic link, and before Linux 5.8. Requests no attribute, so that a FUSE server gets no
/// request.
fn seen_at(parent: &OwnedFd, name: &OsStr) -> io::Result<Option<u64>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let seen = match rustix::fs::statx(parent, name, flags, StatxFlags::empty()) {
        Ok(seen) => seen,
        Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let is_link = FileType::from_raw_mode(seen.stx_mode.into()) == FileType::Symlink;
    let is_known = StatxFlags::from_bits_retain(seen.stx_mask).contains(StatxFlags::MNT_ID);
    Ok((is_known && !is_link).then_some(seen.stx_mnt_id))
}

fn open_path(dir: impl AsFd, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, path, flags, Mode::empty())?)
}

fn descriptor_path(descriptor: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd()).into()
}

fn path_of(descriptor: &OwnedFd) -> io::Result<PathBuf> {
    std::fs::read_link(descriptor_path(descriptor))
}

/// Returns the number of the mount through which a descriptor was opened, as in
/// `/proc/self/mountinfo`.
fn mount_id(descriptor: impl AsFd) -> io::Result<u64> {
    let number = descriptor.as_fd().as_raw_fd();
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let id = line.and_then(|id| id.trim().parse().ok());
    id.ok_or_else(|| Errno::NOTSUP.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_a_mount_and_a_directory_in_it_is_none() {
        let root = Mountpoint::open(Path::new("/")).unwrap();
        let entry = root.mounted().unwrap().unwrap();
        assert_eq!(entry.mount_point, Path::new("/"));
        assert_eq!(mount_of(&root).unwrap(), entry);
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(mount_at(temp.path()).unwrap(), None);
    }

    #[test]
    fn a_mountpoint_is_followed_when_it_is_moved() {
        let temp = tempfile::tempdir().unwrap();
        let base = temp.path().canonicalize().unwrap();
        let (first, second) = (base.join("first"), base.join("second"));
        std::fs::create_dir(&first).unwrap();
        std::os::unix::fs::symlink("first", base.join("link")).unwrap();
        let open = Mountpoint::open(&base.join("link")).unwrap();
        assert_eq!(open.path(), first);
        std::fs::rename(&first, &second).unwrap();
        assert_eq!(open.current_path().unwrap(), second);
        std::fs::write(second.join("file"), "").unwrap();
        assert!(open.by_descriptor().join("file").exists());
    }

    #[test]
    fn a_file_is_no_mountpoint() {
        let temp = tempfile::NamedTempFile::new().unwrap();
        let error = Mountpoint::open(temp.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
    }

    #[test]
    fn a_mount_with_another_device_is_gone() {
        let mut entry = mount_at(Path::new("/")).unwrap().unwrap();
        entry.device = (u32::MAX, 0);
        assert!(matches!(find_mount(&entry).unwrap(), Sight::Gone));
    }
}
