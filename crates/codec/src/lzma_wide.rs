//! LZMA with more than four literal bits, by lzma-rust2: liblzma refuses `lc` + `lp` above 4.
//!
//! Only such streams come here, because liblzma is faster. Firmware has them: the first encoders took any
//! of the 225 properties, and some vendors' try several for each block.
//!
//! The model of the most literal bits, 12, takes 6 MiB; the dictionary never more than the caller's buffer.

use std::io::Read;

use lzma_rust2::LzmaReader;

use crate::DecodeError;
use crate::lzma_properties::LzmaProperties;

/// The end of a decoder's work.
pub struct Outcome {
    /// Bytes of the input that it used.
    pub stored: usize,
    /// Bytes that it decoded.
    pub decoded: usize,
    /// The stream neither ended nor filled the buffer.
    pub is_damaged: bool,
}

/// Decodes a stream without header, of `len` bytes if they are known, into the front of `out`.
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
    // No match reaches back further than the decoded bytes.
    let Ok(dictionary) = u32::try_from(out.len().max(4096)) else {
        return outcome;
    };
    let size = len.unwrap_or(u64::MAX);
    let reader = LzmaReader::new_with_props(input, size, properties.byte(), dictionary, None);
    let Ok(mut reader) = reader else {
        return outcome;
    };
    // Else an error would hide the bytes before it.
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

/// Decodes a stream in the `.lzma` container, whose properties the caller has looked at.
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
    // A byte past the end distinguishes a stream that continues from one that ends with `out`.
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
