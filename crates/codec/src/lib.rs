//! The compression codecs of filesystem images behind one closed enum.
//!
//! A driver names the codec of a block; the engine calls [`Codec::decode`] with the stored bytes
//! and a buffer of the decoded length, or one of its two variants if the image does not store that
//! length. A writer creates an [`Encoder`] for each of its threads from an [`Encoding`]: the codec
//! with its options.
//!
//! This crate reads no files, allocates nothing by an image's field, and keeps no state that a
//! caller can see: contexts are reused per thread.

mod deflate;
mod deflate_span;
mod encode;
mod encoding;
mod fill;
mod first;
mod gzip;
mod lz4;
mod lz4_blocks;
mod lzma;
mod lzma_bare;
mod lzma_properties;
mod lzma_wide;
mod lzo;
mod microlzma;
mod microlzma_encode;
mod shared;
mod stream;
mod xz;
mod zlib;
mod zstd;

pub use encode::Encoder;
pub use encoding::{
    Bcj, BcjSet, Encoding, EncodingError, LzmaTuning, LzoAlgorithm, ZlibStrategies, ZlibStrategy,
};
pub use fill::{FillEncoder, FillEncoding, Filled};
pub use first::First;
pub use gzip::header_len as gzip_header_len;
pub use lz4_blocks::Lz4Pass;
pub use lzma_bare::BareLzma;
pub use lzma_properties::LzmaProperties;
pub use stream::{Step, StreamDecoder, StreamFormat, StreamPlace};

/// The codec of a stored block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// DEFLATE in a zlib wrapper (RFC 1950).
    Zlib,
    /// A raw DEFLATE stream (RFC 1951).
    Deflate,
    /// DEFLATE blocks from the middle of a stream. They refer to the 32 KiB before them, which
    /// [`Codec::decode_after`] takes.
    DeflateSpan {
        /// Number of bits of the first byte that belong to the preceding block, 0 to 7.
        skip: u8,
    },
    /// One member of DEFLATE in a gzip wrapper (RFC 1952).
    Gzip,
    /// DEFLATE blocks from the middle of a gzip file, as [`Codec::DeflateSpan`], which may continue
    /// in the next members of the file.
    GzipSpan {
        /// Number of bits of the first byte that belong to the preceding block, 0 to 7.
        skip: u8,
    },
    /// Members of a gzip file, from the header of the first on, until the block is full. Checksums
    /// are not verified.
    GzipMembers,
    /// LZMA in the `.lzma` ("LZMA alone") container, whose header may declare the decoded length.
    Lzma,
    /// LZMA with a shorter header than in that container, as firmware vendors store it.
    LzmaBare(BareLzma),
    /// LZMA as EROFS stores it: a raw stream whose first byte, always zero, is replaced by the
    /// complement of the properties. It has no end marker.
    MicroLzma,
    /// A raw LZO1X stream.
    Lzo,
    /// A whole XZ stream with its headers, which name the BCJ filters.
    Xz,
    /// A raw LZ4 block.
    Lz4,
    /// Blocks of an LZ4 frame, each preceded by its length. They may refer to the 64 KiB before
    /// them, which [`Codec::decode_after`] takes.
    Lz4Blocks {
        /// Whether a checksum follows each block. It is not verified.
        checksums: bool,
    },
    /// One Zstandard frame.
    Zstd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    #[error("the compressed data is damaged")]
    Damaged,
    #[error("it decodes to {actual} bytes instead of {expected}")]
    Short { actual: usize, expected: usize },
    #[error("it decodes to more than the declared {expected} bytes")]
    Long { expected: usize },
    #[error("this codec cannot decode a part of a stream")]
    NoPrefix,
    /// The window of the stream is larger than its usual tools accept without an option.
    #[error("decoding it takes more than {limit} bytes of memory")]
    Memory { limit: u64 },
}

