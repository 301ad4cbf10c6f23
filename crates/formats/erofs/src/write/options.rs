//! The options of a new image.

use std::fs::File;
use std::sync::Arc;

use forerun_build::{BuildError, Order, ParallelBounds, Tree, WriterNeeds};
use forerun_codec::{FillEncoder, FillEncoding};
use forerun_io::{BlobId, u32_from};

use super::cannot;
use super::pack::PART;

/// log2 of the block sizes that the format allows.
const BLOCK_BITS: std::ops::RangeInclusive<u32> = 9..=16;
/// The largest physical cluster that readers support.
const LARGEST_PCLUSTER: u32 = 1 << 20;
const LABEL: usize = 16;
const TAG: usize = 64;
const PREFIXES: usize = 128;

/// How an EROFS image is laid out and encoded. The defaults are those of `mkfs.erofs`.
#[derive(Clone, Debug)]
pub struct ErofsOptions {
    /// Block size in bytes: a power of two from 512 to 64 KiB; 4 KiB by default. Linux mounts only
    /// images with blocks up to its page size.
    pub block_size: u32,
    /// The codec of files; `None` stores them uncompressed.
    pub compression: Option<Compression>,
    /// Stores files as chunks of this many bytes, a power of two of at least a block. Equal chunks
    /// are stored once, and chunks of zeros are not stored. Cannot be combined with compression.
    pub chunk_size: Option<u32>,
    /// The file that receives the chunks instead of the image, starting at offset 0. Mounting the
    /// image then needs this file as its only device. Requires `chunk_size`.
    pub blob: Option<Arc<File>>,
    /// Devices that have the data of all files already, in the order of the device table. The image
    /// then has only metadata, and mounting it needs these devices. Data that is compressed, or that
    /// does not start at a block of its device, is refused.
    pub devices: Vec<DeviceWithData>,
    /// Whether tails of files are stored after their inodes if they fit.
    pub inline_tails: bool,
    /// Whether files with equal contents share blocks.
    pub duplicates: bool,
    /// Whether extended attributes are kept.
    pub xattrs: bool,
    /// An attribute that more inodes than this have is stored once for all of them; 2 by default.
    pub share_xattrs_above: u32,
    /// Prefixes of attribute names, such as `trusted.overlay.`, that are stored once.
    pub xattr_prefixes: Vec<Vec<u8>>,
    /// Time of the image. Inodes with exactly this time need not store it. `None` means the most
    /// frequent time of the tree, so that equal trees give equal images.
    pub mkfs_time: Option<i64>,
    /// `None` derives the UUID from the image's metadata.
    pub uuid: Option<[u8; 16]>,
    /// At most 16 bytes.
    pub label: Vec<u8>,
    /// Files whose data comes first. Other files follow in walk order.
    pub order: Order,
    /// Number of encoding threads; 0 means one for each CPU, or fewer if memory is scarce. The
    /// image does not depend on it.
    pub threads: usize,
    /// Approximate bytes of contents in memory at a time; 0 means 64 MiB, or less if memory is
    /// scarce.
    pub memory: usize,
}

/// A device that has data of the tree's files.
#[derive(Clone, Debug)]
pub struct DeviceWithData {
    /// The device in the extents of the tree's contents.
    pub blob: BlobId,
    /// At most 64 bytes that identify the device.
    pub tag: Vec<u8>,
    /// Length in bytes.
    pub len: u64,
}

/// The codec, and how compressed data is laid out.
#[derive(Clone, Debug)]
pub struct Compression {
    /// The codec and its options.
    pub encoding: FillEncoding,
    /// Maximum length of a physical cluster in bytes: a power of two from a block to 1 MiB. The
    /// default of `mkfs.erofs` is one block.
    pub cluster_size: u32,
    /// Whether compressed tails of files are stored after their inodes if they fit
    /// (`ztailpacking`). Linux supports that since 5.17.
    pub inline_tails: bool,
    /// Writes full indexes, which Linux supports since 5.4, instead of compacted ones (5.5).
    pub full_indexes: bool,
    /// Whether equal extents of different files are stored once. Linux supports that since 6.1.
    /// Such images have full indexes.
    pub share_extents: bool,
    /// Which data is compressed together with the data of other files. Linux reads such images
    /// since 6.1. Cannot be combined with `inline_tails`, which stores the same bytes elsewhere.
    pub fragments: Fragments,
}

/// Which data goes into the packed inode: data of many files, concatenated and compressed as one
/// file. That takes the least space, but a reader decodes data that it did not ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fragments {
    #[default]
    None,
    /// Tails that do not fill a physical cluster. For small files that is all of their data.
    Tails,
    All,
}

