//! Builds a tree from a directory of the host.
//!
//! Each directory is opened below the given one, through no symbolic link, and its entries are read
//! through its descriptor. So a process that renames directories during the scan can make the scan
//! fail, but cannot redirect it.

mod sources;

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use forerun_vfs::{ACL_ACCESS, Device, Timestamp};
use rustix::fs::{AtFlags, Dir, FileType, Stat};
use rustix::io::Errno;

use super::acl::without_acl;
use super::host::{HostFile, Identity, Root};
use super::{BuildError, Content, NewNode, NodeIndex, NodeKind, Patterns, Tree};

pub use sources::{NamedSource, scan_sources};

/// Selects the files of a directory.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// Paths that are excluded, with everything below them.
    pub exclude: Patterns,
    /// Read extended attributes. Otherwise files get the modes that they have without access
    /// control lists.
    pub xattrs: bool,
    /// Files to exclude, by device and inode number, such as the image being written.
    pub skip: Vec<(u64, u64)>,
    /// Upper bound of modification times, in seconds since the epoch: `SOURCE_DATE_EPOCH`.
    pub latest: Option<i64>,
    pub other_filesystems: OtherFilesystems,
}

/// The treatment of directories on other filesystems.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OtherFilesystems {
    #[default]
    Taken,
    Empty,
    LeftOut,
}

/// Reads the tree below `path`. Symbolic links are not followed, and several names of one file
/// become hard links. Contents are read only when the image is written. Fails with the path that
/// could not be read, or if `path` is not a directory.
pub fn scan(path: &Path, options: &ScanOptions) -> Result<Tree, BuildError> {
    scan_with(path, options, None)
}

/// Like [`scan`], but skips files that cannot be opened, and the contents of directories that
/// cannot be read. Passes each error to `skipped`. Files are opened again when the image is
/// written; [`drop_unreadable`](super::drop_unreadable) handles those that fail only then.
pub fn scan_readable(
    path: &Path,
    options: &ScanOptions,
    skipped: &mut dyn FnMut(BuildError),
) -> Result<Tree, BuildError> {
    scan_with(path, options, Some(skipped))
}

fn scan_with(
    path: &Path,
    options: &ScanOptions,
    skipped: Option<&mut dyn FnMut(BuildError)>,
) -> Result<Tree, BuildError> {
    let root = Root::open(path).map_err(|error| host(path, error))?;
    let mut scan = Scan::new(options, root, skipped);
    let stat = scan.root.stat().map_err(|error| host(path, error))?;
    scan.device = stat.st_dev;
    let top = Pending {
        path: PathBuf::new(),
        node: Tree::ROOT,
        seen: Identity::of(&stat),
    };
    let dir = scan.open(&top)?;
    let kind = NodeKind::Directory(BTreeMap::new());
    let node = scan.node(&dir, Path::new(""), &stat, kind)?;
    *scan.tree.node_mut(Tree::ROOT) = node;
    scan.descend(vec![top])?;
    scan.tree.shrink_to_fit();
    Ok(scan.tree)
}

struct Scan<'o, 's> {
    options: &'o ScanOptions,
    root: Arc<Root>,
    /// Path of `root` in the tree, for the patterns.
    prefix: PathBuf,
    tree: Tree,
    /// Files with several names that were found so far.
    links: HashMap<Identity, NodeIndex>,
    /// A file may be found under the same name twice, because a source may be given twice.
    is_repeated: bool,
    /// The device of the root.
    device: u64,
    /// Receives errors of unreadable files; without it, such errors end the scan.
    skipped: Option<&'s mut dyn FnMut(BuildError)>,
}

/// A directory to read.
struct Pending {
    /// Path below the root of the scan.
    path: PathBuf,
    node: NodeIndex,
    seen: Identity,
}

