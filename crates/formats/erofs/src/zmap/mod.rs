//! Maps the compressed data of a file: cluster indexes, extent records, inline tails.
//!
//! [`map`] reads the map header and as much of the index as the range needs, in pieces. It decodes
//! nothing except an inline tail in the metabox.
//!
//! An extent is always visited as a whole, whatever the range: the engine's cache keys must not
//! depend on the request. It reaches from one head of the index to the next. The stored distances
//! back are used only to find a head before the range, so contradictory distances change nothing.
//!
//! Data in the packed inode is reported as [`Piece::Fragment`]: the caller maps the packed inode.

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
use forerun_vfs::{BlobId, Error, Extent, NodeId, Result};

pub use sums::Sums;

use check::ZmapCheck;
use header::{Header, Index, Tail};
use place::Placing;

/// The incompatible features that affect maps.
pub mod feature {
    /// Compressed streams end at the end of their block; zeros fill the space before them.
    pub const ZERO_PADDING: u32 = 0x0000_0001;
    /// Physical clusters of several blocks, and compressor configurations.
    pub const BIG_PCLUSTER: u32 = 0x0000_0002;
    /// Compressed tails may follow the index.
    pub const ZTAILPACKING: u32 = 0x0000_0010;
    /// Tails in the packed inode, and shared extents.
    pub const FRAGMENTS: u32 = 0x0000_0020;
    /// 48-bit addresses, and extent records.
    pub const BITS_48: u32 = 0x0000_0080;
}

#[derive(Clone, Copy)]
pub struct Config<'c> {
    pub block_bits: u8,
    pub features: u32,
    /// Bits of the algorithms that the image uses; bit 0 alone if the image does not list them.
    pub algorithms: u16,
    /// Resolves a physical address to the blob, the offset in it, and the number of contiguous
    /// bytes; `None` if there is no data.
    pub locate: &'c dyn Fn(u64) -> Option<(BlobId, u64, u64)>,
    /// Addresses computed by earlier maps.
    pub sums: &'c Sums,
    /// Whether extents are visited as [`Piece::Stored`].
    pub as_stored: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct CompressedInode {
    pub node: NodeId,
    pub size: u64,
    /// Offset in the metadata after the inode and its xattrs.
    pub end: u64,
    pub layout: IndexLayout,
    /// Whether metadata offsets are offsets in the image; false in a metabox.
    pub in_image: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexLayout {
    /// Eight bytes for each cluster, or extent records.
    Full,
    /// Clusters packed at two or four bytes each.
    Compact,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Data with an extent of its own.
    Extent(Extent),
    /// An extent of the index, reported instead of its pieces if [`Config::as_stored`] is set. Its
    /// address is physical, or for an inline tail an offset in the metadata.
    Stored {
        logical: Range<u64>,
        /// The range of its blocks or of the inline tail.
        at: Range<u64>,
    },
    /// Data in the packed inode.
    Fragment {
        logical: Range<u64>,
        /// Offset in the data of the packed inode.
        offset: u64,
    },
}

impl Piece {
    const fn logical(&self) -> &Range<u64> {
        match self {
            Self::Extent(extent) => &extent.logical,
            Self::Stored { logical, .. } | Self::Fragment { logical, .. } => logical,
        }
    }
}

/// Returns the metadata offset after the header and index. The inode must not be empty.
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

/// Returns whether the last extent follows the index, although the superblock does not announce
/// that. The inode must not be empty.
///
/// # Errors
/// `Corrupt` with the offset in the metadata, `Io`.
pub fn unannounced_tail(
    meta: &dyn ReadAt,
    config: &Config<'_>,
    inode: &CompressedInode,
) -> Result<Option<Error>> {
    let features = config.features;
    if features & feature::ZTAILPACKING != 0 {
        return Ok(None);
    }
    Ok(match Header::read(meta, config, inode)? {
        Header::Index(Index {
            tail: Tail::Inline { .. },
            ..
        }) => {
            let what = "a compressed tail behind the index";
            Some(ZmapCheck::Feature { what, features }.at(inode.node, inode.end))
        }
        Header::Index(_) | Header::Records(_) | Header::Fragment { .. } => None,
    })
}

/// Visits the pieces of `range`, which must be inside the file and not empty. The first and last
/// piece may reach past the range.
///
/// An interlaced extent of several blocks gives two pieces; one that lies outside of `range` is not
/// visited.
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
