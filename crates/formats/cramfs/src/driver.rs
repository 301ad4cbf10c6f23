use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, u32_from};
use forerun_vfs::{
    Capabilities, Device, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Layout,
    Metadata, MetadataLayout, NodeId, Problem, Result, Timestamp, VolumeInfo,
};

use crate::blocks::Table;
use crate::image::Image;
use crate::indexes::Indexes;
use crate::ondisk::{BLOCK, INODE_LEN, NAME_MAX, UNIT};
use crate::{check, describe, symlink};

/// Length of the smallest entry: an inode and a name of up to four bytes.
const ENTRY_MIN: u64 = 16;
const _: () = assert!(ENTRY_MIN == 12 + UNIT && INODE_LEN == 12);

/// An open cramfs image. A node is the offset of its inode, which is part of one directory entry.
/// Each entry is a node of its own, since the format has no hard links.
pub struct Cramfs {
    image: Image,
    indexes: Indexes,
    volume: VolumeInfo,
}

impl Cramfs {
    /// Opens the image at the start of `metadata`, which may be longer than the image.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the superblock or the root's inode fails a check,
    /// [`Error::Unsupported`] for unknown flags, [`Error::Io`] if the superblock cannot be read.
    pub fn open(metadata: Arc<dyn ReadAt>, limits: &Limits) -> Result<Self> {
        Self::open_with(metadata, limits, false)
    }

    /// Opens the image. With `rescue`, the image may be truncated: files end where the source ends.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_with(metadata: Arc<dyn ReadAt>, limits: &Limits, rescue: bool) -> Result<Self> {
        let image = Image::open(metadata, limits, rescue)?;
        Ok(Self {
            volume: volume(&image),
            image,
            indexes: Indexes::new(limits.dir_index_bytes),
        })
    }
}

impl FileSystem for Cramfs {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        self.image.superblock.root_node()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let inode = self.image.inode(node)?;
        let is_device = matches!(inode.kind, FileType::BlockDevice | FileType::CharDevice);
        Ok(Metadata {
            kind: inode.kind,
            mode: inode.mode & 0o7777,
            uid: u32::from(inode.uid),
            gid: u32::from(inode.gid),
            size: match inode.kind {
                FileType::Directory | FileType::Regular | FileType::Symlink => {
                    u64::from(inode.size)
                }
                _ => 0,
            },
            nlink: 1,
            mtime: Timestamp::default(),
            device: if is_device {
                inode.device()
            } else {
                Device::default()
            },
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        let directory = self.indexes.get(&self.image, dir)?;
        match (directory.find(name), &directory.damage) {
            (Some(entry), _) => Ok(Some(entry.node)),
            // The name may belong to a damaged entry, or to one that cannot be found because of the
            // damage.
            (None, Some(damage)) => Err(damage.clone()),
            (None, None) => Ok(None),
        }
    }

    /// Visits the entries. The cursor is the number of entries before it.
    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let directory = self.indexes.get(&self.image, dir)?;
        for (entry, before) in directory.entries(from.0).zip(from.0..) {
            let entry = DirEntry {
                name: entry.name,
                node: entry.node,
                kind: entry.kind,
                next: DirCursor(before + 1),
            };
            if visit(entry).is_break() {
                return Ok(());
            }
        }
        directory.damage.clone().map_or(Ok(()), Err)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        let inode = self.image.inode(node)?;
        match inode.kind {
            FileType::Symlink => symlink::target(&self.image, node, &inode),
            _ => Err(Error::NotASymlink),
        }
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = self.image.inode(node)?;
        match inode.kind {
            FileType::Regular if inode.size == 0 => Ok(()),
            FileType::Regular => Table::new(&self.image, node, &inode)?.map(range, visit),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        let superblock = &self.image.superblock;
        Ok(match node {
            Some(node) => describe::inode(superblock, node.0, &self.image.inode(node)?),
            None => describe::superblock(superblock),
        })
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        match node {
            Some(node) => check::node(&self.image, &self.indexes, node, report),
            None => check::image(&self.image, report),
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Layout for Cramfs {
    fn metadata_layout(&self) -> MetadataLayout {
        MetadataLayout::Locatable
    }

    fn inode_offset(&self, node: NodeId) -> Option<u64> {
        Some(node.0)
    }

    fn names_max(&self) -> Option<u64> {
        Some(self.image.superblock.image_len / ENTRY_MIN)
    }

    /// Pointers that hold the start of a block may share the block.
    fn shares_blocks(&self) -> bool {
        self.image.superblock.has_pointer_flags()
    }
}

fn volume(image: &Image) -> VolumeInfo {
    let superblock = &image.superblock;
    let block_size = u32_from(BLOCK);
    let mut info = VolumeInfo::new("cramfs", superblock.image_len, block_size);
    info.label.clone_from(&superblock.name);
    info.inodes = superblock
        .is_version_2()
        .then(|| u64::from(superblock.files));
    info.name_max = NAME_MAX;
    info.has_times = false;
    info.details = describe::details(superblock);
    if image.is_cut {
        let (size, have) = (superblock.size, superblock.image_len);
        let told = format!("the superblock says {size} bytes, the source has {have}");
        info.warnings.push(told);
    }
    info
}
