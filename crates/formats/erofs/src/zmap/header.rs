//! The map header: eight bytes after the inode, with several meanings.

use forerun_io::ReadAt;
use forerun_vfs::{Error, Result};

use super::check::ZmapCheck;
use super::{CompressedInode, Config, IndexLayout, feature};

const LEN: u64 = 8;

/// Bits of the header's `h_advise`.
mod advise {
    /// Compacted index: uses packs of 16 clusters.
    pub const COMPACTED_2B: u16 = 0x0001;
    /// Full layout: extent records instead of an index.
    pub const EXTENTS: u16 = 0x0001;
    /// With extent records: position of the log2 of the record length in units of four bytes.
    pub const RECORD_SHIFT: u32 = 1;
    pub const RECORD_MASK: u16 = 0x3;
    pub const BIG_PCLUSTER_1: u16 = 0x0002;
    pub const BIG_PCLUSTER_2: u16 = 0x0004;
    pub const INLINE_PCLUSTER: u16 = 0x0008;
    pub const INTERLACED_PCLUSTER: u16 = 0x0010;
    pub const FRAGMENT_PCLUSTER: u16 = 0x0020;
}

/// Top bit of the header as one number: the whole file is in the packed inode.
const FRAGMENT_INODE: u64 = 1 << 63;

pub enum Header {
    Fragment { offset: u64 },
    Records(Records),
    Index(Index),
}

pub struct Records {
    /// Offset after the header.
    pub end: u64,
    pub len: u64,
    /// Number of records, if they hold the starts of extents.
    pub count: u64,
    /// log2 of the extent length, if they do not.
    pub bits: u8,
    pub interlaced: bool,
    pub fragment: bool,
}

pub struct Index {
    /// Offset after the header.
    pub end: u64,
    /// log2 of the cluster length.
    pub bits: u8,
    pub packs_of_16: bool,
    /// The algorithms of the two kinds of compressed heads.
    pub algorithms: [u8; 2],
    /// For each kind, whether extents may have several blocks.
    pub big: [bool; 2],
    pub interlaced: bool,
    pub tail: Tail,
}

/// Where the last extent is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// In blocks, like the others.
    None,
    /// After the index, with this length.
    Inline { len: u16 },
    /// In the packed inode. A full index may hold more bits of the offset.
    Fragment { offset: u32 },
}

impl Header {
    /// Returns the offset after the header. `inode` is the end of the inode and its xattrs.
    pub const fn end(inode: u64) -> u64 {
        inode.next_multiple_of(LEN) + LEN
    }

    pub fn read(meta: &dyn ReadAt, config: &Config<'_>, inode: &CompressedInode) -> Result<Self> {
        let at = inode.end.checked_next_multiple_of(LEN);
        let at = at.filter(|&at| at.checked_add(LEN).is_some_and(|end| end <= meta.len()));
        let Some(at) = at else {
            let end = inode.end.saturating_add(LEN);
            let len = meta.len();
            return Err(ZmapCheck::HeaderOutside { end, len }.at(inode.node, inode.end));
        };
        let mut bytes = [0; 8];
        let read = meta.read_exact_at(at, &mut bytes);
        read.map_err(|error| Error::io(at, bytes.len(), error))?;
        // Older writers left the header's bytes unset in the full layout.
        let is_new =
            feature::BIG_PCLUSTER | feature::ZTAILPACKING | feature::FRAGMENTS | feature::BITS_48;
        if inode.layout == IndexLayout::Full && config.features & is_new == 0 {
            bytes = [0; 8];
        }
        let header = Self::parse(bytes, config, inode.layout, at + LEN);
        header.map_err(|check| check.at(inode.node, at))
    }

    fn parse(
        bytes: [u8; 8],
        config: &Config<'_>,
        layout: IndexLayout,
        end: u64,
    ) -> Result<Self, ZmapCheck> {
        let [low @ .., a0, a1, algorithms, cluster] = bytes;
        let advice = u16::from_le_bytes([a0, a1]);
        let has = |bit| advice & bit != 0;
        let all = u64::from_le_bytes(bytes);
        let needs = |what, bit| match config.features & bit {
            0 => Err(ZmapCheck::Feature {
                what,
                features: config.features,
            }),
            _ => Ok(()),
        };
        let low = u32::from_le_bytes(low);
        let bits = config.block_bits + (cluster & 0x0F);
        if all & FRAGMENT_INODE != 0 {
            needs("data in the packed inode", feature::FRAGMENTS)?;
            let offset = all & !FRAGMENT_INODE;
            return Ok(Self::Fragment { offset });
        }
        if layout == IndexLayout::Full && has(advise::EXTENTS) {
            needs("encoded extents", feature::BITS_48)?;
            let high = u64::from(algorithms) | u64::from(cluster) << 8;
            return Ok(Self::Records(Records {
                end,
                len: 4 << (advice >> advise::RECORD_SHIFT & advise::RECORD_MASK),
                count: u64::from(low) | high << 32,
                bits,
                interlaced: has(advise::INTERLACED_PCLUSTER),
                fragment: has(advise::FRAGMENT_PCLUSTER),
            }));
        }
        let packs_of_16 = layout == IndexLayout::Compact && has(advise::COMPACTED_2B);
        let max = match layout {
            IndexLayout::Full => 16,
            IndexLayout::Compact if packs_of_16 => 12,
            IndexLayout::Compact => 14,
        };
        if bits > max {
            return Err(ZmapCheck::ClusterBits { bits, max });
        }
        let big = [has(advise::BIG_PCLUSTER_1), has(advise::BIG_PCLUSTER_2)];
        if big != [false; 2] {
            needs("a cluster of several blocks", feature::BIG_PCLUSTER)?;
        }
        let [_, _, high @ ..] = low.to_le_bytes();
        let tail = match (has(advise::INLINE_PCLUSTER), has(advise::FRAGMENT_PCLUSTER)) {
            (false, false) => Tail::None,
            // Linux does not ask for the feature, so only `check` does.
            (true, false) => match u16::from_le_bytes(high) {
                0 => Tail::None,
                len => Tail::Inline { len },
            },
            (false, true) => {
                needs("a tail in the packed inode", feature::FRAGMENTS)?;
                Tail::Fragment { offset: low }
            }
            (true, true) => return Err(ZmapCheck::TwoTails),
        };
        Ok(Self::Index(Index {
            end,
            bits,
            packs_of_16,
            algorithms: [algorithms & 0x0F, algorithms >> 4],
            big,
            interlaced: has(advise::INTERLACED_PCLUSTER),
            tail,
        }))
    }
}
