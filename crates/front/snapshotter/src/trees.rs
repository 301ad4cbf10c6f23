//! Measures and deletes directory trees written by containers.
//!
//! A container chooses the depth of its tree, so nothing here recurses or builds long paths. The
//! tree can change while it is read, so every step uses descriptors and follows no symbolic links.

use std::collections::HashSet;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::record::Usage;

/// Maximum depth that is counted: each level needs a descriptor.
const MAX_DEPTH: usize = 256;
/// Maximum number of hard-linked files to remember. Further files count once per name.
const MAX_LINKED: usize = 1 << 20;

pub fn usage(dir: &Path) -> io::Result<Usage> {
    let root = open(CWD, dir)?;
    let (mut usage, mut linked) = (Usage::default(), HashSet::new());
    let mut add = |stat: &rustix::fs::Stat| {
        let is_dir = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
        let is_linked = stat.st_nlink > 1 && !is_dir;
        let is_known = is_linked && linked.contains(&(stat.st_dev, stat.st_ino));
        if is_linked && linked.len() < MAX_LINKED {
            linked.insert((stat.st_dev, stat.st_ino));
        }
        if !is_known {
            let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
            usage.bytes += blocks * 512;
            usage.inodes += 1;
        }
        is_dir
    };
    add(&rustix::fs::fstat(&root)?);
    let mut stack = vec![Dir::new(root)?];
    while let Some(dir) = stack.last_mut() {
        let Some(entry) = dir.read().transpose()? else {
            stack.pop();
            continue;
        };
        let name = entry.file_name();
        if is_dot(name.to_bytes()) {
            continue;
        }
        let at = dir.fd()?;
        // A file deleted in the meantime takes no space.
        let stat = match rustix::fs::statat(at, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            stat => stat?,
        };
        if add(&stat) && stack.len() < MAX_DEPTH {
            let inner = match stack.last().map(|dir| open(dir.fd()?, name)) {
                Some(Ok(inner)) => inner,
                _ => continue,
            };
            stack.push(Dir::new(inner)?);
        }
    }
    Ok(usage)
}

/// Deletes everything in a directory. Subdirectories of an entry move up into `trash` first, so the
/// work never goes deeper than two levels.
pub fn empty(trash: &Path) -> io::Result<()> {
    let trash = open(CWD, trash)?;
    loop {
        let (mut left, mut removed, mut failed) = (false, false, None);
        for name in names(trash.as_fd())? {
            left = true;
            match remove(trash.as_fd(), &name) {
                Ok(()) => removed = true,
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            // No entry could be removed in this round.
            Some(error) if !removed => return Err(error.into()),
            _ if !left => return Ok(()),
            _ => {}
        }
    }
}

pub fn discard(dir: &Path, trash: &Path) -> io::Result<()> {
    let trash = open(CWD, trash)?;
    let name = CString::new(dir.as_os_str().as_bytes())?;
    move_in(CWD, &name, trash.as_fd()).map_err(Into::into)
}

/// Deletes an entry of the trash. Its subdirectories become entries of the trash themselves.
fn remove(trash: BorrowedFd<'_>, name: &CString) -> rustix::io::Result<()> {
    let dir = match open(trash, name) {
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return rustix::fs::unlinkat(trash, name, AtFlags::empty());
        }
        dir => dir?,
    };
    let inside = names(dir.as_fd())?;
    for inner in &inside {
        match rustix::fs::unlinkat(&dir, inner, AtFlags::empty()) {
            Err(Errno::ISDIR) => move_up(dir.as_fd(), inner, trash)?,
            done => done?,
        }
    }
    match rustix::fs::unlinkat(trash, name, AtFlags::REMOVEDIR) {
        // Only a part of the names was read; the caller tries again.
        Err(Errno::NOTEMPTY) if !inside.is_empty() => Ok(()),
        done => done,
    }
}

/// Removes an empty directory, or moves it into the trash.
fn move_up(dir: BorrowedFd<'_>, name: &CString, trash: BorrowedFd<'_>) -> rustix::io::Result<()> {
    if rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR).is_ok() {
        return Ok(());
    }
    move_in(dir, name, trash)
}

/// Moves a directory into the trash, under a name that no earlier process has left there.
fn move_in(dir: BorrowedFd<'_>, name: &CString, trash: BorrowedFd<'_>) -> rustix::io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        let new = format!("d{}", NEXT.fetch_add(1, Ordering::Relaxed));
        match rustix::fs::renameat_with(dir, name, trash, new, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => {}
            done => return done,
        }
    }
}

/// Returns the names in a directory, at most `MOST`.
fn names(dir: BorrowedFd<'_>) -> rustix::io::Result<Vec<CString>> {
    const MOST: usize = 4096;
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        if !is_dot(entry.file_name().to_bytes()) {
            names.push(entry.file_name().to_owned());
        }
        if names.len() == MOST {
            break;
        }
    }
    Ok(names)
}

fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

fn open(at: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, path, flags, Mode::empty())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;
    use std::os::unix::fs::symlink;

    use forerun_testkit::memory_dir;

    use super::*;

    const MEMORY: u64 = 64 << 20;

    #[test]
    fn hard_links_count_once_and_links_are_not_followed() {
        let dir = memory_dir("usage", MEMORY);
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("tree/sub")).unwrap();
        fs::create_dir(at("outside")).unwrap();
        fs::write(at("outside/large"), vec![1; 1 << 20]).unwrap();
        fs::write(at("tree/a"), vec![1; 64 << 10]).unwrap();
        fs::hard_link(at("tree/a"), at("tree/sub/b")).unwrap();
        symlink(at("outside"), at("tree/link")).unwrap();
        let counted = usage(&at("tree")).unwrap();
        assert_eq!(counted.inodes, 4);
        assert!((64 << 10..128 << 10).contains(&counted.bytes));
    }

    #[test]
    fn a_tree_is_removed_however_deep_and_wide_and_nothing_beside_it() {
        let dir = memory_dir("trash", MEMORY);
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("trash/s1/wide")).unwrap();
        fs::create_dir_all(at("trash/d0/old")).unwrap();
        fs::create_dir(at("kept")).unwrap();
        fs::write(at("kept/file"), "x").unwrap();
        symlink(at("kept"), at("trash/s1/link")).unwrap();
        for number in 0..5000 {
            fs::write(at(&format!("trash/s1/wide/{number}")), "").unwrap();
        }
        // Deeper than PATH_MAX and than the limit on open files.
        let mut deep = open(CWD, at("trash/s1")).unwrap();
        for _ in 0..1200 {
            rustix::fs::mkdirat(&deep, "directory", Mode::RWXU).unwrap();
            deep = open(&deep, "directory").unwrap();
        }
        drop(deep);
        assert!(usage(&at("trash")).unwrap().inodes > 5000);
        empty(&at("trash")).unwrap();
        assert_eq!(fs::read_dir(at("trash")).unwrap().count(), 0);
        assert!(at("kept/file").exists());
    }
}
