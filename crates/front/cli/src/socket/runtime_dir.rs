//! The directory of this user's sockets.
//!
//! Its name is known, and one that lies in /tmp may have been made by another user. So it is opened
//! without following a link, and used only if this user owns it and no other can write to it.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The bits of a mode that let users other than the owner write.
const WRITABLE: u32 = 0o022;

/// Returns the path of the directory: `$XDG_RUNTIME_DIR/forerun` where that is this user's,
/// `/run/forerun` for root, else one in /tmp that is this user's alone.
pub fn directory() -> PathBuf {
    let uid = rustix::process::getuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let is_own = |dir: &PathBuf| {
        let metadata = dir.metadata();
        metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid.as_raw())
    };
    if let Some(dir) = given.filter(|dir| dir.is_absolute() && is_own(dir)) {
        return dir.join("forerun");
    }
    // The root of a user namespace may have no right to write to /run.
    let run = PathBuf::from("/run/forerun");
    let is_ours = run.symlink_metadata().map_or_else(
        |_| rustix::fs::access("/run", rustix::fs::Access::WRITE_OK).is_ok(),
        |metadata| metadata.uid() == uid.as_raw(),
    );
    match uid.is_root() && is_ours {
        true => run,
        false => {
            let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
            let uid = outside_uid(uid.as_raw(), &map);
            std::env::temp_dir().join(format!("forerun-{uid}"))
        }
    }
}

/// Returns the number that a user of this namespace has in the parent namespace, by the lines of
/// `uid_map`: first number inside, first number outside, count. Each user of the machine may be user 0
/// of a namespace, and all of them share /tmp.
fn outside_uid(uid: u32, map: &str) -> u32 {
    let outside = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse::<u32>);
        let mut next = || numbers.next()?.ok();
        let (inside, outside, count) = (next()?, next()?, next()?);
        let at = uid.checked_sub(inside).filter(|&at| at < count)?;
        outside.checked_add(at)
    };
    map.lines().find_map(outside).unwrap_or(uid)
}

/// A directory that only this user can change.
pub struct Directory {
    opened: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Opens it without following a link.
    ///
    /// # Errors
    /// Where another user owns it or can write to it.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&opened)?;
        let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
        let why = match (is_own, stat.st_mode & WRITABLE) {
            (true, 0) => return Ok(Self { opened, path }),
            (true, _) => "other users can write to it",
            (false, _) => "it belongs to another user",
        };
        Err(io::Error::new(ErrorKind::PermissionDenied, why))
    }

    /// Returns a path of an entry, wherever the directory's own path leads by now.
    pub fn at(&self, name: &OsStr) -> PathBuf {
        Path::new(&format!("/proc/self/fd/{}", self.opened.as_raw_fd())).join(name)
    }

    /// Returns the path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_namespace_have_numbers_outside() {
        let table = [
            // The first namespace.
            (1000, "         0          0 4294967295\n", 1000),
            // unshare --map-root-user
            (0, "         0       1000          1\n", 1000),
            // With subordinate numbers.
            (7, "0 1000 1\n1 100000 65536\n", 100_006),
            (65537, "0 1000 1\n1 100000 65536\n", 65537),
            // No map yet, or none that can be read.
            (65534, "", 65534),
            (5, "0 x 1\n0 4294967295 9\n", 5),
        ];
        for (uid, map, outside) in table {
            assert_eq!(outside_uid(uid, map), outside, "{uid} in {map:?}");
        }
    }
}