impl<'o, 's> Scan<'o, 's> {
    fn new(
        options: &'o ScanOptions,
        root: Root,
        skipped: Option<&'s mut dyn FnMut(BuildError)>,
    ) -> Self {
        Self {
            options,
            root: Arc::new(root),
            prefix: PathBuf::new(),
            tree: Tree::default(),
            links: HashMap::new(),
            is_repeated: false,
            device: 0,
            skipped,
        }
    }

    /// Reads these directories and everything below them.
    fn descend(&mut self, mut pending: Vec<Pending>) -> Result<(), BuildError> {
        while let Some(dir) = pending.pop() {
            let read = self.directory(&dir, &mut pending);
            self.or_skip(read)?;
        }
        Ok(())
    }

    /// Skips an unreadable file, if the caller wants that.
    fn or_skip(&mut self, read: Result<(), BuildError>) -> Result<(), BuildError> {
        match (read, &mut self.skipped) {
            (Err(error @ BuildError::Host { .. }), Some(skipped)) => {
                skipped(error);
                Ok(())
            }
            (read, _) => read,
        }
    }

    fn open(&self, dir: &Pending) -> Result<OwnedFd, BuildError> {
        let opened = self.root.open_dir(&dir.path, dir.seen);
        opened.map_err(|error| self.failed(&dir.path, error))
    }

    fn directory(&mut self, at: &Pending, pending: &mut Vec<Pending>) -> Result<(), BuildError> {
        let dir = self.open(at)?;
        let names = names(&dir).map_err(|error| self.failed(&at.path, error))?;
        for name in names {
            let added = self.entry(at, &dir, (&name, name.as_bytes()), pending);
            self.or_skip(added)?;
        }
        Ok(())
    }

    /// Adds one name of a directory, as `new_name` in the tree.
    fn entry(
        &mut self,
        at: &Pending,
        dir: &OwnedFd,
        (name, new_name): (&OsStr, &[u8]),
        pending: &mut Vec<Pending>,
    ) -> Result<(), BuildError> {
        let path = at.path.join(name);
        let in_tree = if self.prefix.as_os_str().is_empty() {
            at.path.join(OsStr::from_bytes(new_name))
        } else {
            self.prefix.join(&path)
        };
        if self.options.exclude.matches(in_tree.as_os_str().as_bytes()) {
            return Ok(());
        }
        let stat = rustix::fs::statat(dir, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(|error| self.failed(&path, error.into()))?;
        let seen = Identity::of(&stat);
        if self.options.skip.contains(&seen.numbers()) {
            return Ok(());
        }
        if let Some(&first) = self.links.get(&seen) {
            return self.tree.link(at.node, new_name, first);
        }
        let kind = self.kind(dir, &path, &stat)?;
        let is_dir = matches!(kind, NodeKind::Directory(_));
        // Compared only for directories, because overlayfs shows files with the devices of its
        // layers.
        let is_elsewhere = is_dir && stat.st_dev != self.device;
        if is_elsewhere && self.options.other_filesystems == OtherFilesystems::LeftOut {
            return Ok(());
        }
        if let (Some(_), NodeKind::File { content, len }) = (&self.skipped, &kind) {
            let opened = content.open(*len);
            opened.map_err(|error| self.failed(&path, error))?;
        }
        let node = self.node(dir, &path, &stat, kind)?;
        let node = self.tree.add(at.node, new_name, node)?;
        if is_elsewhere && self.options.other_filesystems == OtherFilesystems::Empty {
            return Ok(());
        }
        if is_dir {
            pending.push(Pending { path, node, seen });
        } else if stat.st_nlink > 1 || self.is_repeated {
            self.links.insert(seen, node);
        }
        Ok(())
    }

    fn kind(&self, dir: &OwnedFd, path: &Path, stat: &Stat) -> Result<NodeKind, BuildError> {
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => NodeKind::Directory(BTreeMap::new()),
            FileType::RegularFile => {
                let root = Arc::clone(&self.root);
                let file = HostFile::beneath(root, path.to_path_buf(), Identity::of(stat));
                NodeKind::File {
                    len: u64::try_from(stat.st_size).unwrap_or(0),
                    content: Content::Host(file),
                }
            }
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, last_name(path), Vec::new());
                let target = target.map_err(|error| self.failed(path, error.into()))?;
                NodeKind::Symlink(target.into_bytes())
            }
            FileType::BlockDevice => NodeKind::BlockDevice(device(stat)),
            FileType::CharacterDevice => NodeKind::CharDevice(device(stat)),
            FileType::Fifo => NodeKind::Fifo,
            _ => NodeKind::Socket,
        })
    }

    /// Creates a node for the file at `path`, in the open directory `dir`.
    fn node(
        &self,
        dir: &OwnedFd,
        path: &Path,
        stat: &Stat,
        kind: NodeKind,
    ) -> Result<NewNode, BuildError> {
        let mode = u16::try_from(stat.st_mode & 0o7777).unwrap_or(0o7777);
        let mut node = NewNode::new(kind, mode);
        (node.uid, node.gid) = (stat.st_uid, stat.st_gid);
        let seconds = stat.st_mtime;
        node.mtime = match self.options.latest {
            Some(latest) if seconds >= latest => Timestamp {
                seconds: latest,
                nanoseconds: 0,
            },
            _ => Timestamp {
                seconds,
                nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
            },
        };
        let read = match self.options.xattrs {
            true => read_xattrs(dir, last_name(path), &mut node),
            // A symbolic link has no access control list.
            false if matches!(node.kind, NodeKind::Symlink(_)) => Ok(()),
            false => leave_acl(dir, last_name(path), &mut node),
        };
        read.map_err(|error| self.failed(path, error))?;
        Ok(node)
    }

    fn failed(&self, path: &Path, source: io::Error) -> BuildError {
        host(&self.root.join(path), source)
    }
}