impl Compression {
    /// Creates options for `encoding` with the defaults of `mkfs.erofs`.
    #[must_use]
    pub const fn new(encoding: FillEncoding) -> Self {
        Self {
            encoding,
            cluster_size: 4096,
            inline_tails: false,
            full_indexes: false,
            share_extents: false,
            fragments: Fragments::None,
        }
    }
}

impl Default for ErofsOptions {
    fn default() -> Self {
        Self {
            block_size: 4096,
            compression: None,
            chunk_size: None,
            blob: None,
            devices: Vec::new(),
            inline_tails: true,
            duplicates: true,
            xattrs: true,
            share_xattrs_above: 2,
            xattr_prefixes: Vec::new(),
            mkfs_time: None,
            uuid: None,
            label: Vec::new(),
            order: Order::default(),
            threads: 0,
            memory: 0,
        }
    }
}

impl ErofsOptions {
    /// Checks that the options are valid.
    ///
    /// # Errors
    /// [`BuildError::Format`] that names the option and its range.
    pub fn validate(&self) -> Result<(), BuildError> {
        let size = self.block_size;
        if !size.is_power_of_two() || !BLOCK_BITS.contains(&size.ilog2()) {
            return Err(cannot(format!(
                "a block size of {size} bytes; it is a power of two from 512 to 65536"
            )));
        }
        if let Some(compression) = &self.compression {
            self.validate_compression(compression)?;
        }
        if !self.devices.is_empty() && (self.compression.is_some() || self.chunk_size.is_some()) {
            return Err(cannot(
                "compressing or cutting data that stays on other devices".to_string(),
            ));
        }
        if let Some(device) = self.devices.iter().find(|device| device.tag.len() > TAG) {
            let len = device.tag.len();
            return Err(cannot(format!(
                "a device with a tag of {len} bytes; at most 64 are allowed"
            )));
        }
        if let Some(chunk) = self.chunk_size {
            if !chunk.is_power_of_two() || chunk < size {
                return Err(cannot(format!(
                    "chunks of {chunk} bytes; a chunk is a power of two and at least a block"
                )));
            }
            if self.compression.is_some() {
                return Err(cannot("compressed chunks".to_string()));
            }
        } else if self.blob.is_some() {
            return Err(cannot("another device without chunks on it".to_string()));
        }
        if self.label.len() > LABEL {
            let len = self.label.len();
            return Err(cannot(format!(
                "a label of {len} bytes; at most 16 are allowed"
            )));
        }
        super::xattr::check_prefixes(&self.xattr_prefixes, PREFIXES)
    }

    fn validate_compression(&self, compression: &Compression) -> Result<(), BuildError> {
        let cluster = compression.cluster_size;
        let range = self.block_size..=LARGEST_PCLUSTER;
        if !cluster.is_power_of_two() || !range.contains(&cluster) {
            return Err(cannot(format!(
                "physical clusters of {cluster} bytes; they are a power of two from a block to \
                 1048576"
            )));
        }
        if compression.inline_tails && compression.fragments != Fragments::None {
            let reason = "file tails both after their inodes and in the packed inode";
            return Err(cannot(reason.to_string()));
        }
        FillEncoder::new(&compression.encoding)
            .map(drop)
            .map_err(|error| cannot(error.to_string()))
    }

    /// Returns the number of encoding threads, and the bytes of contents in flight. Each thread has
    /// an encoder and a cluster, or a chunk.
    pub(super) fn bounds(&self, tree: &Tree) -> Result<ParallelBounds, BuildError> {
        let part = u32_from(PART);
        let (codec, each) = match &self.compression {
            Some(with) => {
                let cluster = u64::from(with.cluster_size);
                (
                    Some(with.encoding.name()),
                    with.encoding.memory(part) + cluster,
                )
            }
            None => (None, self.chunk_size.map_or(0, u64::from)),
        };
        let needs = WriterNeeds {
            codec,
            each,
            nodes: tree.len(),
        };
        needs.bounds(ParallelBounds {
            threads: self.threads,
            memory: self.memory,
        })
    }

    /// Returns whether file data is on other devices.
    pub(super) const fn has_devices(&self) -> bool {
        self.blob.is_some() || !self.devices.is_empty()
    }

    pub(super) fn block(&self) -> usize {
        forerun_io::usize_from(self.block_size.into())
    }

    pub(super) const fn block_bits(&self) -> u32 {
        self.block_size.ilog2()
    }
}