impl Codec {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Deflate | Self::DeflateSpan { .. } => "deflate",
            Self::Gzip | Self::GzipSpan { .. } | Self::GzipMembers => "gzip",
            Self::Lzma => "lzma",
            Self::LzmaBare(bare) => bare.name(),
            Self::MicroLzma => "microlzma",
            Self::Lzo => "lzo",
            Self::Xz => "xz",
            Self::Lz4 | Self::Lz4Blocks { .. } => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Decodes all of `input` into all of `out`.
    ///
    /// # Errors
    /// If the input is damaged or does not decode to exactly `out.len()` bytes. The contents of
    /// `out` must not be used then.
    pub fn decode(self, input: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        let expected = out.len();
        match self.decode_up_to(input, out)? {
            actual if actual == expected => Ok(()),
            actual => Err(DecodeError::Short { actual, expected }),
        }
    }

    /// Decodes all of `input` into the start of `out` and returns the decoded length. A stream of
    /// [`Codec::MicroLzma`] does not store its length, so it must fill `out`. A stream of
    /// [`Codec::LzmaBare`] does not store it either: decoding ends with `input` or when `out` is
    /// full. The last decoded bytes may be garbage if `out` is longer than the original data.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`], and [`DecodeError::Long`] if `out` is too small. The contents of
    /// `out` must not be used then.
    pub fn decode_up_to(self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        match self {
            Self::Zlib => zlib::decode(input, out),
            Self::Deflate => deflate::decode(input, out),
            Self::DeflateSpan { skip } => deflate_span::decode(skip, &[], input, out),
            Self::Gzip => gzip::decode(input, out),
            Self::GzipSpan { skip } => gzip::decode_span(skip, &[], input, out),
            Self::GzipMembers => gzip::decode_members(input, out),
            Self::Lzma => lzma::decode(input, out),
            Self::LzmaBare(bare) => bare.decode(input, out),
            Self::MicroLzma => microlzma::decode(input, out),
            Self::Lzo => lzo::decode(input, out),
            Self::Xz => xz::decode(input, out),
            Self::Lz4 => lz4::decode(input, out),
            Self::Lz4Blocks { checksums } => lz4_blocks::decode(checksums, &[], input, out),
            Self::Zstd => zstd::decode(input, out),
        }
    }

    /// Returns whether a block refers to bytes before it, so that [`Codec::decode_after`] must
    /// decode it.
    #[must_use]
    pub const fn refers_back(self) -> bool {
        matches!(
            self,
            Self::DeflateSpan { .. } | Self::GzipSpan { .. } | Self::Lz4Blocks { .. }
        )
    }

    /// Decodes as [`Codec::decode`] does. `history` has the last decoded bytes before `input`: 32
    /// KiB for DEFLATE and 64 KiB for LZ4, or fewer at the start of the stream. DEFLATE blocks are
    /// decoded until `out` is full, and further bytes of `input` are ignored. Codecs that do not
    /// refer back ignore `history`.
    ///
    /// # Errors
    /// The errors of [`Codec::decode`].
    pub fn decode_after(
        self,
        history: &[u8],
        input: &[u8],
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        let expected = out.len();
        let decoded = match self {
            Self::DeflateSpan { skip } => deflate_span::decode(skip, history, input, out),
            Self::GzipSpan { skip } => gzip::decode_span(skip, history, input, out),
            Self::Lz4Blocks { checksums } => lz4_blocks::decode(checksums, history, input, out),
            _ => return self.decode(input, out),
        };
        match decoded? {
            actual if actual == expected => Ok(()),
            actual => Err(DecodeError::Short { actual, expected }),
        }
    }

