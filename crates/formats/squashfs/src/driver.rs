//! The SquashFS driver: implements `FileSystem`.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{
    Capabilities, Device, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Layout,
    Metadata, MetadataLayout, NodeId, OpenWith, Problem, Region, Result, Verifier, VolumeInfo,
};

use crate::error::Check;
use crate::image::Image;
use crate::inode::{Inode, InodeBody};
use crate::{check, describe, dir, map, regions, xattr};

/// An open SquashFS image. Node ids are the references of directory entries: the inode's metadata
/// block, and its offset in the decoded block.
pub struct Squashfs {
    pub(crate) image: Image,
    volume: VolumeInfo,
}

impl Squashfs {
    /// Opens the image at the start of `with.metadata`; the source may be longer than the image.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for other versions, variants and compressors, [`Error::Corrupt`] if
    /// superblock, tables or root fail a check, [`Error::Io`] if they cannot be read.
    pub fn open(with: OpenWith) -> Result<Self> {
        Image::open(with).map(Self::new)
    }

    pub(crate) fn new(image: Image) -> Self {
        Self {
            volume: volume(&image),
            image,
        }
    }

    fn size(inode: &Inode) -> u64 {
        match &inode.body {
            InodeBody::File(file) => file.size,
            // Like Linux, reports three more than the listing's length.
            InodeBody::Dir(dir) => u64::from(dir.size),
            InodeBody::Symlink { len, .. } => u64::from(*len),
            InodeBody::Device(_) | InodeBody::Ipc => 0,
        }
    }
}

impl FileSystem for Squashfs {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        NodeId(self.image.superblock.root.raw())
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let inode = self.image.inode(node)?;
        let device = match inode.body {
            InodeBody::Device(device) => device,
            _ => Device::default(),
        };
        let owners = self.image.owners(inode.uid_index, inode.gid_index, node)?;
        Ok(Metadata {
            kind: inode.file_type,
            mode: inode.mode,
            uid: owners.0,
            gid: owners.1,
            size: Self::size(&inode),
            nlink: inode.nlink,
            mtime: inode.mtime,
            device,
        })
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        dir::lookup(&self.image, dir, name)
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        dir::read(&self.image, dir, from, visit)
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        let InodeBody::Symlink { len, target } = self.image.inode(node)?.body else {
            return Err(Error::NotASymlink);
        };
        let mut cursor = self.image.inodes_at(target, node)?;
        let fail = |check: Check| Err(check.at(Some(node), cursor.offset()));
        let (size, limit) = (u64::from(len), self.image.limits.symlink_len);
        if size == 0 || size > limit {
            return fail(Check::SymlinkLen { size, limit });
        }
        let mut target = vec![0; forerun_io::usize_from(size)];
        cursor.read_into(&mut target)?;
        if target.contains(&0) {
            return Err(Check::SymlinkNul.at(Some(node), cursor.offset()));
        }
        Ok(target)
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let inode = self.image.inode(node)?;
        xattr::visit(&self.image, &inode, node, visit)
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = self.image.inode(node)?;
        let InodeBody::File(file) = &inode.body else {
            return Err(match inode.file_type {
                FileType::Directory => Error::IsADirectory,
                _ => Error::NotAFile,
            });
        };
        let range = range.start..range.end.min(file.size);
        if range.is_empty() {
            return Ok(());
        }
        if let Some(set) = inode.xattrs {
            let xattrs = |visit: &mut dyn FnMut(&[u8], &[u8])| {
                xattr::visit(&self.image, &inode, node, visit)
            };
            let known = &self.image.own_contents;
            known.expect(set.into(), "squashfs", node, xattrs)?;
        }
        map::map(&self.image, node, file, range, visit)
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        match node {
            Some(node) => describe::inode(&self.image, node),
            None => describe::superblock(&self.image),
        }
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        match node {
            Some(node) => check::node(&self.image, node, report),
            None => check::image(&self.image, report),
        }
    }

    fn capabilities(&self) -> Capabilities<'_> {
        Capabilities {
            layout: Some(self),
            verifier: Some(self),
            driver: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Layout for Squashfs {
    fn metadata_layout(&self) -> MetadataLayout {
        // All metadata is contiguous up to the end of the image: inodes, listings, other tables.
        let superblock = &self.image.superblock;
        let tables = superblock.inode_table..superblock.bytes_used;
        MetadataLayout::Ranges(std::iter::once(tables).collect())
    }

    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        for region in regions::regions(&self.image.superblock) {
            if visit(region).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn names_max(&self) -> Option<u64> {
        Some(self.image.names_max())
    }
}

impl Verifier for Squashfs {
    fn unproven_metadata(&self) -> Option<u64> {
        self.image.blocks.unproven()
    }
}

fn volume(image: &Image) -> VolumeInfo {
    let superblock = &image.superblock;
    let mut info = VolumeInfo::new("squashfs", superblock.bytes_used, superblock.block_size);
    info.inodes = Some(u64::from(superblock.inodes));
    info.has_xattrs = image
        .xattrs
        .as_ref()
        .is_some_and(|xattrs| xattrs.count() > 0);
    info.created = superblock.created().map(Into::into);
    info.details = describe::details(image);
    info
}
