//! Sets the attributes of created nodes with as few system calls as possible.
//!
//! A new node gets an owner and a mode from the system; a probe finds these defaults, and only
//! differences are set. The owner is set first, because that clears special bits and capabilities.
//! The time is set last.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use forerun_vfs::Timestamp;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags};
use rustix::io::Errno;

use super::Loss;

pub struct Attributes {
    pub mode: u16,
    pub owner: Option<(u32, u32)>,
    pub mtime: Timestamp,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Returns whether an extended attribute can grant rights: `security.capability` makes a program
/// privileged, `security.selinux` and others label it, and `trusted.` belongs to the system. The
/// author of an image must not control these.
pub fn is_privileged(name: &[u8]) -> bool {
    name.starts_with(b"security.") || name.starts_with(b"trusted.")
}

/// Called for each attribute that could not be set.
pub type Lost<'l> = dyn FnMut(Loss, Errno) + 'l;

/// Mode of a node until its attributes are set: only its owner has access.
const PRIVATE: u16 = 0o600;

/// Changes an open node's owner through libc, so that fakeroot and pseudo see it; rustix calls the
/// kernel directly.
fn change_owner(fd: impl AsFd, uid: Uid, gid: Gid) -> Result<(), Errno> {
    let changed = std::os::unix::fs::fchown(fd, Some(uid.as_raw()), Some(gid.as_raw()));
    changed.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

/// Changes an open node's mode through libc, also for fakeroot and pseudo.
fn change_mode(fd: impl AsFd, bits: u16) -> Result<(), Errno> {
    let mode = nix::sys::stat::Mode::from_bits_truncate(bits.into());
    let changed = nix::sys::stat::fchmod(fd.as_fd(), mode);
    changed.map_err(|error| Errno::from_io_error(&error.into()).unwrap_or(Errno::IO))
}

/// The attributes that new nodes in the target get by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    owner: (u32, u32),
    /// The permission bits that the umask lets through.
    bits: u16,
}

impl Defaults {
    /// Determines the defaults with an O_TMPFILE file. Returns `None` if the filesystem does not
    /// support that; then all attributes are set.
    pub fn probe(dir: &OwnedFd) -> Option<Self> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, ".", flags, Mode::from_bits_truncate(0o777)).ok()?;
        let stat = rustix::fs::fstat(&file).ok()?;
        Some(Self {
            owner: (stat.st_uid, stat.st_gid),
            bits: u16::try_from(stat.st_mode & 0o777).ok()?,
        })
    }

    pub const fn bits(self) -> u16 {
        self.bits
    }

    pub const fn owner(self) -> (u32, u32) {
        self.owner
    }
}

impl Attributes {
    /// Returns the mode for creating the file, and whether the mode must be set again at the end.
    pub fn first_mode(&self, defaults: Option<Defaults>) -> (Mode, bool) {
        let Some(defaults) = defaults else {
            return (mode(PRIVATE), true);
        };
        let changes = self.owner.is_some_and(|owner| owner != defaults.owner);
        if changes || !self.xattrs.is_empty() || self.mode & 0o7000 != 0 {
            return (mode(PRIVATE), true);
        }
        (mode(self.mode), self.mode & !defaults.bits != 0)
    }

    /// Returns the owner to set. The largest number is none: chown(2) would leave the file to this process.
    fn owner_to_set(&self, defaults: Option<Defaults>) -> Option<Result<(Uid, Gid), Errno>> {
        let (uid, gid) = self
            .owner
            .filter(|&owner| defaults.is_none_or(|defaults| owner != defaults.owner))?;
        if uid == u32::MAX || gid == u32::MAX {
            return Some(Err(Errno::INVAL));
        }
        Some(Ok((Uid::from_raw(uid), Gid::from_raw(gid))))
    }

    pub fn set(
        &self,
        fd: impl AsFd,
        defaults: Option<Defaults>,
        set_mode: bool,
        lost: &mut Lost<'_>,
    ) {
        let mut bits = self.mode;
        let change = |(uid, gid)| change_owner(&fd, uid, gid);
        if let Some(owner) = self.owner_to_set(defaults)
            && let Err(error) = owner.and_then(change)
        {
            lost(Loss::Owner, error);
            // The owner could not be set, and another owner must not get the set-ID bits.
            bits &= 0o1777;
        }
        for (name, value) in &self.xattrs {
            let set = rustix::fs::fsetxattr(&fd, name.as_slice(), value, XattrFlags::empty());
            set.unwrap_or_else(|error| lost(Loss::Xattr, error));
        }
        if set_mode && let Err(error) = change_mode(&fd, bits) {
            lost(Loss::Mode, error);
        }
        let set = rustix::fs::futimens(&fd, &self.times());
        set.unwrap_or_else(|error| lost(Loss::Time, error));
    }

    /// Sets the attributes by name, for nodes that must not be opened: links, devices, fifos,
    /// sockets. The name was just created exclusively, and links are not followed.
    pub fn set_at(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        defaults: Option<Defaults>,
        has_mode: bool,
        lost: &mut Lost<'_>,
    ) {
        let mut bits = self.mode;
        let change = |(uid, gid)| {
            rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
        };
        if let Some(owner) = self.owner_to_set(defaults)
            && let Err(error) = owner.and_then(change)
        {
            lost(Loss::Owner, error);
            bits &= 0o1777;
        }
        if !self.xattrs.is_empty() {
            // There is no lsetxattrat(2). The path leads through the directory's descriptor, and
            // its last component is not followed.
            let fd = format!("/proc/self/fd/{}/", dir.as_raw_fd());
            let path = [fd.as_bytes(), name].concat();
            for (key, value) in &self.xattrs {
                let set = rustix::fs::lsetxattr(
                    path.as_slice(),
                    key.as_slice(),
                    value,
                    XattrFlags::empty(),
                );
                set.unwrap_or_else(|error| lost(Loss::Xattr, error));
            }
        }
        if has_mode {
            let set = chmod_exactly(dir, name, mode(bits));
            set.unwrap_or_else(|error| lost(Loss::Mode, error));
        }
        self.set_time_at(dir, name, lost);
    }

    pub fn set_time_at(&self, dir: &OwnedFd, name: &[u8], lost: &mut Lost<'_>) {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let set = rustix::fs::utimensat(dir, name, &self.times(), flags);
        set.unwrap_or_else(|error| lost(Loss::Time, error));
    }

    /// Returns the times to set: the modification time; the access time is unchanged.
    fn times(&self) -> Timestamps {
        Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: self.mtime.seconds,
                tv_nsec: self.mtime.nanoseconds.into(),
            },
        }
    }
}

/// Changes the mode of a name unless it is a link, which fchmodat(2) would follow.
pub fn chmod_exactly(dir: &OwnedFd, name: &[u8], mode: Mode) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&node)?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Symlink {
        return Err(Errno::LOOP);
    }
    rustix::fs::chmod(format!("/proc/self/fd/{}", node.as_raw_fd()), mode)
}

pub fn mode(bits: u16) -> Mode {
    Mode::from_bits_truncate(bits.into())
}
