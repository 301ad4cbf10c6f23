//! Extracts the image, or files that match a pattern, into a directory.
//!
//! Every directory is opened beneath the target directory without following links, so neither links
//! in the image nor existing links can redirect it elsewhere. Files belong to the user and lose
//! set-user-ID and set-group-ID bits; devices are left out. Only `user.` extended attributes are
//! set: the others grant rights or need privilege.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use forerun_sys::beneath::open_beneath;
use forerun_vfs::{FileSystem, FileType, Limits, Metadata, NodeId, Timestamp, Walk, WalkEntry};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, XattrFlags};
use rustix::io::Errno;

use crate::contents::Contents;
use crate::failure::Failure;
use crate::pattern;

/// Bytes per read and write.
const PIECE: u32 = 1 << 20;
/// Maximum number of files with hard links to remember. Further names become copies.
const MAX_LINKED: usize = 1 << 16;

/// A directory whose permissions and times are set when the walk leaves it.
struct Open {
    node: NodeId,
    path: Vec<u8>,
    metadata: Metadata,
}

pub struct Extraction<'e> {
    contents: &'e Contents,
    root: OwnedFd,
    pattern: Option<&'e OsStr>,
    /// The first path of each file with several hard links.
    linked: HashMap<NodeId, PathBuf>,
    /// The directories from the root to the current path.
    open: Vec<Open>,
    files: u64,
    /// Paths left out, each with the reason.
    pub left_out: Vec<String>,
}

impl<'e> Extraction<'e> {
    pub fn new(
        contents: &'e Contents,
        into: &Path,
        pattern: Option<&'e OsStr>,
    ) -> Result<Self, Failure> {
        let failed = |error: Errno| Failure::io(&into.display().to_string(), &error.into());
        match rustix::fs::mkdir(into, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, into, flags, Mode::empty()).map_err(failed)?;
        Ok(Self {
            contents,
            root,
            pattern,
            linked: HashMap::new(),
            open: Vec::new(),
            files: 0,
            left_out: Vec::new(),
        })
    }

    /// Extracts, and calls `each` with the path of each node. Returns the number of nodes. After an
    /// error the files extracted so far stay.
    pub fn run(&mut self, each: &mut dyn FnMut(&Path)) -> Result<u64, Failure> {
        let driver = self.contents.driver();
        let limits = Limits::default();
        for entry in Walk::new(driver, driver.root(), &limits) {
            let entry = entry.map_err(|error| Failure::new(error.to_string()))?;
            self.leave(&entry.path)?;
            let path = Path::new(OsStr::from_bytes(&entry.path)).to_path_buf();
            let failed = |error: &dyn std::fmt::Display| {
                Failure::new(format!("{}: {error}", path.display()))
            };
            let metadata = entry.metadata.clone().map_err(|error| failed(&error))?;
            let matches = self
                .pattern
                .is_none_or(|wanted| pattern::matches(wanted.as_bytes(), &entry.path));
            if metadata.is_dir() {
                self.open.push(Open {
                    node: entry.node,
                    path: entry.path.clone(),
                    metadata: metadata.clone(),
                });
            }
            if !matches {
                continue;
            }
            self.make_above(&entry.path)?;
            if entry.path.is_empty() {
                continue;
            }
            self.make(&entry, &metadata, &path)?;
            self.files += 1;
            each(&path);
        }
        self.leave(b"\0")?;
        Ok(self.files)
    }

    fn make_above(&self, path: &[u8]) -> Result<(), Failure> {
        for open in &self.open {
            if open.path.is_empty() || open.path.as_slice() == path {
                continue;
            }
            self.make_directory(Path::new(OsStr::from_bytes(&open.path)))?;
        }
        Ok(())
    }

    fn make(&mut self, entry: &WalkEntry, metadata: &Metadata, path: &Path) -> Result<(), Failure> {
        let failed = |error: Errno| Failure::io(&path.display().to_string(), &error.into());
        match metadata.kind {
            FileType::Directory => return self.make_directory(path),
            FileType::Regular => return self.make_file(entry.node, metadata, path),
            FileType::Symlink => {
                let target = self.contents.driver().read_link(entry.node)?;
                let (dir, name) = self.place(path).map_err(failed)?;
                again(&dir, name, || rustix::fs::symlinkat(&*target, &dir, name))
                    .map_err(failed)?;
                let times = times(metadata.mtime);
                let _links_may_have_none =
                    rustix::fs::utimensat(&dir, name, &times, AtFlags::SYMLINK_NOFOLLOW);
            }
            FileType::Fifo => {
                let (dir, name) = self.place(path).map_err(failed)?;
                let make = || {
                    let kind = rustix::fs::FileType::Fifo;
                    rustix::fs::mknodat(&dir, name, kind, mode(metadata), 0)
                };
                again(&dir, name, make).map_err(failed)?;
            }
            FileType::BlockDevice | FileType::CharDevice | FileType::Socket => {
                let what = metadata.kind.name().replace('_', " ");
                self.left_out.push(format!("{}: {what}", path.display()));
            }
        }
        Ok(())
    }

    fn make_directory(&self, path: &Path) -> Result<(), Failure> {
        let made = self.place(path).and_then(|(dir, name)| {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            if rustix::fs::openat(&dir, name, flags, Mode::empty()).is_ok() {
                return Ok(());
            }
            again(&dir, name, || rustix::fs::mkdirat(&dir, name, Mode::RWXU))
        });
        made.map_err(|error| Failure::io(&path.display().to_string(), &error.into()))
    }

