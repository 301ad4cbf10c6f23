//! A tar stream as a model.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use forerun_vfs::{Device, FileType, Timestamp};
use tar::{Archive, Entry, EntryType};

use super::{ModelNode, TreeModel, hash_all};

impl TreeModel {
    /// Reads the tree in a tar stream. Removes a leading `./` from names.
    pub fn of_tar(stream: impl Read) -> io::Result<Self> {
        let mut model = Self::default();
        let mut links = std::collections::BTreeMap::new();
        for entry in Archive::new(stream).entries()? {
            let mut entry = entry?;
            let path = plain_path(&entry.path_bytes());
            let target = entry.link_name_bytes().map(|target| target.into_owned());
            if entry.header().entry_type() == EntryType::Link {
                let first = plain_path(&target.unwrap_or_default());
                let node = model.nodes.get(&first).cloned().ok_or_else(|| {
                    let what = format!("link to {first:?}, which is not there");
                    io::Error::new(io::ErrorKind::InvalidData, what)
                })?;
                model.nodes.insert(path.clone(), node);
                links
                    .entry(first.clone())
                    .or_insert_with(|| vec![first])
                    .push(path);
            } else {
                let node = tar_node(&mut entry, target)?;
                model.nodes.insert(path, node);
            }
        }
        model.group_links(links);
        Ok(model)
    }

    /// Returns the part of the tree below a directory as a separate tree.
    pub fn below(&self, dir: &str) -> Self {
        let mut below = Self::default();
        for (path, node) in &self.nodes {
            let Some(rest) = path.strip_prefix(dir.as_bytes()) else {
                continue;
            };
            match rest.split_first() {
                None => below.nodes.insert(Vec::new(), node.clone()),
                Some((b'/', rest)) => below.nodes.insert(rest.to_vec(), node.clone()),
                Some(_) => None,
            };
        }
        for node in below.nodes.values_mut() {
            node.linked_to = node.linked_to.take().map(|first| {
                first
                    .strip_prefix(dir.as_bytes())
                    .map_or(first.clone(), |rest| {
                        rest.strip_prefix(b"/").unwrap_or(rest).to_vec()
                    })
            });
        }
        below
    }
}

fn tar_node(entry: &mut Entry<'_, impl Read>, target: Option<Vec<u8>>) -> io::Result<ModelNode> {
    let header = entry.header();
    let kind = match header.entry_type() {
        EntryType::Directory => FileType::Directory,
        EntryType::Symlink => FileType::Symlink,
        EntryType::Block => FileType::BlockDevice,
        EntryType::Char => FileType::CharDevice,
        EntryType::Fifo => FileType::Fifo,
        _ => FileType::Regular,
    };
    let device = match kind {
        FileType::BlockDevice | FileType::CharDevice => Device {
            major: header.device_major()?.unwrap_or(0),
            minor: header.device_minor()?.unwrap_or(0),
        },
        _ => Device::default(),
    };
    let mut node = ModelNode {
        kind,
        mode: u16::try_from(header.mode()? & 0o7777).unwrap_or(0),
        uid: u32::try_from(header.uid()?).unwrap_or(u32::MAX),
        gid: u32::try_from(header.gid()?).unwrap_or(u32::MAX),
        mtime: Timestamp {
            seconds: header.mtime()?.cast_signed(),
            nanoseconds: 0,
        },
        size: 0,
        content: None,
        target: None,
        device,
        linked_to: None,
    };
    match kind {
        FileType::Symlink => node.target = target,
        FileType::Regular => {
            let (size, hash) = hash_all(entry)?;
            (node.size, node.content) = (size, Some(hash));
        }
        _ => {}
    }
    Ok(node)
}

/// Normalises a path: `./a/b/` is `a/b`, and `.` the root.
fn plain_path(path: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = Path::new(OsStr::from_bytes(path))
        .components()
        .filter_map(|component| match component {
            std::path::Component::Normal(name) => Some(name.as_bytes()),
            _ => None,
        })
        .collect();
    parts.join(&b'/')
}
