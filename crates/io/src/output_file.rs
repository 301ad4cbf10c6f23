//! Opens a file that the user names for output: a log, a trace, an access list.
//!
//! A name in a directory that other users can change may lead to any file: their symbolic or hard
//! link to a file of the caller, or a FIFO at which open(2) waits forever. So the name is looked up
//! once; the found file is checked and then opened through its descriptor.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// How often the name may change to another file while it is being opened.
const ATTEMPTS: usize = 8;
/// The mode bits that let other users than the owner write.
const WRITABLE: u32 = 0o022;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFile {
    Append,
    Replace,
}

impl OutputFile {
    /// Opens the file at `path` for writing, or creates it.
    ///
    /// A symbolic link is followed only if only root or the caller could have made it, such as
    /// `/dev/stderr`. In a directory that others can change the file must belong to the caller or
    /// root, and have no other name.
    ///
    /// # Errors
    /// `PermissionDenied` for a link or file that breaks these rules; `InvalidInput` for anything
    /// but a regular file, character device or FIFO; the errors of open(2).
    pub fn open(self, path: &Path) -> io::Result<File> {
        for _ in 0..ATTEMPTS {
            match find(path) {
                Ok(found) => return self.open_found(&found),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            match rustix::fs::open(path, flags | self.flags(), Mode::from_raw_mode(0o666)) {
                Ok(made) => return Ok(made.into()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::other("another process keeps replacing it"))
    }

    fn flags(self) -> OFlags {
        let common = OFlags::CLOEXEC | OFlags::NOCTTY;
        match self {
            Self::Append => common | OFlags::APPEND,
            Self::Replace => common,
        }
    }

    fn open_found(self, found: &OwnedFd) -> io::Result<File> {
        let stat = rustix::fs::fstat(found)?;
        let more = match (FileType::from_raw_mode(stat.st_mode), self) {
            (FileType::RegularFile, Self::Replace) => OFlags::TRUNC,
            (FileType::RegularFile | FileType::CharacterDevice | FileType::Fifo, _) => {
                OFlags::empty()
            }
            (FileType::Directory, _) => return Err(Errno::ISDIR.into()),
            _ => {
                let why = "not a regular file, a character device or a FIFO";
                return Err(io::Error::new(ErrorKind::InvalidInput, why));
            }
        };
        let flags = OFlags::WRONLY | self.flags() | more;
        Ok(rustix::fs::open(by_descriptor(found), flags, Mode::empty())?.into())
    }
}

/// Looks up the file that the path names, without opening it.
fn find(path: &Path) -> io::Result<OwnedFd> {
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let Some(name) = path.file_name() else {
        return Err(Errno::ISDIR.into());
    };
    let dir = rustix::fs::openat(CWD, dir, flags | OFlags::DIRECTORY, Mode::empty())?;
    let is_closed = is_closed(&rustix::fs::fstat(&dir)?);
    let found = rustix::fs::openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
    let stat = rustix::fs::fstat(&found)?;
    let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink;
    let refused = |why| Err(io::Error::new(ErrorKind::PermissionDenied, why));
    match (is_closed, is_link) {
        (true, false) => Ok(found),
        (true, true) => match rustix::fs::openat(&dir, name, flags, Mode::empty()) {
            Ok(found) => Ok(found),
            // A dangling link. Creating the file that it names would follow the link unchecked.
            Err(Errno::NOENT) => refused("a symbolic link to a file that is not there"),
            Err(error) => Err(error.into()),
        },
        (false, true) => refused("a symbolic link in a directory that other users can change"),
        (false, false) if !is_trusted(stat.st_uid) => {
            refused("a file of another user in a directory that other users can change")
        }
        (false, false) if is_regular(&stat) && stat.st_nlink != 1 => {
            refused("a file with several names in a directory that other users can change")
        }
        (false, false) => Ok(found),
    }
}

/// Returns whether only root and the caller can change this directory.
fn is_closed(dir: &Stat) -> bool {
    is_trusted(dir.st_uid) && dir.st_mode & WRITABLE == 0
}

fn is_trusted(user: u32) -> bool {
    user == 0 || user == rustix::process::geteuid().as_raw()
}

fn is_regular(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
}

fn by_descriptor(found: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", found.as_raw_fd())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Creates a directory that other users can change, with a file in it.
    fn open_dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
        fs::write(dir.path().join("victim"), "victim").unwrap();
        dir
    }

    #[test]
    fn links_in_a_directory_of_all_users_are_refused() {
        let dir = open_dir();
        let at = |name: &str| dir.path().join(name);
        symlink(at("victim"), at("symbolic")).unwrap();
        symlink(at("missing"), at("dangling")).unwrap();
        for how in [OutputFile::Append, OutputFile::Replace] {
            for name in ["symbolic", "dangling"] {
                let error = how.open(&at(name)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{name}");
            }
        }
        assert!(!at("missing").exists());
        fs::hard_link(at("victim"), at("hard")).unwrap();
        let error = OutputFile::Append.open(&at("hard")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert_eq!(fs::read(at("victim")).unwrap(), b"victim");
    }

    #[test]
    fn files_and_devices_are_written() {
        let dir = open_dir();
        let at = |name: &str| dir.path().join(name);
        for (how, expected) in [
            (OutputFile::Append, "victim+"),
            (OutputFile::Append, "victim++"),
            (OutputFile::Replace, "+"),
        ] {
            how.open(&at("victim")).unwrap().write_all(b"+").unwrap();
            assert_eq!(fs::read_to_string(at("victim")).unwrap(), expected);
        }
        OutputFile::Replace.open(&at("new")).unwrap();
        assert_eq!(fs::read(at("new")).unwrap(), b"");
        OutputFile::Append.open(Path::new("/dev/null")).unwrap();
        let error = OutputFile::Append.open(dir.path()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::IsADirectory);
    }

    #[test]
    fn links_in_a_directory_of_the_caller_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "").unwrap();
        symlink("file", at("link")).unwrap();
        let mut file = OutputFile::Append.open(&at("link")).unwrap();
        file.write_all(b"x").unwrap();
        assert_eq!(fs::read(at("file")).unwrap(), b"x");
        // A link by descriptor, as /dev/stderr is.
        let name = by_descriptor(&file.into());
        assert!(OutputFile::Append.open(Path::new(&name)).is_err(), "closed");
        let file = File::options().append(true).open(at("file")).unwrap();
        let file = OwnedFd::from(file);
        OutputFile::Append
            .open(Path::new(&by_descriptor(&file)))
            .unwrap();
    }
}
