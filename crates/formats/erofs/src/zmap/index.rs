//! A cluster index in either layout, and the walk along it.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{Bound, Error, Result};

use super::bytes::Bytes;
use super::check::ZmapCheck;
use super::compact::Packs;
use super::header;
use super::place::Placing;
use super::span::{self, Span};
use super::{IndexLayout, Piece, full};

/// Flag of a distance: the other bits are the extent's block count.
pub const CBLKCNT: u16 = 0x0800;

/// Most clusters examined for one extent: 4 GiB in clusters of 4 KiB. Only extents in the packed
/// inode come near that.
const MAX_CLUSTERS: u64 = 1 << 20;

/// The kind of extent that starts in a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Stored uncompressed.
    Plain,
    /// Compressed with the first algorithm.
    First,
    /// Compressed with the second algorithm.
    Second,
}

impl Kind {
    /// Returns the kind of a head, or `None` for a cluster inside an extent.
    pub const fn of(bits: u32) -> Option<Self> {
        match bits {
            0 => Some(Self::Plain),
            1 => Some(Self::First),
            3 => Some(Self::Second),
            _ => None,
        }
    }
}

/// A cluster in which an extent starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtentHead {
    pub kind: Kind,
    /// Where the extent starts in the cluster.
    pub offset: u64,
    /// Whether the compressed stream continues past the extent.
    pub partial: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexEntry {
    Head(ExtentHead),
    Inner {
        /// Clusters back to the head, or to another cluster of the extent.
        back: u64,
        /// Block count of the extent, in the first cluster after the head.
        blocks: Option<u64>,
    },
}

pub struct Clusters<'m> {
    bytes: Bytes<'m>,
    packing: IndexForm,
    pub bits: u8,
    pub count: u64,
    /// End of the index, where an inline tail starts.
    pub end: u64,
}

enum IndexForm {
    Full { start: u64 },
    Compact(Packs),
}

impl<'m> Clusters<'m> {
    pub fn new(placing: &Placing<'m>, header: &header::Index) -> Result<Self, ZmapCheck> {
        let len = placing.meta.len();
        let clusters = placing.inode.size.div_ceil(1 << header.bits);
        let (packing, start, end) = match placing.inode.layout {
            IndexLayout::Full => {
                let start = header.end + full::GAP;
                let bytes = clusters.checked_mul(full::LEN);
                let end = bytes.and_then(|bytes| start.checked_add(bytes));
                (IndexForm::Full { start }, start, end)
            }
            IndexLayout::Compact => {
                // Both kinds of heads must count blocks, or neither.
                let [counted, second] = header.big;
                if counted != second && (second || uses_second(header)) {
                    let what = "a compact index that counts blocks for one of two algorithms";
                    let features = placing.config.features;
                    return Err(ZmapCheck::Feature { what, features });
                }
                let start = header.end;
                let large = header.packs_of_16;
                let packs = Packs::new(start, clusters, large, header.bits, counted);
                (IndexForm::Compact(packs), start, packs.end(clusters))
            }
        };
        let outside = ZmapCheck::IndexOutside {
            clusters,
            end: end.unwrap_or(u64::MAX),
            len,
        };
        let end = end.filter(|&end| end <= len).ok_or(outside)?;
        Ok(Self {
            bytes: Bytes::new(placing.meta, start, end),
            packing,
            bits: header.bits,
            count: clusters,
            end,
        })
    }

    /// Returns the offset of the entry or pack of a cluster.
    pub fn offset(&self, cluster: u64) -> u64 {
        match &self.packing {
            IndexForm::Full { start } => start + cluster * full::LEN,
            IndexForm::Compact(packs) => packs.find(cluster).map_or(self.end, |pack| pack.offset),
        }
    }

    pub fn entry(&mut self, cluster: u64) -> Result<Result<IndexEntry, ZmapCheck>> {
        Ok(match &self.packing {
            IndexForm::Full { .. } => {
                let raw = self.bytes.get(self.offset(cluster))?;
                full::entry(raw, cluster)
            }
            IndexForm::Compact(packs) => {
                let packs = *packs;
                Ok(self.with_pack(cluster, |place, pack| packs.entry(place, pack))?)
            }
        })
    }

    /// Reads the block of a head.
    pub fn block(&mut self, cluster: u64) -> Result<u64> {
        match &self.packing {
            IndexForm::Full { .. } => {
                let raw = self.bytes.get(self.offset(cluster))?;
                Ok(u64::from(full::block(raw)))
            }
            IndexForm::Compact(packs) => {
                let packs = *packs;
                self.with_pack(cluster, |place, pack| packs.block(place, pack))
            }
        }
    }

    fn with_pack<T>(
        &mut self,
        cluster: u64,
        read: impl FnOnce(&super::compact::Place, &[u8]) -> T,
    ) -> Result<T> {
        let found = match &self.packing {
            IndexForm::Compact(packs) => packs.find(cluster),
            IndexForm::Full { .. } => None,
        };
        let missing = || Error::io(self.end, 0, std::io::ErrorKind::UnexpectedEof.into());
        let place = found.ok_or_else(missing)?;
        if place.large {
            let pack: [u8; 32] = self.bytes.get(place.offset)?;
            Ok(read(&place, &pack))
        } else {
            let pack: [u8; 8] = self.bytes.get(place.offset)?;
            Ok(read(&place, &pack))
        }
    }
}