    fn make_file(&mut self, node: NodeId, metadata: &Metadata, path: &Path) -> Result<(), Failure> {
        let failed = |error: Errno| Failure::io(&path.display().to_string(), &error.into());
        let (dir, name) = self.place(path).map_err(failed)?;
        if let Some(first) = self.linked.get(&node) {
            let (from, old) = self.place(first).map_err(failed)?;
            let link = || rustix::fs::linkat(&from, old, &dir, name, AtFlags::empty());
            if again(&dir, name, link).is_ok() {
                return Ok(());
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode_of_new = Mode::RUSR | Mode::WUSR;
        let open = || rustix::fs::openat(&dir, name, flags, mode_of_new);
        let file = again(&dir, name, open).map_err(failed)?;
        let mut file = File::from(file);
        let mut at = 0;
        let mut piece = Vec::new();
        while at < metadata.size {
            piece.clear();
            let read = self.contents.read(node, at, PIECE, &mut piece);
            read.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
            if piece.is_empty() {
                return Err(Failure::new(format!(
                    "{}: shorter than its size",
                    path.display()
                )));
            }
            file.write_all(&piece)
                .map_err(|error| Failure::io(&path.display().to_string(), &error))?;
            at += forerun_io::u64_from(piece.len());
        }
        self.set_attributes(&file, node, path)?;
        rustix::fs::fchmod(&file, mode(metadata)).map_err(failed)?;
        rustix::fs::futimens(&file, &times(metadata.mtime)).map_err(failed)?;
        if metadata.nlink > 1 && self.linked.len() < MAX_LINKED {
            self.linked.insert(node, path.to_path_buf());
        }
        Ok(())
    }

    /// Sets `user.` extended attributes, or none if the filesystem does not support them.
    fn set_attributes(
        &self,
        fd: impl AsFd + Copy,
        node: NodeId,
        path: &Path,
    ) -> Result<(), Failure> {
        let mut first_error = None;
        let mut set = |name: &[u8], value: &[u8]| {
            if first_error.is_some() || !name.starts_with(b"user.") {
                return;
            }
            match rustix::fs::fsetxattr(fd, name, value, XattrFlags::empty()) {
                Ok(()) | Err(Errno::OPNOTSUPP) => {}
                Err(error) => first_error = Some(error),
            }
        };
        let read = self.contents.driver().xattrs(node, &mut set);
        read.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        let failed = |error: Errno| {
            let of = format!("{}: extended attributes", path.display());
            Failure::io(&of, &error.into())
        };
        first_error.map_or(Ok(()), |error| Err(failed(error)))
    }

    /// Sets the permissions and times of directories that the walk has finished. They stay writable
    /// until then, because files are created in them.
    fn leave(&mut self, next: &[u8]) -> Result<(), Failure> {
        while let Some(last) = self.open.last() {
            let rest = next.strip_prefix(last.path.as_slice());
            let is_inside = match rest {
                Some(rest) => last.path.is_empty() && next != b"\0" || rest.first() == Some(&b'/'),
                None => false,
            };
            if is_inside {
                break;
            }
            let Some(Open {
                node,
                path,
                metadata,
            }) = self.open.pop()
            else {
                break;
            };
            let path = Path::new(OsStr::from_bytes(&path));
            let opened = open_beneath(&self.root, path, OFlags::RDONLY | OFlags::DIRECTORY);
            let failed = |error: Errno| Failure::io(&path.display().to_string(), &error.into());
            let dir = match opened {
                // The pattern matched nothing there, so the directory was not created.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                opened => opened.map_err(failed)?,
            };
            // An earlier extraction may have made the directory read-only.
            rustix::fs::fchmod(&dir, Mode::RWXU).map_err(failed)?;
            self.set_attributes(&dir, node, path)?;
            rustix::fs::fchmod(&dir, mode(&metadata)).map_err(failed)?;
            rustix::fs::futimens(&dir, &times(metadata.mtime)).map_err(failed)?;
        }
        Ok(())
    }

    /// Opens the parent directory of a path. Returns it and the file name.
    fn place<'p>(&self, path: &'p Path) -> Result<(OwnedFd, &'p OsStr), Errno> {
        let parent = path.parent().unwrap_or(Path::new(""));
        let dir = open_beneath(&self.root, parent, OFlags::PATH | OFlags::DIRECTORY)?;
        Ok((dir, path.file_name().ok_or(Errno::INVAL)?))
    }
}

/// Creates a node, replacing an existing one.
fn again<T>(
    dir: &OwnedFd,
    name: &OsStr,
    mut make: impl FnMut() -> Result<T, Errno>,
) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
            make()
        }
        made => made,
    }
}

/// Returns the permissions without set-user-ID and set-group-ID.
fn mode(metadata: &Metadata) -> Mode {
    Mode::from_raw_mode((metadata.mode & 0o1777).into())
}

fn times(mtime: Timestamp) -> Timestamps {
    let time = Timespec {
        tv_sec: mtime.seconds,
        tv_nsec: mtime.nanoseconds.into(),
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}

/// Makes the directories of an extracted tree writable for the owner, so that the tree can be
/// removed.
pub fn open_up(tree: &Path) {
    let mut left = vec![tree.to_path_buf()];
    while let Some(dir) = left.pop() {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let _removal_reports_it = rustix::fs::chmodat(CWD, &dir, Mode::RWXU, AtFlags::empty());
        let Ok(opened) = rustix::fs::openat(CWD, &dir, flags, Mode::empty()) else {
            continue;
        };
        let Ok(entries) = rustix::fs::Dir::new(opened) else {
            continue;
        };
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            let is_directory = entry.file_type() == rustix::fs::FileType::Directory;
            if is_directory && name != b"." && name != b".." {
                left.push(dir.join(OsStr::from_bytes(name)));
            }
        }
    }
}
