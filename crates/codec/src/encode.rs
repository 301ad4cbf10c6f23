//! Encoders, one per thread, whose memory is reused for each block.

use crate::encoding::{Encoding, EncodingError};
use crate::{lz4, lzma, lzo, xz, zlib, zstd};

/// Encodes blocks in turn. The output depends only on the input, not on earlier blocks.
pub struct Encoder {
    kind: EncoderKind,
    /// Buffer for the candidates of an encoding that tries several.
    spare: Vec<u8>,
}

enum EncoderKind {
    Zlib(zlib::ZlibEncoder),
    Lzma(lzma::LzmaEncoder),
    Lzo(lzo::LzoEncoder),
    Xz(xz::XzEncoder),
    Lz4(lz4::Lz4Encoder),
    Zstd(zstd::ZstdEncoder),
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// Creates an encoder of blocks of at most `block_size` bytes.
    ///
    /// # Errors
    /// [`EncodingError`] if an option is out of its range.
    pub fn new(encoding: &Encoding, block_size: u32) -> Result<Self, EncodingError> {
        let kind = match encoding {
            Encoding::Zlib {
                level,
                window_bits,
                strategies,
            } => EncoderKind::Zlib(zlib::ZlibEncoder::new(*level, *window_bits, *strategies)?),
            Encoding::Lzma => EncoderKind::Lzma(lzma::LzmaEncoder::new(block_size)?),
            Encoding::Lzo { algorithm, level } => {
                EncoderKind::Lzo(lzo::LzoEncoder::new(*algorithm, *level)?)
            }
            Encoding::Xz {
                dictionary,
                filters,
                tuning,
            } => {
                let options = xz::lzma_options(*dictionary, *tuning, block_size)?;
                EncoderKind::Xz(xz::XzEncoder::new(&options, *filters))
            }
            Encoding::Lz4 { high } => EncoderKind::Lz4(lz4::Lz4Encoder::new(*high)),
            Encoding::Zstd { level } => EncoderKind::Zstd(zstd::ZstdEncoder::new(*level)?),
        };
        Ok(Self {
            kind,
            spare: Vec::new(),
        })
    }

    /// Replaces `out` by the encoded form of `input`. Returns false if it is not shorter than
    /// `input`: the block is then better stored uncompressed, and the contents of `out` are
    /// meaningless.
    pub fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> bool {
        // A longer encoded form would be useless.
        let room = input.len().saturating_sub(1);
        let len = match &mut self.kind {
            EncoderKind::Zlib(encoder) => encoder.encode(input, room, out, &mut self.spare),
            EncoderKind::Lzma(encoder) => encoder.encode(input, room, out),
            EncoderKind::Lzo(encoder) => encoder.encode(input, out),
            EncoderKind::Xz(encoder) => encoder.encode(input, room, out, &mut self.spare),
            EncoderKind::Lz4(encoder) => encoder.encode(input, room, out),
            EncoderKind::Zstd(encoder) => encoder.encode(input, room, out),
        };
        let len = len.filter(|&len| len > 0 && len <= room);
        out.truncate(len.unwrap_or(0));
        len.is_some()
    }
}
