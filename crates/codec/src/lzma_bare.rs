//! LZMA with less of a header than LZMA alone, by liblzma: this module creates the header.
//!
//! Firmware vendors put LZMA into SquashFS before the format had it, and each left out what its
//! decoder knew anyway: the length, the dictionary, or the properties too. What is left out follows
//! from the image: no block is longer than the caller's buffer, and the properties are the same in
//! the whole image.

use liblzma::stream::{Action, Status, Stream};

use crate::DecodeError;
use crate::xz::MEMORY;

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BareLzma {
    /// Properties and dictionary, 5 bytes, without the length.
    NoLength,
    /// Properties alone, 1 byte.
    PropertiesOnly,
    /// Nothing: the properties are a constant of the vendor's decoder.
    Headerless(LzmaProperties),
}

/// The three parameters of an LZMA stream, in one byte as its header stores them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LzmaProperties(u8);

impl LzmaProperties {
    /// Returns the properties of `lc` literal context bits, `lp` literal position bits and `pb`
    /// position bits, or nothing if the decoder does not take them: `lc` and `lp` are 4 together at
    /// most, and `pb` is.
    #[must_use]
    pub const fn new(lc: u8, lp: u8, pb: u8) -> Option<Self> {
        if lc > 4 || lp > 4 || lc + lp > 4 || pb > 4 {
            return None;
        }
        Some(Self((pb * 5 + lp) * 9 + lc))
    }

    /// Returns the byte of the header.
    #[must_use]
    pub const fn byte(self) -> u8 {
        self.0
    }
}

impl BareLzma {
    /// Returns the name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoLength => "lzma without length",
            Self::PropertiesOnly => "lzma with properties only",
            Self::Headerless(_) => "lzma without header",
        }
    }

    /// Decodes `input` into the front of `out`, until one of both ends.
    pub(crate) fn decode(self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let (properties, stream) = match self {
            Self::NoLength => {
                let (head, stream) = input.split_first_chunk::<5>().ok_or(DecodeError::Damaged)?;
                (head[0], stream)
            }
            Self::PropertiesOnly => {
                let (&head, stream) = input.split_first().ok_or(DecodeError::Damaged)?;
                (head, stream)
            }
            Self::Headerless(properties) => (properties.0, input),
        };
        // No match reaches back further than the decoded bytes, so this dictionary, which the
        // decoder allocates, is enough for every stream.
        let dictionary = u32::try_from(out.len()).map_err(|_| DecodeError::Damaged)?;
        let mut header = [0xff; 13];
        header[0] = properties;
        header[1..5].copy_from_slice(&dictionary.max(4096).to_le_bytes());
        run(&header, stream, out)
    }
}

fn run(header: &[u8], input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let mut stream = Stream::new_lzma_decoder(MEMORY).map_err(|_| DecodeError::Damaged)?;
    let damaged = |_| DecodeError::Damaged;
    stream
        .process(header, &mut [], Action::Run)
        .map_err(damaged)?;
    let total = u64::try_from(header.len() + input.len()).map_err(|_| DecodeError::Damaged)?;
    let head = u64::try_from(header.len()).map_err(|_| DecodeError::Damaged)?;
    loop {
        let read = stream.total_in();
        let written = usize::try_from(stream.total_out()).map_err(|_| DecodeError::Damaged)?;
        let at = usize::try_from(read.saturating_sub(head)).map_err(|_| DecodeError::Damaged)?;
        let from = input.get(at..).unwrap_or_default();
        let to = out.get_mut(written..).unwrap_or_default();
        let status = if to.is_empty() {
            Ok(Status::StreamEnd)
        } else {
            stream.process(from, to, Action::Run)
        };
        let now = usize::try_from(stream.total_out()).unwrap_or(usize::MAX);
        // Four bytes at the end are the encoder's flush, which a decoder need not read.
        let is_all = stream.total_in().saturating_add(4) >= total;
        match status {
            Ok(Status::StreamEnd) if is_all => return Ok(now),
            Ok(Status::StreamEnd) => return Err(DecodeError::Damaged),
            // Past the last byte that was encoded, a stream without an end marker decodes to garbage
            // and may fail.
            Err(_) if stream.total_in() == total && now > 0 => return Ok(now),
            Err(_) => return Err(DecodeError::Damaged),
            Ok(_) if (stream.total_in(), now) == (read, written) => {
                return (is_all && now > 0)
                    .then_some(now)
                    .ok_or(DecodeError::Damaged);
            }
            Ok(_) => {}
        }
    }
}
