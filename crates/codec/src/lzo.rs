//! LZO1X, by lzokay, because the faster libraries are under the GPL.

use lzokay::Error;
use lzokay::compress::{Dict, compress_with_dict};

use crate::DecodeError;
use crate::encoding::{EncodingError, LzoAlgorithm};

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let expected = out.len();
    lzokay::decompress::decompress(input, out).map_err(|error| match error {
        Error::OutputOverrun => DecodeError::Long { expected },
        _ => DecodeError::Damaged,
    })
}

pub struct LzoEncoder {
    dict: Box<Dict>,
}

impl LzoEncoder {
    /// Creates an encoder. Fails for all options but those of the library's only algorithm,
    /// `lzo1x_999` at its default level.
    pub fn new(algorithm: LzoAlgorithm, level: u8) -> Result<Self, EncodingError> {
        if algorithm != LzoAlgorithm::Lzo1x999 || level != 8 {
            let option = format!("{algorithm:?} at level {level}").to_lowercase();
            return Err(EncodingError::Lzo { option });
        }
        Ok(Self { dict: Dict::new() })
    }

    pub fn encode(&mut self, input: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        *out = compress_with_dict(input, &mut self.dict).ok()?;
        Some(out.len())
    }
}
