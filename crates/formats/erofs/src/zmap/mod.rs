//! Maps the compressed data of a file: cluster indexes, encoded extents, inline tails.
//!
//! [`map`] turns an inode's description of its compressed data into extents of the seam. It reads
//! the map header and as much of the index as the range takes, in pieces, and decodes nothing,
//! except for an inline tail in metadata that is not a part of the image itself.
//!
//! A visited extent is always whole, whatever the range: the keys under which the engine caches
//! blocks must not depend on the request. An extent goes from one head in the index to the next.
//! The distances back that the index stores are used only to find some head before the range; the
//! extents follow from the heads alone. So contradictory distances change nothing.
//!
//! Data in the packed inode is named, not mapped: that takes another inode.

mod bytes;
mod check;
mod compact;
mod full;
mod header;
mod index;
mod place;
mod records;
mod span;
mod sums;
#[cfg(test)]
mod tests;

use std::ops::{ControlFlow, Range};

use forerun_io::ReadAt;
use forerun_vfs::{BlobId, Extent, NodeId, Result};

pub use sums::Sums;

use header::Header;
use place::Placing;

/// Bits of the superblock's incompatible features that the maps depend on.
pub mod feature {
    /// Compressed streams end at the end of their block; zeros fill the space before them.
    pub const ZERO_PADDING: u32 = 0x0000_0001;
    /// There are large physical clusters, and records of the algorithms.
    pub const BIG_PCLUSTER: u32 = 0x0000_0002;
    /// Compressed tails may lie behind the index.
    pub const ZTAILPACKING: u32 = 0x0000_0010;
    /// Tails may be kept in the packed inode, and extents shared.
    pub const FRAGMENTS: u32 = 0x0000_0020;
    /// Addresses of 48 bits, and encoded extents.
    pub const BITS_48: u32 = 0x0000_0080;
}

/// The settings that all inodes of an image share.
#[derive(Clone, Copy)]
pub struct Config<'c> {
    /// log2 of the block size.
    pub block_bits: u8,
    /// The superblock's incompatible features.
    pub features: u32,
    /// The algorithms in use according to the image, one bit each: bit 0 alone if it does not list
    /// them.
    pub algorithms: u16,
    /// Resolves a physical address: the blob, the offset in it, and the number of bytes from there
    /// on; nothing if there is no data.
    pub locate: &'c dyn Fn(u64) -> Option<(BlobId, u64, u64)>,
    /// The sums computed before.
    pub sums: &'c Sums,
    /// Whether extents are visited as they are stored, and not as pieces.
    pub as_stored: bool,
}

/// The compressed data of one inode.
#[derive(Clone, Copy, Debug)]
pub struct CompressedInode {
    /// The inode, for errors.
    pub node: NodeId,
    pub size: u64,
    /// Offset in the metadata behind the inode and its inline attributes.
    pub end: u64,
    /// How the index is kept.
    pub layout: IndexLayout,
    /// Whether offsets in the metadata are offsets in the image; false in a metabox.
    pub in_image: bool,
}

/// The layouts of compressed inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexLayout {
    /// Eight bytes for each cluster, or encoded extents.
    Full,
    /// Clusters packed at two or four bytes each.
    Compact,
}

/// A piece of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A piece with extents of its own.
    Extent(Extent),
    /// An extent of the index as it is stored, at a physical address or, for an inline tail, an offset in the
    /// metadata: in place of its pieces, where [`Config::as_stored`] says so.
    Stored {
        /// Byte range in the file.
        logical: Range<u64>,
        /// The range of its blocks, or of the tail.
        at: Range<u64>,
    },
    /// A piece in the packed inode.
    Fragment {
        /// Byte range in the file.
        logical: Range<u64>,
        /// Its offset in the data of the packed inode.
        offset: u64,
    },
}

impl Piece {
    /// Returns the byte range in the file.
    const fn logical(&self) -> &Range<u64> {
        match self {
            Self::Extent(extent) => &extent.logical,
            Self::Stored { logical, .. } | Self::Fragment { logical, .. } => logical,
        }
    }
}

/// Returns the offset in the metadata behind the header and the index of an inode that is not empty.
///
/// # Errors
/// `Corrupt` with the offset in the metadata, `Unsupported`, `Io`.
pub fn index_end(meta: &dyn ReadAt, config: &Config<'_>, inode: &CompressedInode) -> Result<u64> {
    let header = Header::read(meta, config, inode)?;
    let placing = Placing {
        meta,
        config,
        inode,
    };
    match header {
        Header::Fragment { .. } => Ok(Header::end(inode.end)),
        Header::Records(records) => records::end(&placing, &records),
        Header::Index(header) => index::end(&placing, &header),
    }
}

/// Visits the pieces of `range`, which is inside the file and not empty; the first and the last one
/// may reach past it.
///
/// One extent of the index can give two pieces: interlaced bytes of several blocks are stored in two
/// parts. A part that lies outside of `range` is not visited.
///
/// # Errors
/// `Corrupt` with the offset in the metadata, `Unsupported`, `Io`, and `Limit` for an extent of too
/// many clusters.
pub fn map(
    meta: &dyn ReadAt,
    config: &Config<'_>,
    inode: &CompressedInode,
    range: Range<u64>,
    visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<()> {
    let header = Header::read(meta, config, inode)?;
    let placing = Placing {
        meta,
        config,
        inode,
    };
    let (start, end) = (range.start, range.end);
    let inside = &mut |piece: Piece| {
        let logical = piece.logical();
        if logical.end <= start {
            ControlFlow::Continue(())
        } else if logical.start >= end {
            ControlFlow::Break(())
        } else {
            visit(piece)
        }
    };
    match header {
        Header::Fragment { offset } => {
            let logical = 0..inode.size;
            let _only = inside(Piece::Fragment { logical, offset });
            Ok(())
        }
        Header::Records(records) => records::map(&placing, &records, range, inside),
        Header::Index(header) => index::map(&placing, &header, range, inside),
    }
}
