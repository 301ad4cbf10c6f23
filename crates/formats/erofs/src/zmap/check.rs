//! The checks that the compressed data of an inode can fail, one variant each.

use std::ops::Range;

use forerun_codec::DecodeError;
use forerun_vfs::{Corrupt, Error, NodeId};

/// A failed check, with the numbers needed to find the bytes. The offset of the header, index entry
/// or record is stored next to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZmapCheck {
    #[error("the compression header ends at {end:#x}, but the metadata ends at {len:#x}")]
    HeaderOutside { end: u64, len: u64 },
    #[error("clusters of 2^{bits} bytes; this layout allows at most 2^{max}")]
    ClusterBits { bits: u8, max: u8 },
    #[error("algorithm {id} is not in the superblock's set {set:#06x}")]
    Algorithm { id: u8, set: u16 },
    #[error("the file has both an inline tail and a fragment")]
    TwoTails,
    #[error("{what}, but the superblock's features ({features:#010x}) do not allow it")]
    Feature { what: &'static str, features: u32 },
    #[error("the index of {clusters} clusters ends at {end:#x}, but the metadata ends at {len:#x}")]
    IndexOutside { clusters: u64, end: u64, len: u64 },
    #[error("cluster {cluster}: an extent starts at byte {offset} of a cluster of {len} bytes")]
    ClusterOffset { cluster: u64, offset: u64, len: u64 },
    #[error("cluster {cluster}: unknown flags {flags:#06x}")]
    EntryFlags { cluster: u64, flags: u16 },
    #[error(
        "cluster {cluster} says that its extent starts {distance} clusters before it, which is impossible"
    )]
    LookBack { cluster: u64, distance: u64 },
    #[error("no extent covers byte {position} of the file")]
    NoExtent { position: u64 },
    #[error("cluster {cluster}: {blocks} blocks for an extent; {why}")]
    BlockCount {
        cluster: u64,
        blocks: u64,
        why: &'static str,
    },
    #[error("extent at {start} starts after the end of the file ({size} bytes)")]
    Start { start: u64, size: u64 },
    #[error("an uncompressed extent of {len} bytes takes {stored} bytes in the image")]
    Plain { len: u64, stored: u64 },
    #[error("extent of {len} bytes; the length must be below 2^32")]
    ExtentLen { len: u64 },
    #[error("an extent is stored at {:#x}..{:#x}, outside the data", .range.start, .range.end)]
    DataOutside { range: Range<u64> },
    #[error("an inline tail lies at {:#x}..{:#x}; the metadata ends at {len:#x}", .range.start, .range.end)]
    TailOutside { range: Range<u64>, len: u64 },
    #[error("inline tail: {source}")]
    Tail { source: DecodeError },
    #[error(
        "extent record {record} starts at byte {start} of the file, but the record before it starts at {before}"
    )]
    RecordOrder {
        record: u64,
        start: u64,
        before: u64,
    },
}

impl ZmapCheck {
    pub fn at(self, node: NodeId, offset: u64) -> Error {
        Corrupt::new("erofs", Some(node), offset, self).into()
    }
}
