//! Opens an image: superblock, devices, special inodes, long xattr prefixes and root.

use forerun_io::{BlockCache, usize_from};
use forerun_vfs::{Error, FileType, NodeId, OpenWith, OwnContents, Result};

use crate::address::{Address, Space};
use crate::compressor;
use crate::device::Devices;
use crate::error::Check;
use crate::image::Image;
use crate::inode::Inode;
use crate::ondisk::{NID_METABOX, SUPERBLOCK_AT, compat};
use crate::prefix_table;
use crate::superblock::{self, Superblock};
use crate::zmap::Sums;

/// Typical length of a decoded metadata block.
const TYPICAL_BLOCK: u64 = 16 << 10;

impl Image {
    /// Opens an image and reads its superblock, tables and special inodes.
    ///
    /// # Errors
    /// `UnknownFormat`, `Unsupported`, `Corrupt` if superblock, tables or root fail a check, `Io`
    /// if they cannot be read.
    pub fn open(with: OpenWith) -> Result<Self> {
        let source = with.metadata;
        let mut head = [0; superblock::HEAD];
        let len = usize_from(source.len()).min(head.len());
        let head = head.get_mut(..len).unwrap_or_default();
        let read = source.read_exact_at(0, head);
        read.map_err(|error| Error::io(0, head.len(), error))?;
        let superblock = Superblock::parse(head, source.len())?;
        let mut devices = Devices::read(&*source, &superblock)?;
        devices.take_from_image_unless(|first| with.blobs.resolve.open(first).is_ok());
        let mut image = Self {
            superblock,
            limits: with.limits,
            source,
            observer: with.observer,
            blobs: with.blobs.resolve,
            devices,
            decoded: BlockCache::new(with.cache, TYPICAL_BLOCK),
            packed: None,
            metabox: None,
            prefixes: Vec::new(),
            sums: Sums::default(),
            own_contents: OwnContents::default(),
        };
        image.check_sum()?;
        compressor::settings(&image)?;
        // The metabox comes first: it may hold the packed inode, but not the other way round.
        if let Some(nid) = image.superblock.metabox {
            if nid & NID_METABOX != 0 {
                let check = Check::SpecialInItself {
                    what: "metabox inode",
                };
                return Err(check.at(Some(NodeId(nid)), SUPERBLOCK_AT));
            }
            image.metabox = Some(image.special(nid, "metabox inode")?);
        }
        if let Some(nid) = image.superblock.packed {
            image.packed = Some(image.special(nid, "packed inode")?);
        }
        image.prefixes = prefix_table::read(&image)?;
        let root = image.root();
        match image.named(root.0, "root")?.file_type {
            FileType::Directory => Ok(image),
            _ => Err(Check::RootKind.at(Some(root), image.address(root)?.offset)),
        }
    }

    fn check_sum(&self) -> Result<()> {
        if !self.superblock.has_compat(compat::SB_CHKSUM) {
            return Ok(());
        }
        // If the first block ends before the superblock, the checksum covers one block from the
        // superblock on.
        let len = match self.superblock.block_size() {
            len if len > SUPERBLOCK_AT => len - SUPERBLOCK_AT,
            len => len,
        };
        let at = Address {
            space: Space::Image,
            offset: SUPERBLOCK_AT,
        };
        // At most a block.
        let mut bytes = vec![0; usize_from(len)];
        self.read(at, &mut bytes, "block of the superblock", None)?;
        let (found, actual) = (self.superblock.checksum, superblock::checksum(&bytes));
        if found != actual {
            return Err(Check::Checksum { found, actual }.at(None, SUPERBLOCK_AT));
        }
        Ok(())
    }

    /// Reads an inode that the superblock names.
    fn named(&self, nid: u64, what: &'static str) -> Result<Inode> {
        match self.inode(NodeId(nid)) {
            Err(Error::StaleNode(_)) => {
                Err(Check::NodeOutside { what, nid }.at(None, SUPERBLOCK_AT))
            }
            result => result,
        }
    }

    fn special(&self, nid: u64, what: &'static str) -> Result<Inode> {
        let inode = self.named(nid, what)?;
        if inode.file_type != FileType::Regular {
            return Err(Check::SpecialKind { what }.at(Some(inode.node), inode.at.offset));
        }
        Ok(inode)
    }
}
