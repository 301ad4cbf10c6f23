//! Opens files below a directory, even while other processes rename files there.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};
use std::sync::LazyLock;

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// Opens `path` below `dir`. No component may be a symbolic link, including the last, so the file
/// lies below the directory even while another process moves directories. A path without components
/// is the directory itself.
///
/// # Errors
/// `ELOOP` or `ENOTDIR` for a symbolic link, `EXDEV` for a path that leaves the directory, and the
/// errors of openat(2).
pub fn open_beneath(dir: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    // No C library has openat2(2), so pseudo would not learn which directory the new descriptor is.
    if is_preloaded() {
        return by_name(dir, path, flags);
    }
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(&dir, name, flags, Mode::empty(), resolve) {
        // Kernels before 5.6 lack openat2(2), some sandboxes refuse it, and it does not accept some
        // long paths. The path is then followed name by name.
        Err(Errno::NOSYS | Errno::PERM | Errno::NAMETOOLONG) => by_name(dir, path, flags),
        opened => opened,
    }
}

/// Returns whether a preloaded library may intercept calls of the C library.
fn is_preloaded() -> bool {
    static IS_PRELOADED: LazyLock<bool> =
        LazyLock::new(|| std::env::var_os("LD_PRELOAD").is_some_and(|names| !names.is_empty()));
    *IS_PRELOADED
}

fn by_name(dir: impl AsFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let through = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |dir: &OwnedFd, name: &OsStr, flags| {
        rustix::fs::openat(dir, name.as_bytes(), flags, Mode::empty())
    };
    let mut at = rustix::fs::openat(dir, ".", through, Mode::empty())?;
    let mut names = path.components().peekable();
    while let Some(component) = names.next() {
        let name = match component {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            _ => return Err(Errno::XDEV),
        };
        match names.peek() {
            Some(_) => at = open(&at, name, through)?,
            None => return open(&at, name, flags),
        }
    }
    open(&at, OsStr::new("."), flags)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    /// Opens `path` by openat2(2) and name by name. Both must give the same result.
    fn both(dir: &OwnedFd, path: &str) -> Result<String, Errno> {
        let read = |file: OwnedFd| {
            let mut text = String::new();
            let _a_directory_has_no_text = fs::File::from(file).read_to_string(&mut text);
            text
        };
        let one = open_beneath(dir, Path::new(path), OFlags::RDONLY).map(read);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let other = by_name(dir, Path::new(path), flags).map(read);
        assert_eq!(one.is_ok(), other.is_ok(), "{path}: {one:?} {other:?}");
        one
    }

    #[test]
    fn links_and_parents_are_refused_in_every_place() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().join("root");
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "inside").unwrap();
        fs::write(temp.path().join("secret"), "outside").unwrap();
        symlink("../../secret", root.join("a/link")).unwrap();
        symlink("..", root.join("up")).unwrap();
        let dir = OwnedFd::from(fs::File::open(&root).unwrap());
        assert_eq!(both(&dir, "a/b/file").unwrap(), "inside");
        assert_eq!(both(&dir, "./a/./b/file").unwrap(), "inside");
        assert_eq!(both(&dir, "").unwrap(), "");
        for path in ["a/link", "up/secret", "../secret", "/etc/passwd", "up"] {
            assert!(both(&dir, path).is_err(), "{path}");
        }
        assert_eq!(both(&dir, "a/b/missing"), Err(Errno::NOENT));
    }

    #[test]
    fn a_path_longer_than_one_call_takes_is_followed() {
        let temp = tempfile::tempdir().unwrap();
        let root = OwnedFd::from(fs::File::open(temp.path()).unwrap());
        let name = "n".repeat(250);
        let mut path = std::path::PathBuf::new();
        let mut at = rustix::io::dup(&root).unwrap();
        for _ in 0..20 {
            rustix::fs::mkdirat(&at, &name, Mode::RWXU).unwrap();
            path.push(&name);
            at = rustix::fs::openat(&at, &name, OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        assert!(path.as_os_str().len() > 4096);
        let opened = open_beneath(&root, &path, OFlags::DIRECTORY).unwrap();
        let inode = |fd: &OwnedFd| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(&opened), inode(&at));
    }
}
