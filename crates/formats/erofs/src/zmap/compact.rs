//! The compacted index: packs of clusters, each pack with one block address.
//!
//! A pack holds 2 clusters in 8 bytes or 16 in 32. Its last four bytes are the base address, from
//! which the blocks of its heads are counted. The other bits are a codeword for each cluster: two
//! bits of kind above an offset or a distance. Packs of 16 are aligned and always full, so the
//! clusters before the first aligned position and after the last full pack are in packs of 2.
//!
//! A cluster inside an extent stores the distance back to its head. The last cluster of a pack
//! stores the distance to the next head instead; its distance back follows from the previous
//! cluster.

use forerun_io::usize_from;

use super::index::{CBLKCNT, ExtentHead, IndexEntry, Kind};

const SMALL: PackShape = PackShape {
    len: 8,
    clusters: 2,
};
const LARGE: PackShape = PackShape {
    len: 32,
    clusters: 16,
};

#[derive(Clone, Copy)]
struct PackShape {
    len: u64,
    clusters: u64,
}

#[derive(Clone, Copy, Debug)]
pub struct Packs {
    start: u64,
    /// Clusters in the small packs before the large ones.
    front: u64,
    large: u64,
    /// log2 of the cluster length.
    bits: u8,
    /// Whether the index counts the blocks of extents. Otherwise each extent has one block, and the
    /// base address is one too low.
    counted: bool,
}

/// A pack, and a cluster in it.
pub struct Place {
    pub offset: u64,
    pub large: bool,
    /// Position of the cluster in the pack.
    index: u32,
}

impl Packs {
    pub const fn new(start: u64, clusters: u64, large: bool, bits: u8, counted: bool) -> Self {
        // Small packs fill the space up to the alignment.
        let gap = (LARGE.len - start % LARGE.len) % LARGE.len;
        let front = gap / (SMALL.len / SMALL.clusters);
        let (front, large) = if large && front < clusters {
            let rest = clusters - front;
            (front, rest - rest % LARGE.clusters)
        } else {
            (clusters, 0)
        };
        Self {
            start,
            front,
            large,
            bits,
            counted,
        }
    }

    /// Returns the end of the packs of `clusters`, or `None` if it overflows.
    pub fn end(&self, clusters: u64) -> Option<u64> {
        match clusters.checked_sub(1) {
            None => Some(self.start),
            Some(last) => {
                let place = self.find(last)?;
                let shape = if place.large { LARGE } else { SMALL };
                place.offset.checked_add(shape.len)
            }
        }
    }

    pub fn find(&self, cluster: u64) -> Option<Place> {
        let front = self.front / SMALL.clusters * SMALL.len;
        let in_large = cluster.checked_sub(self.front);
        let (base, rest, shape) = match in_large {
            None => (0, cluster, SMALL),
            Some(rest) if rest < self.large => (front, rest, LARGE),
            Some(rest) => {
                let packs = self.large / LARGE.clusters;
                let base = front.checked_add(packs.checked_mul(LARGE.len)?)?;
                (base, rest - self.large, SMALL)
            }
        };
        let pack = (rest / shape.clusters).checked_mul(shape.len)?;
        let offset = self.start.checked_add(base)?.checked_add(pack)?;
        let index = u32::try_from(rest % shape.clusters).ok()?;
        Some(Place {
            offset,
            large: shape.len == LARGE.len,
            index,
        })
    }

    pub fn entry(&self, place: &Place, pack: &[u8]) -> IndexEntry {
        let code = self.code(pack, place.index);
        if let Some(kind) = code.kind {
            return IndexEntry::Head(ExtentHead {
                kind,
                offset: u64::from(code.low),
                partial: false,
            });
        }
        if let Some(blocks) = code.blocks() {
            return IndexEntry::Inner {
                back: 1,
                blocks: Some(u64::from(blocks)),
            };
        }
        let last = pack_clusters(pack) - 1;
        let back = if place.index == last {
            let before = place.index.checked_sub(1).map(|at| self.code(pack, at));
            match before {
                Some(before) if before.kind.is_none() && before.blocks().is_none() => {
                    u64::from(before.low) + 1
                }
                Some(before) if before.kind.is_none() => 2,
                _ => 1,
            }
        } else {
            u64::from(code.low)
        };
        IndexEntry::Inner { back, blocks: None }
    }

    /// Returns the block of a head: the base address plus the blocks of earlier extents in the
    /// pack.
    pub fn block(&self, place: &Place, pack: &[u8]) -> u64 {
        let base = pack
            .last_chunk()
            .map_or(0, |&base| u32::from_le_bytes(base));
        let mut block = u64::from(base);
        if !self.counted {
            let heads = (0..=place.index).filter(|&at| self.code(pack, at).kind.is_some());
            return heads.fold(block, |block, _| block + 1);
        }
        // A head counts as one block until the next cluster gives the real count.
        let mut after_head = false;
        for at in 0..place.index {
            let code = self.code(pack, at);
            match code.blocks() {
                Some(blocks) => block += u64::from(blocks),
                None => block += u64::from(after_head),
            }
            after_head = code.kind.is_some();
        }
        block + u64::from(after_head)
    }

    fn code(&self, pack: &[u8], index: u32) -> Code {
        let width = if pack.len() > 8 { 14 } else { 16 };
        let bit = index * width;
        let byte = usize_from(u64::from(bit / 8));
        // A codeword fits in four bytes wherever it starts in the first one. They are in the pack,
        // because the base address follows the codewords.
        let four = pack.get(byte..).and_then(|rest| rest.first_chunk());
        let word = four.map_or(0, |&four| u32::from_le_bytes(four)) >> (bit % 8);
        let low_bits = u32::from(self.bits.max(12));
        Code {
            kind: Kind::of(word >> low_bits & 3),
            low: word & ((1 << low_bits) - 1),
        }
    }
}

fn pack_clusters(pack: &[u8]) -> u32 {
    if pack.len() > 8 { 16 } else { 2 }
}

struct Code {
    /// `None` for a cluster inside an extent.
    kind: Option<Kind>,
    low: u32,
}

impl Code {
    /// Returns the block count of the extent that started in the previous cluster, if it is stored
    /// here.
    fn blocks(&self) -> Option<u32> {
        let flag = u32::from(CBLKCNT);
        (self.kind.is_none() && self.low & flag != 0).then_some(self.low & !flag)
    }
}
