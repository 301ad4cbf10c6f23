//! The places where the bytes of a file are stored.

use std::ops::Range;
use std::sync::Arc;

use forerun_codec::{Codec, DecodeError};
use forerun_io::{BlobId, BlockKey};

/// A range of a file, and the place of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Byte range in the file; never empty. It ends at or before [`Self::LAST`].
    pub logical: Range<u64>,
    /// The place of the bytes. In their blob, they end at or before [`Self::LAST`].
    pub place: Place,
}

impl Extent {
    /// The largest offset at which a file or a blob may end.
    pub const LAST: u64 = i64::MAX.unsigned_abs();

    /// Returns whether the extent ends at or before [`Self::LAST`], in its file and in its blob.
    /// Offsets in such an extent are added without further checks.
    #[must_use]
    pub fn is_addressable(&self) -> bool {
        let Range { start, end } = self.logical;
        let (offset, len) = match &self.place {
            Place::Zero | Place::Inline(_) => (0, 0),
            Place::Stored { offset, .. } => (*offset, end.saturating_sub(start)),
            Place::Encoded { block, .. } => (block.offset, u64::from(block.len)),
        };
        let stored_end = offset.checked_add(len);
        start <= end && end <= Self::LAST && stored_end.is_some_and(|end| end <= Self::LAST)
    }
    /// Returns whether the extent is the whole of a block whose decoded length is known.
    #[must_use]
    pub fn is_whole_block(&self) -> bool {
        let len = self.logical.end - self.logical.start;
        match self.place {
            Place::Encoded { block, skip: 0 } => {
                matches!(block.decoded_len, DecodedLen::Exact(whole) if u64::from(whole) == len)
            }
            _ => false,
        }
    }
}

/// The ways in which an image stores file data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Zeros that are not stored: a hole or a sparse block.
    Zero,
    Stored {
        blob: BlobId,
        /// Offset of the first byte in the blob.
        offset: u64,
    },
    /// Part of a block that must be decoded first.
    Encoded {
        block: EncodedBlock,
        /// Bytes of the decoded block before the extent.
        skip: u32,
    },
    /// Bytes that were read with the metadata; exactly as many as the extent has.
    Inline(Arc<[u8]>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EncodedBlock {
    pub blob: BlobId,
    /// Offset of the first compressed byte in the blob.
    pub offset: u64,
    /// Compressed length, in bytes.
    pub len: u32,
    pub codec: Codec,
    /// The length after decoding.
    pub decoded_len: DecodedLen,
    /// Whether padding precedes the compressed stream.
    pub padding: Padding,
}

/// Where the compressed stream of a block starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Padding {
    /// At the first byte of the block.
    None,
    /// At the first non-zero byte. The stream ends with the block.
    Leading,
}

/// The length of a decoded block that the image declares, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DecodedLen {
    /// Exactly this length; any other is damage.
    Exact(u32),
    /// At most this length: the image stores only the bound, as SquashFS does for fragment blocks.
    /// An extent that reaches past the decoded bytes is damage.
    AtMost(u32),
    /// This many bytes at the start of a stream, which may be longer or have other bytes after it.
    /// A stream that ends earlier is damage.
    Prefix(u32),
}

impl DecodedLen {
    /// Returns the largest decoded length, which is the buffer length that decoding needs.
    #[must_use]
    pub const fn max(self) -> u32 {
        match self {
            Self::Exact(len) | Self::AtMost(len) | Self::Prefix(len) => len,
        }
    }
}

impl EncodedBlock {
    /// Returns the key of the decoded block in caches.
    #[must_use]
    pub const fn key(&self) -> BlockKey {
        BlockKey {
            blob: self.blob,
            offset: self.offset,
            decoded: self.decoded_len.max(),
        }
    }

    /// Returns the range of the blob that holds the compressed bytes.
    #[must_use]
    pub fn stored(&self) -> Range<u64> {
        self.offset..self.offset + u64::from(self.len)
    }

