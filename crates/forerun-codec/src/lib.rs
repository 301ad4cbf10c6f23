//! The compression codecs of filesystem images behind one closed enum.
//!
//! A driver names the codec of a block; the engine calls [`Codec::decode`] with the stored bytes and
//! a buffer of exactly the decoded length. Nothing here reads, allocates by an image's field, or
//! keeps state that a caller can see: contexts are reused per thread. Codecs arrive with the
//! formats that need them.

mod zlib;

/// What a stored block is compressed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Codec {
    /// DEFLATE in a zlib wrapper (RFC 1950).
    Zlib,
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
        }
    }

    /// Decodes all of `input` into all of `out`.
    ///
    /// # Errors
    /// Where the input is damaged or does not decode to exactly `out.len()` bytes. `out` then holds
    /// bytes that must not be used.
    pub fn decode(self, input: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
        match self {
            Self::Zlib => zlib::decode(input, out),
        }
    }

    /// Encodes `input` whole at `level`, whose range is the codec's own (zlib: 0 to 12).
    #[must_use]
    pub fn encode(self, input: &[u8], level: i32) -> Vec<u8> {
        match self {
            Self::Zlib => zlib::encode(input, level),
        }
    }
}