const fn uses_second(header: &header::Index) -> bool {
    let [_, second] = header.algorithms;
    second != 0
}

/// Returns the offset after the index.
pub fn end(placing: &Placing<'_>, header: &header::Index) -> Result<u64> {
    match Clusters::new(placing, header) {
        Ok(clusters) => Ok(clusters.end),
        Err(check) => Err(check.at(placing.inode.node, header.end)),
    }
}

pub fn map(
    placing: &Placing<'_>,
    header: &header::Index,
    range: Range<u64>,
    visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<()> {
    let node = placing.inode.node;
    let clusters = Clusters::new(placing, header);
    let mut clusters = clusters.map_err(|check| check.at(node, header.end))?;
    let mut walk = Walk {
        placing,
        clusters: &mut clusters,
        header,
    };
    let mut at = walk.head_before(range.start)?;
    while at < walk.clusters.count {
        let span = walk.span(at)?;
        if span.logical.is_empty() {
            break;
        }
        at = span.next;
        if span.logical.end <= range.start {
            continue;
        }
        if walk.give(&span, visit)?.is_break() || span.logical.end >= range.end {
            break;
        }
    }
    Ok(())
}

struct Walk<'w, 'm> {
    placing: &'w Placing<'m>,
    clusters: &'w mut Clusters<'m>,
    header: &'w header::Index,
}

impl Walk<'_, '_> {
    fn fail<T>(&self, check: ZmapCheck, cluster: u64) -> Result<T> {
        let offset = self.clusters.offset(cluster);
        Err(check.at(self.placing.inode.node, offset))
    }

    fn entry(&mut self, cluster: u64) -> Result<IndexEntry> {
        match self.clusters.entry(cluster)? {
            Ok(entry) => Ok(entry),
            Err(check) => self.fail(check, cluster),
        }
    }

    /// Finds a cluster in which an extent starts at or before `position`.
    fn head_before(&mut self, position: u64) -> Result<u64> {
        let bits = self.clusters.bits;
        let first = position >> bits;
        let mut at = first;
        loop {
            let back = match self.entry(at)? {
                IndexEntry::Head(head) if (at << bits) + head.offset <= position => {
                    return Ok(at);
                }
                IndexEntry::Head(_) => 1,
                IndexEntry::Inner { back, .. } => back,
            };
            let before = at.checked_sub(back).filter(|_| back > 0);
            let Some(before) = before else {
                let check = match at {
                    0 => ZmapCheck::NoExtent { position },
                    _ => ZmapCheck::LookBack {
                        cluster: at,
                        distance: back,
                    },
                };
                return self.fail(check, at);
            };
            if first - before > MAX_CLUSTERS {
                return Err(too_long(first));
            }
            at = before;
        }
    }

    fn span(&mut self, cluster: u64) -> Result<Span> {
        let (bits, count) = (self.clusters.bits, self.clusters.count);
        let IndexEntry::Head(head) = self.entry(cluster)? else {
            let position = cluster << bits;
            return self.fail(ZmapCheck::NoExtent { position }, cluster);
        };
        let start = self.start(cluster, head)?;
        let mut counted = None;
        let mut next = cluster + 1;
        let mut end = self.placing.inode.size;
        while next < count {
            if next - cluster > MAX_CLUSTERS {
                return Err(too_long(cluster));
            }
            match self.entry(next)? {
                IndexEntry::Head(head) => {
                    end = self.start(next, head)?;
                    break;
                }
                IndexEntry::Inner { blocks, .. } if next == cluster + 1 => counted = blocks,
                IndexEntry::Inner { .. } => {}
            }
            next += 1;
        }
        let inner = next > cluster + 1;
        let blocks = match span::blocks(self.header, head.kind, inner, counted) {
            Ok(blocks) => blocks,
            Err(why) => {
                let blocks = counted.unwrap_or(0);
                let check = ZmapCheck::BlockCount {
                    cluster,
                    blocks,
                    why,
                };
                return self.fail(check, cluster);
            }
        };
        Ok(Span {
            cluster,
            head,
            logical: start..end,
            blocks,
            next,
        })
    }

    /// Returns the offset in the file at which the extent of a head starts.
    fn start(&self, cluster: u64, head: ExtentHead) -> Result<u64> {
        let (bits, size) = (self.clusters.bits, self.placing.inode.size);
        let len = 1 << bits;
        let offset = head.offset;
        if offset >= len {
            let check = ZmapCheck::ClusterOffset {
                cluster,
                offset,
                len,
            };
            return self.fail(check, cluster);
        }
        let start = (cluster << bits) + offset;
        // A head at the very end of the file marks the end of the last extent.
        if start > size {
            return self.fail(ZmapCheck::Start { start, size }, cluster);
        }
        Ok(start)
    }

    fn give(
        &mut self,
        span: &Span,
        visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let block = self.clusters.block(span.cluster)?;
        let is_last = span.logical.end == self.placing.inode.size;
        let tail = (self.clusters.end, is_last);
        let given = span.give(self.placing, self.header, block, tail, visit);
        given.map_err(|failed| {
            failed.at(self.placing.inode.node, self.clusters.offset(span.cluster))
        })
    }
}

fn too_long(cluster: u64) -> Error {
    Error::limit(
        Bound::Other,
        format!("clusters of the extent at cluster {cluster}"),
        MAX_CLUSTERS,
    )
}
