//! Headers, indexes and records made by hand.
#![allow(clippy::unwrap_used, clippy::panic, clippy::as_conversions)]

use std::ops::{ControlFlow, Range};

use forerun_codec::Codec;
use forerun_io::{BlobId, MemorySource, ReadAt};
use forerun_vfs::{DecodedLen, EncodedBlock, Error, Extent, NodeId, Padding, Place, Result};

mod hostile;
mod sound;

use super::check::ZmapCheck;
use super::{CompressedInode, Config, IndexLayout, Piece, Sums, feature, map};

const FEATURES: u32 = feature::ZERO_PADDING
    | feature::BIG_PCLUSTER
    | feature::ZTAILPACKING
    | feature::FRAGMENTS
    | feature::BITS_48;

/// The compressed data of a file, in blocks and clusters of 4 KiB unless the header says otherwise.
#[derive(Clone)]
struct Crafted {
    features: u32,
    algorithms: u16,
    layout: IndexLayout,
    size: u64,
    /// Length of the data at physical addresses.
    data: u64,
    in_image: bool,
    meta: Vec<u8>,
}

impl Crafted {
    /// Creates data with all bytes up to the first index entry. The header starts with `low`.
    fn new(
        layout: IndexLayout,
        size: u64,
        low: u32,
        advice: u16,
        algorithms: u8,
        cluster: u8,
    ) -> Self {
        let mut meta = low.to_le_bytes().to_vec();
        meta.extend(advice.to_le_bytes());
        meta.extend([algorithms, cluster]);
        Self {
            features: FEATURES,
            algorithms: 0xF,
            layout,
            size,
            data: 1 << 30,
            in_image: true,
            meta,
        }
    }

    fn full(size: u64, advice: u16, entries: &[Entry]) -> Self {
        let mut crafted = Self::new(IndexLayout::Full, size, 0, advice, 0x31, 0);
        crafted.meta.extend([0; 8]);
        for entry in entries {
            crafted.meta.extend(entry.full());
        }
        crafted
    }

    /// Creates an index of small packs only, each with its base address.
    fn compact(size: u64, advice: u16, packs: &[(Entry, Entry, u32)]) -> Self {
        let mut crafted = Self::new(IndexLayout::Compact, size, 0, advice, 0x31, 0);
        for (first, second, base) in packs {
            crafted.meta.extend(first.code().to_le_bytes());
            crafted.meta.extend(second.code().to_le_bytes());
            crafted.meta.extend(base.to_le_bytes());
        }
        crafted
    }

    fn records(size: u64, advice: u16, count: u32, cluster: u8, words: &[u32]) -> Self {
        let mut crafted = Self::new(IndexLayout::Full, size, count, advice, 0, cluster);
        let len = 4 << (advice >> 1 & 3);
        crafted.meta.resize(8_usize.next_multiple_of(len), 0);
        for word in words {
            crafted.meta.extend(word.to_le_bytes());
        }
        crafted
    }

    fn map(&self, range: Range<u64>) -> Result<Vec<Piece>> {
        self.map_from(
            &MemorySource::new(self.meta.clone()),
            &Sums::default(),
            range,
        )
    }

    fn map_from(&self, meta: &dyn ReadAt, sums: &Sums, range: Range<u64>) -> Result<Vec<Piece>> {
        let locate = |at: u64| Some((BlobId::IMAGE, at, self.data.checked_sub(at)?));
        let config = Config {
            block_bits: 12,
            features: self.features,
            algorithms: self.algorithms,
            locate: &locate,
            sums,
            as_stored: false,
        };
        let inode = CompressedInode {
            node: NodeId(7),
            size: self.size,
            end: 0,
            layout: self.layout,
            in_image: self.in_image,
        };
        let mut pieces = Vec::new();
        map(meta, &config, &inode, range, &mut |piece| {
            pieces.push(piece);
            ControlFlow::Continue(())
        })?;
        Ok(pieces)
    }

    #[track_caller]
    fn gives(&self, expected: &[Piece]) {
        assert_eq!(self.map(0..self.size).unwrap(), expected);
        // A range inside one piece visits that piece only.
        for piece in expected {
            let logical = piece.logical();
            for at in [logical.start, logical.end - 1] {
                let found = self.map(at..at + 1).unwrap();
                assert_eq!(found, std::slice::from_ref(piece), "{at}");
            }
        }
    }

    #[track_caller]
    fn fails(&self, offset: u64, expected: &ZmapCheck) {
        match self.map(0..self.size) {
            Err(Error::Corrupt(corrupt)) => {
                assert_eq!(corrupt.check().downcast_ref::<ZmapCheck>(), Some(expected));
                assert_eq!(
                    (corrupt.offset(), corrupt.node()),
                    (offset, Some(NodeId(7)))
                );
            }
            other => panic!("{other:?} instead of {expected:?}"),
        }
    }
}

#[derive(Clone, Copy)]
enum Entry {
    /// Kind, offset in the cluster, block.
    Head(u16, u16, u32),
    /// A head whose stream continues past the extent.
    Partial(u16, u16, u32),
    Inner(u16),
    Blocks(u16),
}

const PLAIN: u16 = 0;
const LZMA: u16 = 1;
const ZSTD: u16 = 3;

impl Entry {
    fn full(self) -> Vec<u8> {
        let words = |advice: u16, offset: u16, last: u32| {
            [
                &advice.to_le_bytes()[..],
                &offset.to_le_bytes(),
                &last.to_le_bytes(),
            ]
            .concat()
        };
        match self {
            Self::Head(kind, offset, block) => words(kind, offset, block),
            Self::Partial(kind, offset, block) => words(kind | 0x8000, offset, block),
            Self::Inner(back) => words(2, 0, u32::from(back)),
            Self::Blocks(blocks) => words(2, 0, u32::from(blocks | 0x800)),
        }
    }

    fn code(self) -> u16 {
        match self {
            Self::Head(kind, offset, _) | Self::Partial(kind, offset, _) => kind << 12 | offset,
            Self::Inner(distance) => 2 << 12 | distance,
            Self::Blocks(blocks) => 2 << 12 | 0x800 | blocks,
        }
    }
}

fn encoded(logical: Range<u64>, offset: u64, len: u32, codec: Codec) -> Piece {
    let decoded = u32::try_from(logical.end - logical.start).unwrap();
    Piece::Extent(Extent {
        logical,
        place: Place::Encoded {
            block: EncodedBlock {
                blob: BlobId::IMAGE,
                offset,
                len,
                codec,
                decoded_len: DecodedLen::Exact(decoded),
                padding: Padding::Leading,
            },
            skip: 0,
        },
    })
}

fn stored(logical: Range<u64>, offset: u64) -> Piece {
    let blob = BlobId::IMAGE;
    Piece::Extent(Extent {
        logical,
        place: Place::Stored { blob, offset },
    })
}

const K: u64 = 4096;

const FORMAT_ZSTD: u32 = 4 << 28;
