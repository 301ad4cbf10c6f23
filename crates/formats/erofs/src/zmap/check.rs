//! The checks that the compressed data of an inode can fail, one variant each.

use std::ops::Range;

use forerun_codec::DecodeError;
use forerun_vfs::{Corrupt, Error, NodeId};

/// A failed check, with the numbers needed to find the bytes. The offset of the header, index entry
/// or record is stored beside it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZmapCheck {
    #[error("the compression header ends at {end:#x}; the metadata at {len:#x}")]
    HeaderOutside { end: u64, len: u64 },
    #[error("clusters of 2^{bits} bytes; this layout takes up to 2^{max}")]
    ClusterBits { bits: u8, max: u8 },
    #[error("algorithm {id}, which the superblock (set {set:#06x}) does not name")]
    Algorithm { id: u8, set: u16 },
    #[error("the file has a tail behind its index and one in the packed inode")]
    TwoTails,
    #[error("{what}, which the superblock's features ({features:#010x}) rule out")]
    Feature { what: &'static str, features: u32 },
    #[error("{clusters} clusters take an index up to {end:#x}; the metadata ends at {len:#x}")]
    IndexOutside { clusters: u64, end: u64, len: u64 },
    #[error("cluster {cluster}: an extent starts at {offset} of {len} bytes")]
    ClusterOffset { cluster: u64, offset: u64, len: u64 },
    #[error("cluster {cluster}: unknown flags {flags:#06x}")]
    EntryFlags { cluster: u64, flags: u16 },
    #[error("cluster {cluster} looks back {distance} clusters for the start of its extent")]
    LookBack { cluster: u64, distance: u64 },
    #[error("no extent holds byte {position} of the file")]
    NoExtent { position: u64 },
    #[error("cluster {cluster}: {blocks} blocks for an extent; {why}")]
    BlockCount {
        cluster: u64,
        blocks: u64,
        why: &'static str,
    },
    #[error("extent at {start} starts behind the end of the file of {size} bytes")]
    Start { start: u64, size: u64 },
    #[error("{len} bytes are stored in {stored}")]
    Plain { len: u64, stored: u64 },
    #[error("extent of {len} bytes; 2^32 are too many")]
    ExtentLen { len: u64 },
    #[error("an extent lies at {:#x}..{:#x}, where there is no data", .range.start, .range.end)]
    DataOutside { range: Range<u64> },
    #[error("an inline tail lies at {:#x}..{:#x}; the metadata ends at {len:#x}", .range.start, .range.end)]
    TailOutside { range: Range<u64>, len: u64 },
    #[error("inline tail: {source}")]
    Tail { source: DecodeError },
    #[error("record {record} starts at {start} of the file, the one before at {before}")]
    RecordOrder {
        record: u64,
        start: u64,
        before: u64,
    },
}

impl ZmapCheck {
    /// Creates the error of this check, failed on the structure at `offset` of the metadata.
    pub fn at(self, node: NodeId, offset: u64) -> Error {
        Corrupt::new("erofs", Some(node), offset, self).into()
    }
}
