//! An open image: superblock, devices, special inodes, and metadata reads.
//!
//! Metadata is in the image itself or in the data of the metabox inode, which may be compressed. So
//! a metadata read may have to map an inode, and mapping reads metadata: both are in this module.

mod chunk;
pub mod data;
pub mod map;

use std::sync::Arc;

use forerun_io::{BlockCache, Limits, Observer, ReadAt, u32_from, u64_from, usize_from};
use forerun_vfs::{BlobId, Blobs, Error, NodeId, OwnContents, ResolveBlob, Result};

use crate::address::{Address, Space};
use crate::device::Devices;
use crate::error::Check;
use crate::inode::{self, Inode};
use crate::ondisk::{NID_METABOX, SLOT};
use crate::prefix::Prefix;
use crate::superblock::Superblock;
use crate::zmap::Sums;

pub use chunk::Chunks;

pub struct Image {
    pub superblock: Superblock,
    pub limits: Limits,
    pub source: Arc<dyn ReadAt>,
    pub observer: Arc<Observer>,
    pub blobs: Arc<dyn ResolveBlob>,
    pub devices: Devices,
    pub decoded: BlockCache<Error>,
    /// The inode that holds fragments: the tails of many files.
    pub packed: Option<Inode>,
    /// The inode whose data holds metadata.
    pub metabox: Option<Inode>,
    pub prefixes: Vec<Prefix>,
    /// Addresses of compressed data that were computed by summing lengths.
    pub sums: Sums,
    pub own_contents: OwnContents,
}

impl Image {
    pub const fn root(&self) -> NodeId {
        NodeId(self.superblock.root)
    }

    pub fn address(&self, node: NodeId) -> Result<Address> {
        let (space, start, len) = match (node.0 & NID_METABOX, &self.metabox) {
            (0, _) => {
                let start = self
                    .superblock
                    .block_at(u64::from(self.superblock.meta_block));
                (Space::Image, start, self.source.len())
            }
            (_, Some(metabox)) => (Space::Metabox, 0, metabox.size),
            (_, None) => return Err(Error::StaleNode(node)),
        };
        let slot = (node.0 & !NID_METABOX).checked_mul(SLOT);
        let offset = slot.and_then(|slot| slot.checked_add(start));
        let is_inside = |offset: &u64| offset.checked_add(SLOT).is_some_and(|end| end <= len);
        match offset.filter(is_inside) {
            Some(offset) => Ok(Address { space, offset }),
            None => Err(Error::StaleNode(node)),
        }
    }

    pub fn inode(&self, node: NodeId) -> Result<Inode> {
        let at = self.address(node)?;
        let mut bytes = [0; inode::MAX_LEN];
        let left = self.space_len(at.space) - at.offset;
        let len = usize_from(left).min(bytes.len());
        let bytes = &mut bytes[..len];
        self.read(at, bytes, "inode", Some(node))?;
        Inode::parse(bytes, at, node, &self.superblock)
    }

    /// Returns the length of the space that holds metadata. The space may also hold other data.
    pub fn space_len(&self, space: Space) -> u64 {
        match (space, &self.metabox) {
            (Space::Image, _) => self.source.len(),
            (Space::Metabox, Some(metabox)) => metabox.size,
            (Space::Metabox, None) => 0,
        }
    }

    /// Returns an error that names `what` unless `len` bytes starting at `at` are inside their
    /// space.
    pub fn inside(
        &self,
        at: Address,
        len: u64,
        what: &'static str,
        node: Option<NodeId>,
    ) -> Result<()> {
        let image = self.space_len(at.space);
        let (start, end) = (at.offset, at.offset + len);
        if end > image {
            return Err(Check::Outside {
                what,
                start,
                end,
                image,
            }
            .at(node, start));
        }
        Ok(())
    }

    pub fn read(
        &self,
        at: Address,
        out: &mut [u8],
        what: &'static str,
        node: Option<NodeId>,
    ) -> Result<()> {
        self.inside(at, u64_from(out.len()), what, node)?;
        match (at.space, &self.metabox) {
            (Space::Metabox, Some(metabox)) => data::read(self, metabox, at.offset, out),
            _ => {
                let read = self.source.read_exact_at(at.offset, out);
                read.map_err(|error| Error::io(at.offset, out.len(), error))
            }
        }
    }
}

impl Blobs for Image {
    fn blob(&self, blob: BlobId) -> Result<Arc<dyn ReadAt>> {
        let Some(name) = self.devices.name(blob) else {
            let what = format!(
                "blob {} of an image with {} devices",
                blob.0,
                self.devices.list().len()
            );
            return Err(Error::Unsupported(what));
        };
        let opened = self.blobs.open(&name);
        opened.map_err(|error| Error::blob(name, error))
    }

    fn devices(&self) -> u32 {
        u32_from(u64_from(self.devices.list().len()))
    }
}

/// A metadata space as the source that zmap reads.
pub struct Metadata<'i> {
    pub image: &'i Image,
    pub space: Space,
    pub node: NodeId,
}

impl ReadAt for Metadata<'_> {
    fn len(&self) -> u64 {
        self.image.space_len(self.space)
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let space = self.space;
        let at = Address { space, offset };
        match self.image.read(at, out, "metadata", Some(self.node)) {
            Ok(()) => Ok(()),
            Err(Error::Io { source, .. }) => Err(std::io::Error::new(source.kind(), source)),
            Err(error) => Err(std::io::Error::new(std::io::ErrorKind::InvalidData, error)),
        }
    }
}