    /// Decodes the compressed bytes into the start of `out`, which holds [`DecodedLen::max`] bytes.
    /// Returns the decoded length.
    ///
    /// # Errors
    /// If the bytes are damaged, or contradict [`Self::decoded_len`]. The contents of `out` must
    /// not be used then.
    pub fn decode(&self, stored: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        self.decode_after(&[], stored, out)
    }

    /// Decodes as [`Self::decode`] does, after the bytes that
    /// [`History::history`](crate::History::history) returns for the block.
    ///
    /// # Errors
    /// The errors of [`Self::decode`].
    pub fn decode_after(
        &self,
        history: &[u8],
        stored: &[u8],
        out: &mut [u8],
    ) -> Result<usize, DecodeError> {
        let stream = match self.padding {
            Padding::None => stored,
            Padding::Leading => {
                let start = stored.iter().position(|&byte| byte != 0);
                &stored[start.unwrap_or(0)..]
            }
        };
        let len = out.len();
        match self.decoded_len {
            DecodedLen::Exact(_) => {
                let decoded = self.codec.decode_after(history, stream, out);
                decoded.map(|()| len)
            }
            DecodedLen::AtMost(_) => self.codec.decode_up_to(stream, out),
            DecodedLen::Prefix(_) => self.codec.decode_prefix(stream, out).map(|()| len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(decoded_len: DecodedLen, padding: Padding) -> EncodedBlock {
        EncodedBlock {
            blob: BlobId::IMAGE,
            offset: 0,
            len: 6,
            codec: Codec::Lz4,
            decoded_len,
            padding,
        }
    }

    /// An LZ4 stream of three literals.
    const STREAM: [u8; 4] = [0x30, b'a', b'b', b'c'];

    #[test]
    fn zeros_in_front_are_no_part_of_the_stream() {
        let stored = [&[0, 0][..], &STREAM].concat();
        let mut out = [0; 3];
        let padded = block(DecodedLen::Exact(3), Padding::Leading);
        assert_eq!(padded.decode(&stored, &mut out), Ok(3));
        assert_eq!(&out, b"abc");
        let bare = block(DecodedLen::Exact(3), Padding::None);
        assert!(bare.decode(&stored, &mut out).is_err());
        assert!(padded.decode(&[0; 6], &mut out).is_err());
    }

    #[test]
    fn a_prefix_takes_what_it_needs_of_a_stream() {
        let stored = [&STREAM[..], &[0, 0]].concat();
        let mut out = [0; 2];
        let prefix = block(DecodedLen::Prefix(2), Padding::None);
        assert_eq!(prefix.decode(&stored, &mut out), Ok(2));
        assert_eq!(&out, b"ab");
        let exact = block(DecodedLen::Exact(2), Padding::None);
        assert!(exact.decode(&stored, &mut out).is_err());
    }

    #[test]
    fn different_prefixes_are_kept_apart() {
        let key = |len| block(DecodedLen::Prefix(len), Padding::None).key();
        assert_ne!(key(2), key(3));
        assert_eq!(key(2), key(2));
    }

    #[test]
    fn an_extent_that_ends_behind_the_last_offset_is_not_addressable() {
        let last = Extent::LAST;
        let stored = |offset| Place::Stored {
            blob: BlobId::IMAGE,
            offset,
        };
        let encoded = |offset| Place::Encoded {
            block: EncodedBlock {
                offset,
                ..block(DecodedLen::Exact(3), Padding::None)
            },
            skip: 0,
        };
        for (logical, place, expected) in [
            (last - 1..last, Place::Zero, true),
            (last..last + 1, Place::Zero, false),
            (u64::MAX - 1..u64::MAX, Place::Inline([0].into()), false),
            (5..15, stored(last - 10), true),
            (5..15, stored(last - 9), false),
            (5..15, stored(u64::MAX), false),
            (0..3, encoded(last - 6), true),
            (0..3, encoded(last - 5), false),
            (0..3, encoded(u64::MAX), false),
        ] {
            let extent = Extent { logical, place };
            assert_eq!(extent.is_addressable(), expected, "{extent:?}");
        }
    }
}