/// Returns the names in a directory, in the order of the system.
fn names(dir: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name.to_vec()));
        }
    }
    Ok(names)
}

/// Reads the extended attributes of a name in an open directory. Older kernels have no system call
/// for a directory and a name, so the path goes through the directory's descriptor. The last name
/// is not followed.
fn read_xattrs(dir: &OwnedFd, name: &OsStr, node: &mut NewNode) -> io::Result<()> {
    let path = path_of(dir, name);
    let listed = xattr::list(&path);
    if listed.is_err() && !Path::new(DESCRIPTORS).exists() {
        let text = "extended attributes are read through /proc, which is not mounted";
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    for name in listed? {
        // An attribute that has disappeared since is skipped.
        if let Some(value) = xattr::get(&path, &name)? {
            node.xattrs.insert(name.into_vec(), value);
        }
    }
    Ok(())
}

const DESCRIPTORS: &str = "/proc/self/fd";

fn path_of(dir: &OwnedFd, name: &OsStr) -> PathBuf {
    let dir = Path::new(DESCRIPTORS).join(dir.as_raw_fd().to_string());
    dir.join(name)
}

/// Sets the mode that a file has without its access control list, if attributes are not read.
fn leave_acl(dir: &OwnedFd, name: &OsStr, node: &mut NewNode) -> io::Result<()> {
    let acl = xattr::get(path_of(dir, name), OsStr::from_bytes(ACL_ACCESS));
    match acl {
        Ok(Some(acl)) => node.mode = without_acl(node.mode, &acl),
        // The filesystem has no lists, or the list cannot be read without /proc.
        Ok(None) => {}
        Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::OPNOTSUPP | Errno::NOENT) => {}
            _ => return Err(error),
        },
    }
    Ok(())
}

/// Returns the last name of a path; `.` for a directory itself.
fn last_name(path: &Path) -> &OsStr {
    path.file_name().unwrap_or(OsStr::new("."))
}

fn device(stat: &Stat) -> Device {
    Device {
        major: rustix::fs::major(stat.st_rdev),
        minor: rustix::fs::minor(stat.st_rdev),
    }
}

fn host(path: &Path, source: io::Error) -> BuildError {
    BuildError::Host {
        path: path.to_path_buf(),
        source,
    }
}
