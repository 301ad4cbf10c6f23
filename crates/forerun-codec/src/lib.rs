//! The compression codecs of filesystem images behind one closed enum.
//!
//! A driver names the codec of a block; the engine calls [`Codec::decode`] with the stored bytes and
//! a buffer of the decoded length. A writer makes an [`Encoder`] for each of its threads from an
//! [`Encoding`]: the codec with its options. Nothing here reads, allocates by an image's field, or
//! keeps state that a caller can see: contexts are reused per thread.

mod encode;
mod encoding;
mod lz4;
mod lzma;
mod lzo;
mod xz;
mod zlib;
mod zstd;

pub use encode::Encoder;
pub use encoding::{
    Bcj, BcjSet, Encoding, EncodingError, LzoAlgorithm, ZlibStrategies, ZlibStrategy,
};

/// What a stored block is compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// DEFLATE in a zlib wrapper (RFC 1950).
    Zlib,
    /// LZMA in the `.lzma` ("LZMA alone") container, with or without the decoded length in it.
    Lzma,
    /// LZO1X, as a bare stream.
    Lzo,
    /// XZ, as a whole stream with its headers; BCJ filters are named in it.
    Xz,
    /// LZ4, as a bare block.
    Lz4,
    /// Zstandard, as one frame.
    Zstd,
}

/// Why a block could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes are not a valid stream.
    #[error("the compressed data is damaged")]
    Damaged,
    /// The stream ends before the declared length.
    #[error("it decodes to {actual} bytes instead of {expected}")]
    Short {
        /// Bytes that came out.
        actual: usize,
        /// Bytes that were declared.
        expected: usize,
    },
    /// The stream goes on past the declared length.
    #[error("it decodes to more than the declared {expected} bytes")]
    Long {
        /// Bytes that were declared.
        expected: usize,
    },
}

impl Codec {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Lzma => "lzma",
            Self::Lzo => "lzo",
            Self::Xz => "xz",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Decodes all of `input` into all of `out`.
    ///
    /// # Errors
    /// Where the input is damaged or does not decode to exactly `out.len()` bytes. `out` then holds
    /// bytes that must not be used.
    pub fn decode(self, input: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let expected = out.len();
        match self.decode_up_to(input, out)? {
            actual if actual == expected => Ok(()),
            actual => Err(DecodeError::Short { actual, expected }),
        }
    }

    /// Decodes all of `input` into the front of `out` and gives the number of bytes that came out.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`], and [`DecodeError::Long`] where `out` is too small. `out` then
    /// holds bytes that must not be used.
    pub fn decode_up_to(self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        match self {
            Self::Zlib => zlib::decode(input, out),
            Self::Lzma => lzma::decode(input, out),
            Self::Lzo => lzo::decode(input, out),
            Self::Xz => xz::decode(input, out),
            Self::Lz4 => lz4::decode(input, out),
            Self::Zstd => zstd::decode(input, out),
        }
    }
}
