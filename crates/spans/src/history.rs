//! The decoded bytes before spans, to which the spans refer, kept compressed.

use std::sync::Arc;

use forerun_codec::{Codec, DecodeError, Encoder, Encoding};
use forerun_io::u64_from;

/// The farthest that a span refers back, in LZ4. DEFLATE reaches half as far.
const LEN: u32 = 64 << 10;
/// Zstandard level for stored histories. It is high because an index is made once and then kept.
const LEVEL: u8 = 9;

/// The last decoded bytes before a span: as many as it may refer to, or fewer.
#[derive(Clone, PartialEq, Eq)]
pub enum History {
    /// Uncompressed, because compression does not make them shorter.
    Plain(Arc<[u8]>),
    /// Compressed, with their decoded length.
    Packed(Arc<[u8]>, u32),
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Packed(packed, len) => write!(f, "{len} bytes in {}", packed.len()),
        }
    }
}

impl History {
    /// Returns the bytes.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes of a kept index were altered.
    pub fn bytes(&self) -> Result<Vec<u8>, DecodeError> {
        match self {
            Self::Plain(bytes) => Ok(bytes.to_vec()),
            Self::Packed(packed, len) => {
                let len = usize::try_from(*len.min(&LEN)).map_err(|_| DecodeError::Damaged)?;
                let mut bytes = vec![0; len];
                Codec::Zstd.decode(packed, &mut bytes)?;
                Ok(bytes)
            }
        }
    }

    /// Returns the memory that the history takes, in bytes.
    pub fn held(&self) -> usize {
        match self {
            Self::Plain(bytes) | Self::Packed(bytes, _) => bytes.len(),
        }
    }
}

pub struct Packer {
    encoder: Option<Encoder>,
    out: Vec<u8>,
}

impl Packer {
    pub fn new() -> Self {
        let encoder = Encoder::new(&Encoding::Zstd { level: LEVEL }, LEN);
        Self {
            encoder: encoder.ok(),
            out: Vec::new(),
        }
    }

    /// Compresses the bytes before a span. Returns `None` for no bytes, as before the first span.
    pub fn pack(&mut self, bytes: &[u8]) -> Option<History> {
        if bytes.is_empty() {
            return None;
        }
        let len = u32::try_from(u64_from(bytes.len())).ok()?;
        let packed = self
            .encoder
            .as_mut()
            .is_some_and(|encoder| encoder.encode(bytes, &mut self.out));
        Some(if packed {
            History::Packed(self.out.as_slice().into(), len)
        } else {
            History::Plain(bytes.into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_back() {
        let mut packer = Packer::new();
        let noise: Vec<u8> = (0..9999_u32)
            .map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[1])
            .collect();
        for bytes in [&[7; 32 << 10][..], &noise, b"x"] {
            let history = packer.pack(bytes).unwrap();
            assert_eq!(history.bytes().as_deref(), Ok(bytes));
            assert!(history.held() <= bytes.len());
        }
        assert_eq!(packer.pack(b""), None);
    }
}
