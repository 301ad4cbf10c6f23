//! LZMA with more than four literal bits, by lzma-rust2: liblzma refuses `lc` + `lp` above 4.
//!
//! Other streams use liblzma, which is faster. Firmware contains such streams: the first encoders
//! accepted any of the 225 properties, and some vendors' encoders try several for each block.
//!
//! The probability model for 12 literal bits, the most possible, takes 6 MiB; the dictionary is
//! never longer than the caller's buffer.

use std::io::Read;

use lzma_rust2::LzmaReader;

use crate::DecodeError;
use crate::lzma_properties::LzmaProperties;

pub struct Outcome {
    /// Number of input bytes that were used.
    pub stored: usize,
    pub decoded: usize,
    /// Whether the stream neither ended nor filled the buffer.
    pub is_damaged: bool,
}

/// Decodes a stream without a header into the start of `out`. `len` is its decoded length, if
/// known.
pub fn stream(
    properties: LzmaProperties,
    input: &[u8],
    len: Option<u64>,
    out: &mut [u8],
) -> Outcome {
    let mut outcome = Outcome {
        stored: 0,
        decoded: 0,
        is_damaged: true,
    };
    // A match only refers to decoded bytes.
    let Ok(dictionary) = u32::try_from(out.len().max(4096)) else {
        return outcome;
    };
    let size = len.unwrap_or(u64::MAX);
    let reader = LzmaReader::new_with_props(input, size, properties.byte(), dictionary, None);
    let Ok(mut reader) = reader else {
        return outcome;
    };
    // Otherwise an error would hide the bytes before it.
    reader.set_defer_errors(true);
    reader.set_relaxed_end_condition(false);
    outcome.is_damaged = false;
    while let Some(to @ [_, ..]) = out.get_mut(outcome.decoded..) {
        match reader.read(to) {
            Ok(0) => break,
            Ok(read) => outcome.decoded += read,
            Err(_) => {
                outcome.is_damaged = true;
                break;
            }
        }
    }
    let (rest, unused) = reader.into_parts();
    outcome.stored = input.len() - rest.len() - unused.len();
    outcome
}

/// Decodes a stream in the `.lzma` container, whose properties the caller has parsed.
pub fn alone(
    properties: LzmaProperties,
    input: &[u8],
    out: &mut [u8],
) -> Result<usize, DecodeError> {
    let expected = out.len();
    let (head, body) = input
        .split_first_chunk::<13>()
        .ok_or(DecodeError::Damaged)?;
    let [_, _, _, _, _, len @ ..] = *head;
    let len = Some(u64::from_le_bytes(len)).filter(|len| *len != u64::MAX);
    // The extra byte tells a stream that continues from one that ends with `out`.
    let mut past = vec![0; expected + 1];
    let outcome = stream(properties, body, len, &mut past);
    if outcome.decoded > expected {
        return Err(DecodeError::Long { expected });
    }
    if outcome.is_damaged || outcome.stored != body.len() {
        return Err(DecodeError::Damaged);
    }
    out[..outcome.decoded].copy_from_slice(&past[..outcome.decoded]);
    Ok(outcome.decoded)
}
