//! An extent of a cluster index: from its head to the next head, with its blocks.

use std::ops::{ControlFlow, Range};

use super::Piece;
use super::check::ZmapCheck;
use super::header::{self, Tail};
use super::index::{ExtentHead, Kind};
use super::place::{Algorithm, Failed, Placing, Source};

#[derive(Clone, Debug)]
pub struct Span {
    pub cluster: u64,
    pub head: ExtentHead,
    pub logical: Range<u64>,
    pub blocks: u64,
    /// The next cluster with a head, or the cluster count.
    pub next: u64,
}

/// Returns the block count of an extent: 1 unless the cluster after its head holds another number.
pub fn blocks(
    header: &header::Index,
    kind: Kind,
    inner: bool,
    counted: Option<u64>,
) -> Result<u64, &'static str> {
    let [first, second] = header.big;
    let big = match kind {
        Kind::First => first,
        Kind::Second => second,
        Kind::Plain => first || second,
    };
    match counted {
        Some(_) if !big => Err("extents of this file have one block"),
        Some(blocks) => Ok(blocks),
        // An extent inside one cluster has no entry that could hold a count, and uncompressed
        // extents may omit it.
        None if big && inner && kind != Kind::Plain => Err("they are not counted"),
        None => Ok(1),
    }
}

impl Span {
    /// Visits the pieces of the extent, whose first block is `block`. `tail` is the start of an
    /// inline tail, and whether this is the last extent.
    pub fn give(
        &self,
        placing: &Placing<'_>,
        header: &header::Index,
        block: u64,
        tail: (u64, bool),
        visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Failed> {
        let logical = self.logical.clone();
        let (behind, is_last) = tail;
        let bits = u32::from(placing.config.block_bits);
        let at = block << bits;
        let stored = at..at + (self.blocks << bits);
        let source = match header.tail {
            Tail::Fragment { offset } if is_last => {
                let high = match placing.inode.layout {
                    // A fragment has no blocks, so its block field holds the high half of the
                    // offset.
                    super::IndexLayout::Full => block << 32,
                    super::IndexLayout::Compact => 0,
                };
                let offset = u64::from(offset) | high;
                return Ok(visit(Piece::Fragment { logical, offset }));
            }
            Tail::Inline { len } if is_last => Source::Meta(behind..behind + u64::from(len)),
            Tail::None | Tail::Fragment { .. } | Tail::Inline { .. } => Source::Data(stored),
        };
        if let (Source::Data(_), 0) = (&source, self.blocks) {
            let (cluster, blocks, why) = (self.cluster, 0, "it has none");
            return Err(ZmapCheck::BlockCount {
                cluster,
                blocks,
                why,
            }
            .into());
        }
        let [first, second] = header.algorithms;
        let algorithm = match self.head.kind {
            Kind::First => Algorithm::Id(first),
            Kind::Second => Algorithm::Id(second),
            Kind::Plain if header.interlaced => Algorithm::Interlaced,
            Kind::Plain => Algorithm::Plain,
        };
        placing.give(logical, source, algorithm, self.head.partial, visit)
    }
}
