//! zlib by libdeflate: whole blocks only, which is what it is fastest at.

use std::cell::RefCell;

use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

use crate::DecodeError;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
}

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let expected = out.len();
    let result = DECOMPRESSOR.with_borrow_mut(|context| context.zlib_decompress(input, out));
    match result {
        Ok(actual) if actual == expected => Ok(()),
        Ok(actual) => Err(DecodeError::Short { actual, expected }),
        Err(DecompressionError::InsufficientSpace) => Err(DecodeError::Long { expected }),
        Err(DecompressionError::BadData) => Err(DecodeError::Damaged),
    }
}

pub fn encode(input: &[u8], level: i32) -> Vec<u8> {
    let level = CompressionLvl::new(level.clamp(0, 12)).unwrap_or_default();
    let mut compressor = Compressor::new(level);
    let mut out = vec![0; compressor.zlib_compress_bound(input.len())];
    // The bound is libdeflate's own promise that the output fits.
    let len = compressor.zlib_compress(input, &mut out).unwrap_or(0);
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_must_match_exactly() {
        let input: Vec<u8> = (0..10_000u32).flat_map(u32::to_le_bytes).collect();
        let encoded = encode(&input, 6);
        let mut out = vec![0; input.len()];
        decode(&encoded, &mut out).unwrap();
        assert_eq!(out, input);

        let short = decode(&encoded, &mut vec![0; input.len() + 1]).unwrap_err();
        assert_eq!(
            short,
            DecodeError::Short {
                actual: input.len(),
                expected: input.len() + 1
            }
        );
        let long = decode(&encoded, &mut vec![0; input.len() - 1]).unwrap_err();
        assert_eq!(
            long,
            DecodeError::Long {
                expected: input.len() - 1
            }
        );
    }

    #[test]
    fn every_truncation_is_an_error() {
        let encoded = encode(b"forerun forerun forerun forerun", 9);
        for len in 0..encoded.len() {
            assert!(decode(&encoded[..len], &mut [0; 31]).is_err(), "{len}");
        }
    }
}
