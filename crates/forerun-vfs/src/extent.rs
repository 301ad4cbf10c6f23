//! Where the bytes of a file are.

use std::ops::Range;
use std::sync::Arc;

use forerun_codec::Codec;
use forerun_io::{BlobId, BlockKey};

/// A piece of a file and where to get it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Byte range in the file; never empty.
    pub logical: Range<u64>,
    /// Where the bytes are.
    pub place: Place,
}

/// The ways an image keeps file data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Zeros that are not stored: a hole, a sparse block.
    Zero,
    /// Bytes as they are.
    Stored {
        /// The store.
        blob: BlobId,
        /// Offset of the first byte.
        offset: u64,
    },
    /// Part of a block that must be decoded first.
    Encoded {
        /// The block.
        block: EncodedBlock,
        /// Bytes of the decoded block before the first of this extent.
        skip: u32,
    },
    /// Bytes that came along with the metadata; as many as the extent is long.
    Inline(Arc<[u8]>),
}

/// A compressed block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodedBlock {
    /// The store.
    pub blob: BlobId,
    /// Offset of the first compressed byte.
    pub offset: u64,
    /// Compressed length, in bytes.
    pub len: u32,
    /// What it is compressed with.
    pub codec: Codec,
    /// Its length when decoded.
    pub decoded_len: DecodedLen,
}

/// What the image says about the length of a decoded block, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodedLen {
    /// Exactly so many: anything else is damage.
    Exact(u32),
    /// Up to so many: the image keeps only the bound, as SquashFS does for fragment blocks. An
    /// extent that reaches past what comes out is damage.
    AtMost(u32),
}

impl DecodedLen {
    /// The most bytes that may come out: what a buffer must hold.
    #[must_use]
    pub const fn max(self) -> u32 {
        match self {
            Self::Exact(len) | Self::AtMost(len) => len,
        }
    }
}

impl EncodedBlock {
    /// What the decoded block is cached under.
    #[must_use]
    pub const fn key(&self) -> BlockKey {
        BlockKey {
            blob: self.blob,
            offset: self.offset,
        }
    }

    /// The compressed bytes, as a range of the store.
    #[must_use]
    pub fn stored(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(u64::from(self.len))
    }
}
