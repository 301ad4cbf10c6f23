//! The directory of this user's sockets.
//!
//! Its name is predictable, and in /tmp another user may have created it first. So it is opened
//! without following a link, and used only if this user owns it and no other user can write to it.
//! If another user owns the predictable name in /tmp, a directory with an unpredictable name is
//! used; all directories of this user are searched.

use std::ffi::OsStr;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Mode bits that let users other than the owner write.
const WRITABLE: u32 = 0o022;

pub enum Place {
    /// A fixed path: `$XDG_RUNTIME_DIR/forerun` if that belongs to this user, `/run/forerun` for
    /// root.
    At(PathBuf),
    /// A directory inside one that all users can write to.
    In(Shared),
}

/// A directory for temporary files, and the prefix of this user's names in it.
pub struct Shared {
    dir: PathBuf,
    name: String,
}

pub fn place() -> Place {
    let uid = rustix::process::getuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let is_own = |dir: &PathBuf| {
        let metadata = dir.metadata();
        metadata.is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == uid.as_raw())
    };
    if let Some(dir) = given.filter(|dir| dir.is_absolute() && is_own(dir)) {
        return Place::At(dir.join("forerun"));
    }
    // Root of a user namespace may have no right to write to /run.
    let run = PathBuf::from("/run/forerun");
    let is_ours = run.symlink_metadata().map_or_else(
        |_| rustix::fs::access("/run", rustix::fs::Access::WRITE_OK).is_ok(),
        |metadata| metadata.uid() == uid.as_raw(),
    );
    if uid.is_root() && is_ours {
        return Place::At(run);
    }
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let uid = outside_uid(uid.as_raw(), &map);
    Place::In(Shared {
        dir: std::env::temp_dir(),
        name: format!("forerun-{uid}"),
    })
}

impl Place {
    /// Returns the directories that may contain sockets.
    pub fn all(self) -> Vec<PathBuf> {
        match self {
            Self::At(dir) => vec![dir],
            Self::In(shared) => shared.own(),
        }
    }

    /// Returns the directory for a new socket, and creates it if needed.
    pub fn make(self) -> io::Result<PathBuf> {
        match self {
            Self::At(dir) => make(dir),
            Self::In(shared) => shared.make(),
        }
    }
}

fn make(dir: PathBuf) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    Ok(dir)
}

impl Shared {
    /// Returns this user's directories: the one with the predictable name, and those with
    /// unpredictable names.
    fn own(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        let is_named = |name: &std::ffi::OsString| {
            let rest = name.to_str().and_then(|name| name.strip_prefix(&self.name));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        };
        let dirs = names.filter(is_named).map(|name| self.dir.join(name));
        let mut dirs: Vec<_> = dirs
            .filter(|dir| Directory::open(dir.clone()).is_ok())
            .collect();
        dirs.sort();
        dirs
    }

    /// Returns one of this user's directories, or creates one. If another user owns the predictable
    /// name, the new name ends at random.
    fn make(&self) -> io::Result<PathBuf> {
        if let Some(dir) = self.own().into_iter().next() {
            return Ok(dir);
        }
        let known = make(self.dir.join(&self.name));
        if let Some(dir) = known
            .ok()
            .filter(|dir| Directory::open(dir.clone()).is_ok())
        {
            return Ok(dir);
        }
        let made = tempfile::Builder::new()
            .prefix(&format!("{}-", self.name))
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(&self.dir)?;
        Ok(made.keep())
    }
}

/// Returns the number of a user in the parent namespace, by the lines of `uid_map`: first number
/// inside, first number outside, count. Each user of the machine may be user 0 of a namespace, and
/// all of them share /tmp.
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
    /// Opens the directory without following a link. Fails if another user owns it or can write to
    /// it.
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

    /// Returns a path to an entry that stays valid if the directory is renamed.
    pub fn at(&self, name: &OsStr) -> PathBuf {
        Path::new(&format!("/proc/self/fd/{}", self.opened.as_raw_fd())).join(name)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use forerun_testkit::temp_dir;

    use super::*;

    #[test]
    fn a_name_that_another_user_has_taken_keeps_nobody_from_having_sockets() {
        let temp = temp_dir("runtime-dir");
        let shared = |name: &str| Shared {
            dir: temp.path().to_path_buf(),
            name: name.to_string(),
        };
        let at = |name: &str| temp.path().join(name);
        assert_eq!(shared("forerun-7").own(), Vec::<PathBuf>::new());
        assert_eq!(shared("forerun-7").make().unwrap(), at("forerun-7"));
        // A link counts as another user's directory.
        std::fs::create_dir(at("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", at("forerun-8")).unwrap();
        std::fs::write(at("forerun-9"), "").unwrap();
        for name in ["forerun-8", "forerun-9"] {
            let made = shared(name).make().unwrap();
            assert!(
                made.starts_with(temp.path()) && made != at(name),
                "{}",
                made.display()
            );
            let mode = made.metadata().unwrap().mode();
            assert_eq!(mode & 0o777, 0o700);
            assert_eq!(shared(name).make().unwrap(), made);
            assert_eq!(shared(name).own(), [made]);
        }
        if rustix::process::geteuid().is_root() {
            std::fs::create_dir(at("forerun-6")).unwrap();
            std::os::unix::fs::chown(at("forerun-6"), Some(65534), None).unwrap();
            let made = shared("forerun-6").make().unwrap();
            assert_ne!(made, at("forerun-6"));
            assert_eq!(shared("forerun-6").own(), [made]);
        }
        // User 77's directory.
        std::fs::create_dir(at("forerun-77")).unwrap();
        assert_eq!(shared("forerun-7").own(), [at("forerun-7")]);
    }

    #[test]
    fn users_of_a_namespace_have_numbers_outside() {
        let table = [
            // The initial namespace.
            (1000, "         0          0 4294967295\n", 1000),
            // unshare --map-root-user
            (0, "         0       1000          1\n", 1000),
            // With subordinate ids.
            (7, "0 1000 1\n1 100000 65536\n", 100_006),
            (65537, "0 1000 1\n1 100000 65536\n", 65537),
            // Without a map, or with an invalid one.
            (65534, "", 65534),
            (5, "0 x 1\n0 4294967295 9\n", 5),
        ];
        for (uid, map, outside) in table {
            assert_eq!(outside_uid(uid, map), outside, "{uid} in {map:?}");
        }
    }
}
