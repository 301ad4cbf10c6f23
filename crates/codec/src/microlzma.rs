//! MicroLZMA, by liblzma: this module converts the stream to the `.lzma` container.
//!
//! The first byte of any LZMA stream is zero. MicroLZMA stores the properties there, complemented
//! so that the byte is never zero and differs from zeros in front of a stream. The caller knows the
//! other fields of the container's header, dictionary and length.

use liblzma::stream::{Action, Status, Stream};

use crate::DecodeError;
use crate::xz::{MEMORY, done, run};

/// The declared length of a stream that may continue past the wanted prefix.
const UNKNOWN: u64 = u64::MAX;

/// Decodes a stream of exactly `out.len()` bytes that ends with `input`. The decoder gets the
/// length from the caller, so it cannot tell a stream that continues from a damaged one.
pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let declared = u64::try_from(out.len()).map_err(|_| DecodeError::Damaged)?;
    let contained = contained(input, out.len(), declared)?;
    run(&mut decoder()?, &contained, out)
}

pub fn decode_prefix(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let contained = contained(input, out.len(), UNKNOWN)?;
    let mut stream = decoder()?;
    loop {
        let before = done(&stream);
        let from = &contained[before.0..];
        let to = &mut out[before.1..];
        let status = stream.process(from, to, Action::Run);
        let status = status.map_err(|_| DecodeError::Damaged)?;
        let after = done(&stream);
        // A call without progress means that the stream is truncated, or ends without a marker.
        if status == Status::StreamEnd || after.1 >= out.len() || after == before {
            return Ok(after.1);
        }
    }
}

fn decoder() -> Result<Stream, DecodeError> {
    Stream::new_lzma_decoder(MEMORY).map_err(|_| DecodeError::Damaged)
}

/// Converts the stream to the container. The copy costs almost nothing compared to decoding.
fn contained(input: &[u8], wanted: usize, declared: u64) -> Result<Vec<u8>, DecodeError> {
    let (&properties, rest) = input.split_first().ok_or(DecodeError::Damaged)?;
    // A match only refers to decoded bytes, so this dictionary, which the decoder allocates, is
    // enough for every stream.
    let dictionary = u32::try_from(wanted).map_err(|_| DecodeError::Damaged)?;
    let mut out = Vec::with_capacity(input.len() + 13);
    out.push(!properties);
    out.extend_from_slice(&dictionary.max(4096).to_le_bytes());
    out.extend_from_slice(&declared.to_le_bytes());
    out.push(0);
    out.extend_from_slice(rest);
    Ok(out)
}
