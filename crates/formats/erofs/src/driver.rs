//! The EROFS driver: implements `FileSystem`.

use std::ops::{ControlFlow, Range};

use forerun_io::{u32_from, usize_from};
use forerun_vfs::{
    Capabilities, DirCursor, DirEntry, Error, Extent, FileSystem, FileType, Layout, Metadata,
    MetadataLayout, NodeId, OpenWith, Problem, Region, Result, Verifier, VolumeInfo,
};

use crate::address::Space;
use crate::error::Check;
use crate::image::{Image, data, map};
use crate::ondisk::incompat;
use crate::{check, describe, dir, layout, regions, xattr};

/// An open EROFS image. Node ids are the format's nids: the inode's position in units of 32 bytes.
pub struct Erofs {
    pub(crate) image: Image,
    volume: VolumeInfo,
}

impl Erofs {
    /// Opens the image at the start of `with.metadata`; the source may be longer than the image.
    /// Devices are opened through `with.blobs` when their data is needed.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for unknown features, [`Error::Corrupt`] if superblock, tables or
    /// root fail a check, [`Error::Io`] if they cannot be read.
    pub fn open(with: OpenWith) -> Result<Self> {
        let image = Image::open(with)?;
        Ok(Self {
            volume: volume(&image),
            image,
        })
    }
}

impl FileSystem for Erofs {
    fn volume(&self) -> &VolumeInfo {
        &self.volume
    }

    fn root(&self) -> NodeId {
        self.image.root()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        let inode = self.image.inode(node)?;
        Ok(Metadata {
            kind: inode.file_type,
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            size: match inode.file_type {
                FileType::Regular | FileType::Directory | FileType::Symlink => inode.size,
                _ => 0,
            },
            nlink: inode.nlink,
            mtime: inode.mtime,
            device: inode.device(),
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
        let inode = self.image.inode(node)?;
        if inode.file_type != FileType::Symlink {
            return Err(Error::NotASymlink);
        }
        let fail = |check: Check| Err(check.at(Some(node), inode.at.offset));
        let (size, limit) = (inode.size, self.image.limits.symlink_len);
        if size == 0 || size > limit {
            return fail(Check::SymlinkLen { size, limit });
        }
        let mut target = vec![0; usize_from(size)];
        data::read(&self.image, &inode, 0, &mut target)?;
        if target.contains(&0) {
            return fail(Check::SymlinkNul);
        }
        Ok(target)
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        let inode = self.image.inode(node)?;
        xattr::visit(&self.image, &inode, visit)
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = self.image.inode(node)?;
        match inode.file_type {
            FileType::Regular => {
                if inode.xattr_len > 0 {
                    let xattrs = |visit: &mut dyn FnMut(&[u8], &[u8])| {
                        xattr::visit(&self.image, &inode, visit)
                    };
                    let known = &self.image.own_contents;
                    known.expect(node.0, "erofs", node, xattrs)?;
                }
                map::map(&self.image, &inode, range, visit)
            }
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
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
            blobs: Some(&self.image),
            driver: Some(self),
            ..Capabilities::default()
        }
    }
}

impl Layout for Erofs {
    fn inode_offset(&self, node: NodeId) -> Option<u64> {
        let at = self.image.address(node).ok()?;
        (at.space == Space::Image).then_some(at.offset)
    }

    fn metadata_layout(&self) -> MetadataLayout {
        match MetadataLayout::of_ranges(layout::metadata_ranges(self, &self.image)) {
            MetadataLayout::Unknown if self.inode_offset(self.root()).is_some() => {
                MetadataLayout::Locatable
            }
            layout => layout,
        }
    }

    fn regions(&self, visit: &mut dyn FnMut(Region) -> ControlFlow<()>) -> Result<()> {
        regions::of_image(&self.image, visit);
        Ok(())
    }

    fn regions_of(
        &self,
        node: NodeId,
        visit: &mut dyn FnMut(Region) -> ControlFlow<()>,
    ) -> Result<()> {
        let inode = self.image.inode(node)?;
        regions::of_inode(&self.image, &inode, visit)
    }

    fn names_max(&self) -> Option<u64> {
        let superblock = &self.image.superblock;
        // An entry takes at least twelve bytes. Compressed directories have no bound.
        let is_plain = !superblock.may_be_compressed() && !superblock.has(incompat::METABOX);
        is_plain.then(|| self.image.source.len() / 13)
    }

    /// Deduplicated extents share a feature bit with the packed inode.
    fn shares_blocks(&self) -> bool {
        self.image.superblock.has(incompat::FRAGMENTS)
    }
}

impl Verifier for Erofs {
    /// Only the superblock has a checksum.
    fn unproven_metadata(&self) -> Option<u64> {
        None
    }
}

fn volume(image: &Image) -> VolumeInfo {
    let superblock = &image.superblock;
    let block_size = u32_from(superblock.block_size());
    let len = match superblock.blocks {
        0 => image.source.len(),
        blocks => superblock.block_at(blocks),
    };
    let mut info = VolumeInfo::new("erofs", len, block_size);
    info.label.clone_from(&superblock.label);
    info.inodes = Some(superblock.inodes).filter(|&inodes| inodes > 0);
    info.has_xattrs = true;
    info.has_acls = true;
    info.created = Some(superblock.build_time);
    info.details = describe::details(image);
    info
}
