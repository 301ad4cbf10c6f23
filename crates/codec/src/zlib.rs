//! zlib. Whole blocks use libdeflate, which is the fastest both ways. Encoding with a window or
//! strategy, which libdeflate lacks, uses zlib-rs.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor, adler32};
use zlib_rs::{DeflateConfig, ReturnCode, Strategy};

use crate::DecodeError;
use crate::encoding::{EncodingError, ZlibStrategies, ZlibStrategy};
use crate::shared::{in_range, make_room};

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let expected = out.len();
    let (deflated, checksum) = unwrapped(input).ok_or(DecodeError::Damaged)?;
    let result = DECOMPRESSOR.with_borrow_mut(|context| context.deflate_decompress(deflated, out));
    let len = result.map_err(|error| match error {
        DecompressionError::InsufficientSpace => DecodeError::Long { expected },
        DecompressionError::BadData => DecodeError::Damaged,
    })?;
    match out.get(..len) {
        Some(decoded) if adler32(decoded) == checksum => Ok(len),
        _ => Err(DecodeError::Damaged),
    }
}

/// Splits a stream into the DEFLATE stream and the checksum of the decoded bytes (RFC 1950, section
/// 2.2).
///
/// The wrapper is parsed here because the library stops at the checksum without reporting its
/// offset. The checksum is taken from the end of `input`, so bytes after the stream count as
/// damage.
fn unwrapped(input: &[u8]) -> Option<(&[u8], u32)> {
    let rest = input.get(2..).filter(|_| has_header(input))?;
    let (deflated, &checksum) = rest.split_last_chunk()?;
    Some((deflated, u32::from_be_bytes(checksum)))
}

/// Returns whether the bytes start with the header of a stream without a preset dictionary.
pub fn has_header(input: &[u8]) -> bool {
    let Some(&[method, flags]) = input.first_chunk() else {
        return false;
    };
    let is_deflate = method & 0x0F == 8 && method >> 4 <= 7;
    let has_dictionary = flags & 0x20 != 0;
    let is_whole = u16::from_be_bytes([method, flags]) % 31 == 0;
    is_deflate && is_whole && !has_dictionary
}

pub enum ZlibEncoder {
    Whole(Compressor),
    Tuned(Vec<DeflateConfig>),
}

impl ZlibEncoder {
    pub fn new(
        level: u8,
        window_bits: u8,
        strategies: ZlibStrategies,
    ) -> Result<Self, EncodingError> {
        in_range("zlib", "level", u32::from(level), 1..=9)?;
        in_range("zlib", "window", u32::from(window_bits), 8..=15)?;
        let is_default = strategies.iter().all(|one| one == ZlibStrategy::Default);
        if window_bits == 15 && is_default {
            let level = CompressionLvl::new(level_of_libdeflate(level)).unwrap_or_default();
            return Ok(Self::Whole(Compressor::new(level)));
        }
        let config = |strategy| DeflateConfig {
            level: i32::from(level),
            window_bits: i32::from(window_bits),
            strategy,
            ..DeflateConfig::default()
        };
        let strategy = |one| match one {
            ZlibStrategy::Default => Strategy::Default,
            ZlibStrategy::Filtered => Strategy::Filtered,
            ZlibStrategy::HuffmanOnly => Strategy::HuffmanOnly,
            ZlibStrategy::RunLengthEncoded => Strategy::Rle,
            ZlibStrategy::Fixed => Strategy::Fixed,
        };
        Ok(Self::Tuned(if strategies.is_empty() {
            vec![config(Strategy::Default)]
        } else {
            strategies.iter().map(|one| config(strategy(one))).collect()
        }))
    }

    pub fn encode(
        &mut self,
        input: &[u8],
        room: usize,
        out: &mut Vec<u8>,
        spare: &mut Vec<u8>,
    ) -> Option<usize> {
        match self {
            Self::Whole(compressor) => {
                make_room(out, room);
                compressor.zlib_compress(input, out).ok()
            }
            Self::Tuned(configs) => {
                let mut best = None;
                for config in configs {
                    make_room(spare, best.unwrap_or(room));
                    let (encoded, code) = zlib_rs::compress_slice(spare, input, *config);
                    let len = encoded.len();
                    if code == ReturnCode::Ok && best.is_none_or(|best| len < best) {
                        best = Some(len);
                        std::mem::swap(out, spare);
                    }
                }
                best
            }
        }
    }
}

/// Returns the fastest level of libdeflate whose output exceeds that of zlib at `level` by at most
/// 0.5 %, in blocks of 128 KiB of C source as well as of machine code.
///
/// Output in bytes for 24 MB of the Linux source, by zlib 1.2.13 and by libdeflate 1.26 at the
/// chosen level: level 9: 6,030,372 and 6,030,832, at 2.9 times the speed; level 6: 6,058,569 and
/// 6,067,544; level 1: 7,393,919 and 6,743,757. Levels 8 and 9 of libdeflate save 0.5 % more in 1.6
/// times the time.
const fn level_of_libdeflate(level: u8) -> i32 {
    match level {
        0 | 1 => 1,
        2 | 3 => 2,
        4 => 3,
        5 => 5,
        6 => 6,
        _ => 7,
    }
}