    /// Decodes the first `out.len()` bytes of a stream into `out`. The stream may be longer, and
    /// other bytes may follow it. Nothing after the wanted prefix is read, and no checksum is
    /// verified.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`], [`DecodeError::Short`] if the stream ends early, and
    /// [`DecodeError::NoPrefix`] for the codecs of formats that have no such blocks. The contents
    /// of `out` must not be used then.
    pub fn decode_prefix(self, input: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        if out.is_empty() {
            return Ok(());
        }
        let expected = out.len();
        let actual = match self {
            Self::Deflate => deflate::decode_prefix(input, out),
            Self::Gzip => gzip::decode_prefix(input, out),
            Self::MicroLzma => microlzma::decode_prefix(input, out),
            Self::Lz4 => lz4::decode_prefix(input, out),
            Self::Zstd => zstd::decode_prefix(input, out),
            Self::Zlib
            | Self::DeflateSpan { .. }
            | Self::GzipSpan { .. }
            | Self::GzipMembers
            | Self::Lzma
            | Self::LzmaBare(_)
            | Self::Lzo
            | Self::Lz4Blocks { .. }
            | Self::Xz => Err(DecodeError::NoPrefix),
        }?;
        if actual == expected {
            return Ok(());
        }
        Err(DecodeError::Short { actual, expected })
    }

    /// Decodes the stream at the start of `input` into the start of `out`, and returns both
    /// lengths. Other bytes may follow the stream. Used by searches, because it is much slower than
    /// [`Codec::decode_up_to`].
    ///
    /// Zlib, XZ and Zstandard streams mark their end, and their checksums are verified.
    ///
    /// # Errors
    /// The errors of [`Codec::decode_up_to`], and [`DecodeError::NoPrefix`] for codecs whose
    /// streams do not mark their end. The contents of `out` must not be used then.
    pub fn decode_first(self, input: &[u8], out: &mut [u8]) -> Result<First, DecodeError> {
        match self {
            Self::Zlib => first::zlib(input, out),
            Self::Xz => xz::decode_first(input, out),
            Self::Zstd => first::zstd(input, out),
            Self::Deflate
            | Self::DeflateSpan { .. }
            | Self::Gzip
            | Self::GzipSpan { .. }
            | Self::GzipMembers
            | Self::Lzma
            | Self::LzmaBare(_)
            | Self::MicroLzma
            | Self::Lzo
            | Self::Lz4
            | Self::Lz4Blocks { .. } => Err(DecodeError::NoPrefix),
        }
    }

    /// Returns whether decoding a whole stream compares the decoded bytes with a checksum. Returns
    /// `None` if only the stream can tell: [`Codec::stream_has_checksum`].
    #[must_use]
    pub const fn has_checksum(self) -> Option<bool> {
        match self {
            Self::Zlib | Self::Gzip => Some(true),
            Self::Xz | Self::Zstd => None,
            Self::Deflate
            | Self::DeflateSpan { .. }
            | Self::GzipSpan { .. }
            | Self::GzipMembers
            | Self::Lzma
            | Self::LzmaBare(_)
            | Self::MicroLzma
            | Self::Lzo
            | Self::Lz4
            | Self::Lz4Blocks { .. } => Some(false),
        }
    }

    /// Returns whether the header of a stream announces a checksum. False for codecs whose headers
    /// do not tell.
    #[must_use]
    pub fn stream_has_checksum(self, stream: &[u8]) -> bool {
        match self {
            Self::Xz => xz::has_check(stream),
            Self::Zstd => zstd::has_checksum(stream),
            _ => false,
        }
    }

    /// Returns whether these bytes may start a stream that [`Codec::decode_first`] decodes. Checks
    /// only the first few bytes.
    #[must_use]
    pub fn may_start(self, input: &[u8]) -> bool {
        match self {
            Self::Zlib => zlib::has_header(input),
            Self::Xz => input.starts_with(&[0xFD, b'7', b'z', b'X', b'Z', 0]),
            Self::Zstd => input.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]),
            Self::Deflate
            | Self::DeflateSpan { .. }
            | Self::Gzip
            | Self::GzipSpan { .. }
            | Self::GzipMembers
            | Self::Lzma
            | Self::LzmaBare(_)
            | Self::MicroLzma
            | Self::Lzo
            | Self::Lz4
            | Self::Lz4Blocks { .. } => false,
        }
    }
}

#[allow(clippy::as_conversions, clippy::cast_possible_truncation)] // Lossless, as in `forerun-io`.
const fn usize_from(n: u64) -> usize {
    n as usize
}
