//! The superblock's compressor id, and the options that follow the superblock.

use forerun_codec::{Encoding, LzoAlgorithm};

use super::metadata::METADATA_BLOCK_SIZE;
use crate::ondisk::compression;

/// LZ4 option: the bare block format, the only one defined.
const LZ4_LEGACY: u32 = 1;
/// LZ4 flag: compressed with the high compression mode.
const LZ4_HC: u32 = 1;

/// Returns the compressor id, and the options if the image must store them. Readers use the
/// defaults if there are none; only LZ4 always has options.
pub fn compressor(encoding: &Encoding, block_size: u32) -> (u16, Option<Vec<u8>>) {
    match encoding {
        Encoding::Zlib {
            level,
            window_bits,
            strategies,
        } => {
            let is_default = (*level, *window_bits) == (9, 15) && strategies.is_empty();
            let mut bytes = words(&[u32::from(*level)]);
            for half in [u16::from(*window_bits), strategies.bits()] {
                bytes.extend_from_slice(&half.to_le_bytes());
            }
            (compression::GZIP, (!is_default).then_some(bytes))
        }
        Encoding::Lzma => (compression::LZMA, None),
        Encoding::Lzo { algorithm, level } => {
            let (number, level) = match algorithm {
                LzoAlgorithm::Lzo1x1 => (0, 0),
                LzoAlgorithm::Lzo1x1_11 => (1, 0),
                LzoAlgorithm::Lzo1x1_12 => (2, 0),
                LzoAlgorithm::Lzo1x1_15 => (3, 0),
                LzoAlgorithm::Lzo1x999 => (4, u32::from(*level)),
            };
            let is_default = (number, level) == (4, 8);
            (
                compression::LZO,
                (!is_default).then(|| words(&[number, level])),
            )
        }
        Encoding::Xz {
            dictionary,
            filters,
            ..
        } => {
            // Linux decodes metadata with this dictionary size too, and rejects streams that
            // declare a larger one. Metadata blocks are longer than the smallest data blocks.
            let default = block_size.max(METADATA_BLOCK_SIZE);
            let dictionary = dictionary.unwrap_or(default);
            let is_default = dictionary == default && filters.is_empty();
            let options = words(&[dictionary, u32::from(filters.bits())]);
            (compression::XZ, (!is_default).then_some(options))
        }
        Encoding::Lz4 { high } => {
            let flags = if *high { LZ4_HC } else { 0 };
            (compression::LZ4, Some(words(&[LZ4_LEGACY, flags])))
        }
        Encoding::Zstd { level } => {
            let options = (*level != 15).then(|| words(&[u32::from(*level)]));
            (compression::ZSTD, options)
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
