//! A tree from a directory of the host.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use forerun_vfs::{Device, Timestamp};

use super::{BuildError, Content, NewNode, NodeIndex, NodeKind, Patterns, Tree};

/// What is taken of a directory.
#[derive(Clone, Debug, Default)]
pub struct ScanOptions {
    /// Left out, with everything below.
    pub exclude: Patterns,
    /// Whether extended attributes are read.
    pub xattrs: bool,
    /// Files left out by device and inode number: the image that is being written, for one.
    pub skip: Vec<(u64, u64)>,
    /// Later times of modification are set to this, in seconds since the epoch:
    /// `SOURCE_DATE_EPOCH`.
    pub latest: Option<i64>,
}

/// Reads the tree below `path`. Symbolic links are taken as links, several names of one file as
/// hard links. Contents stay where they are until the image is written.
///
/// # Errors
/// [`BuildError::Host`] with the path that could not be read; also where `path` is no directory.
pub fn scan(path: &Path, options: &ScanOptions) -> Result<Tree, BuildError> {
    let metadata = fs::metadata(path).map_err(|error| host(path, error))?;
    if !metadata.is_dir() {
        return Err(host(path, io::ErrorKind::NotADirectory.into()));
    }
    let mut scan = Scan {
        options,
        tree: Tree::default(),
        links: HashMap::new(),
    };
    let root = scan.node(
        path,
        &metadata,
        NodeKind::Directory(std::collections::BTreeMap::new()),
    )?;
    *scan.tree.node_mut(Tree::ROOT) = root;
    let mut pending = vec![(path.to_path_buf(), Vec::new(), Tree::ROOT)];
    while let Some((host_dir, dir_path, dir)) = pending.pop() {
        scan.directory(&host_dir, &dir_path, dir, &mut pending)?;
    }
    scan.tree.shrink_to_fit();
    Ok(scan.tree)
}

struct Scan<'o> {
    options: &'o ScanOptions,
    tree: Tree,
    /// Files with several names that were met.
    links: HashMap<(u64, u64), NodeIndex>,
}

/// Directories still to be read: on the host, in the tree as a path and as a node.
type Pending = Vec<(PathBuf, Vec<u8>, NodeIndex)>;

impl Scan<'_> {
    fn directory(
        &mut self,
        host_dir: &Path,
        dir_path: &[u8],
        dir: NodeIndex,
        pending: &mut Pending,
    ) -> Result<(), BuildError> {
        for entry in fs::read_dir(host_dir).map_err(|error| host(host_dir, error))? {
            let name = entry.map_err(|error| host(host_dir, error))?.file_name();
            let path = join(dir_path, name.as_bytes());
            if self.options.exclude.matches(&path) {
                continue;
            }
            let host_path = host_dir.join(&name);
            let metadata =
                fs::symlink_metadata(&host_path).map_err(|error| host(&host_path, error))?;
            let id = (metadata.dev(), metadata.ino());
            if self.options.skip.contains(&id) {
                continue;
            }
            if let Some(&first) = self.links.get(&id) {
                self.tree.link(dir, name.as_bytes(), first)?;
                continue;
            }
            let kind = kind(&host_path, &metadata)?;
            let is_dir = matches!(kind, NodeKind::Directory(_));
            let node = self.node(&host_path, &metadata, kind)?;
            let index = self.tree.add(dir, name.as_bytes(), node)?;
            if is_dir {
                pending.push((host_path, path, index));
            } else if metadata.nlink() > 1 {
                self.links.insert(id, index);
            }
        }
        Ok(())
    }

    fn node(
        &self,
        path: &Path,
        metadata: &Metadata,
        kind: NodeKind,
    ) -> Result<NewNode, BuildError> {
        let mode = u16::try_from(metadata.mode() & 0o7777).unwrap_or(0o7777);
        let mut node = NewNode::new(kind, mode);
        (node.uid, node.gid) = (metadata.uid(), metadata.gid());
        let nanoseconds = u32::try_from(metadata.mtime_nsec()).unwrap_or(0);
        node.mtime = Timestamp {
            seconds: metadata.mtime(),
            nanoseconds,
        };
        if let Some(latest) = self
            .options
            .latest
            .filter(|&latest| metadata.mtime() >= latest)
        {
            node.mtime = Timestamp {
                seconds: latest,
                nanoseconds: 0,
            };
        }
        if self.options.xattrs {
            for name in xattr::list(path).map_err(|error| host(path, error))? {
                // An attribute that went away meanwhile is none.
                if let Some(value) = xattr::get(path, &name).map_err(|error| host(path, error))? {
                    node.xattrs.insert(name.into_vec(), value);
                }
            }
        }
        Ok(node)
    }
}

fn kind(path: &Path, metadata: &Metadata) -> Result<NodeKind, BuildError> {
    let file_type = metadata.file_type();
    Ok(if file_type.is_dir() {
        NodeKind::Directory(std::collections::BTreeMap::new())
    } else if file_type.is_file() {
        NodeKind::File {
            len: metadata.len(),
            content: Content::Host(path.to_path_buf()),
        }
    } else if file_type.is_symlink() {
        let target = fs::read_link(path).map_err(|error| host(path, error))?;
        NodeKind::Symlink(target.into_os_string().into_vec())
    } else if file_type.is_block_device() {
        NodeKind::BlockDevice(device(metadata))
    } else if file_type.is_char_device() {
        NodeKind::CharDevice(device(metadata))
    } else if file_type.is_fifo() {
        NodeKind::Fifo
    } else {
        NodeKind::Socket
    })
}

fn device(metadata: &Metadata) -> Device {
    let rdev = metadata.rdev();
    Device {
        major: rustix::fs::major(rdev),
        minor: rustix::fs::minor(rdev),
    }
}

fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() {
        name.to_vec()
    } else {
        [dir, name].join(&b'/')
    }
}

fn host(path: &Path, source: io::Error) -> BuildError {
    BuildError::Host {
        path: path.to_path_buf(),
        source,
    }
}
