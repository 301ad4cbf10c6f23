//! Aborts a FUSE connection: all its requests fail, even if nothing else would end them.
//!
//! The kernel's fusectl filesystem has an abort file for each connection. If it is not mounted in
//! the usual place, root creates a detached mount of it. Root in a user namespace can do neither
//! and calls umount(2) with MNT_FORCE instead.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};

use forerun_sys::mount_table::MountEntry;
use forerun_sys::mountpoint::{Sight, find_mount};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, fstatfs, openat, statx};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

const PLACE: &str = "/sys/fs/fuse/connections";
/// Magic number of fusectl in include/uapi/linux/magic.h.
const MAGIC: u64 = 0x6573_5543;

#[derive(Debug)]
pub struct Connections(OwnedFd);

/// The abort file of one connection. After the connection has ended, it aborts nothing, even if a
/// new connection gets the same number.
#[derive(Debug)]
pub struct Abort(File);

impl Connections {
    /// Opens fusectl, mounting it if needed.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(CWD, PLACE, flags, Mode::empty());
        let is_mounted =
            |dir: &OwnedFd| fstatfs(dir).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(MAGIC));
        if let Some(dir) = opened.ok().filter(is_mounted) {
            return Ok(Self(dir));
        }
        let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::empty();
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        Ok(Self(mount))
    }

    /// Opens the abort file of the connection with this device number. Only root and the mounting
    /// user may open it.
    pub fn abort_of(&self, device: (u32, u32)) -> io::Result<Abort> {
        if device.0 != 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let name = format!("{}/abort", device.1);
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        let opened = openat(&self.0, name, flags, Mode::empty())?;
        Ok(Abort(opened.into()))
    }

    /// Opens the abort file of a mount's connection, without sending a request to the mount.
    pub fn abort_of_mount(&self, mount: impl AsFd) -> io::Result<Abort> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let stat = statx(mount, "", flags, StatxFlags::empty())?;
        self.abort_of((stat.stx_dev_major, stat.stx_dev_minor))
    }
}

impl Abort {
    pub fn of(device: (u32, u32)) -> io::Result<Self> {
        Connections::open()?.abort_of(device)
    }

    #[must_use]
    pub fn inherited(file: OwnedFd) -> Self {
        Self(file.into())
    }

    /// Aborts the connection unless it has ended.
    pub fn abort(&self) -> io::Result<()> {
        (&self.0).write_all(b"1")
    }
}

impl AsFd for Abort {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Aborts the connection of a mount, which stays mounted.
///
/// # Errors
/// NotFound if this process cannot see the mount; the errors of both methods.
pub fn abort(mount: &MountEntry) -> io::Result<()> {
    let by_file = Abort::of(mount.device).and_then(|abort| abort.abort());
    let Err(error) = by_file else { return Ok(()) };
    tracing::debug!("aborting a connection by its file: {error}");
    match find_mount(mount)? {
        Sight::Visible(seen) => Ok(seen.fail_requests()?),
        Sight::Covered | Sight::Gone => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use forerun_testkit::{children, require, temp_dir};
    use rustix::mount::{UnmountFlags, unmount};

    use super::*;
    use crate::MountOptions;
    use crate::attach::attach;
    use crate::connection::is_connected;

    #[test]
    fn an_aborted_mount_stays_and_every_request_fails() {
        if !require::root() || !require::fuse() {
            return;
        }
        let _mounts_are_free = children::forbid();
        type Abortion = fn(&MountEntry) -> io::Result<()>;
        let by_file: Abortion = |mount| Abort::of(mount.device)?.abort();
        let by_umount: Abortion = |mount| match find_mount(mount)? {
            Sight::Visible(seen) => Ok(seen.fail_requests()?),
            _ => Err(io::ErrorKind::NotFound.into()),
        };
        for abort in [by_file, by_umount] {
            let temp = temp_dir("aborted");
            let place = crate::mountpoint::prepare(temp.path()).unwrap();
            let options = MountOptions::default();
            let attached = attach(&place, OsStr::new("aborted"), &options, false).unwrap();
            drop(place);
            let path = attached.mount.mount_point.clone();
            let looking = std::thread::spawn(move || std::fs::read_dir(path).map(drop));
            assert!(is_connected(&attached.connection));
            abort(&attached.mount).unwrap();
            assert!(!is_connected(&attached.connection));
            looking.join().unwrap().unwrap_err();
            let is_there = matches!(find_mount(&attached.mount).unwrap(), Sight::Visible(_));
            unmount(temp.path(), UnmountFlags::DETACH).unwrap();
            assert!(is_there);
        }
    }

    #[test]
    fn the_file_of_a_connection_that_has_ended_aborts_no_other() {
        if !require::root() || !require::fuse() {
            return;
        }
        let _mounts_are_free = children::forbid();
        let temp = temp_dir("abort-ended");
        let mounted = || {
            let place = crate::mountpoint::prepare(temp.path()).unwrap();
            attach(&place, OsStr::new("ended"), &MountOptions::default(), false).unwrap()
        };
        let first = mounted();
        let abort = Abort::of(first.mount.device).unwrap();
        unmount(temp.path(), UnmountFlags::empty()).unwrap();
        let second = mounted();
        let _it_may_be_gone = abort.abort();
        let is_connected = is_connected(&second.connection);
        unmount(temp.path(), UnmountFlags::DETACH).unwrap();
        assert!(is_connected);
    }
}
