//! A host tree as a model.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use forerun_vfs::{Device, FileType, Timestamp};

use super::{ModelNode, TreeModel, hash_all};

impl TreeModel {
    /// Reads the tree below a host directory. Follows no links out of it.
    pub fn of_host(root: &Path) -> io::Result<Self> {
        let mut model = Self::default();
        let mut ids: BTreeMap<(u64, u64), Vec<Vec<u8>>> = BTreeMap::new();
        let mut pending = vec![Vec::new()];
        while let Some(path) = pending.pop() {
            let host = root.join(std::ffi::OsStr::from_bytes(&path));
            let metadata = fs::symlink_metadata(&host)?;
            let node = host_node(&host, &metadata)?;
            if node.kind == FileType::Directory {
                for entry in fs::read_dir(&host)? {
                    let mut child = path.clone();
                    if !child.is_empty() {
                        child.push(b'/');
                    }
                    child.extend(entry?.file_name().into_vec());
                    pending.push(child);
                }
            } else {
                let id = (metadata.dev(), metadata.ino());
                ids.entry(id).or_default().push(path.clone());
            }
            model.nodes.insert(path, node);
        }
        model.group_links(ids);
        Ok(model)
    }
}

fn host_node(host: &Path, metadata: &fs::Metadata) -> io::Result<ModelNode> {
    let kind = kind_of(metadata.file_type());
    let device = match kind {
        FileType::BlockDevice | FileType::CharDevice => Device {
            major: rustix::fs::major(metadata.rdev()),
            minor: rustix::fs::minor(metadata.rdev()),
        },
        _ => Device::default(),
    };
    let (size, content) = match kind {
        FileType::Regular => {
            // In a mount under test, the length may differ from `stat`'s.
            let (size, hash) = hash_all(File::open(host)?)?;
            (size, Some(hash))
        }
        _ => (0, None),
    };
    let target = match kind {
        FileType::Symlink => Some(fs::read_link(host)?.into_os_string().into_vec()),
        _ => None,
    };
    Ok(ModelNode {
        kind,
        mode: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0),
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: Timestamp {
            seconds: metadata.mtime(),
            nanoseconds: u32::try_from(metadata.mtime_nsec()).unwrap_or(0),
        },
        size,
        content,
        target,
        device,
        linked_to: None,
    })
}

fn kind_of(kind: fs::FileType) -> FileType {
    if kind.is_dir() {
        FileType::Directory
    } else if kind.is_symlink() {
        FileType::Symlink
    } else if kind.is_block_device() {
        FileType::BlockDevice
    } else if kind.is_char_device() {
        FileType::CharDevice
    } else if kind.is_fifo() {
        FileType::Fifo
    } else if kind.is_socket() {
        FileType::Socket
    } else {
        FileType::Regular
    }
}
