//! LZMA with a shorter header than in the `.lzma` container, by liblzma: this module creates the
//! full header.
//!
//! Firmware vendors put LZMA into SquashFS before the format had it, and each left out what its
//! decoder knew anyway: the length, the dictionary, or the properties too. These follow from the
//! image: no block is longer than the caller's buffer, and the properties are the same in the whole
//! image.

use liblzma::stream::{Action, Status, Stream};

use crate::DecodeError;
use crate::lzma_properties::LzmaProperties;
use crate::lzma_wide;
use crate::xz::{MEMORY, done};

/// The last byte of the header of [`BareLzma::Parameters`].
const PARAMETERS_END: u8 = 0xff;
/// Most bytes at the end of a block that a decoder may leave unread: up to five from the encoder's
/// flush, and a few more for an end marker.
const FLUSH: usize = 12;

/// Bytes that one vendor's encoder puts before each block, and that its decoder skips. Read as
/// properties they would mean a dictionary or a first byte that no encoder writes.
const MARK: &[u8] = b"7zip";

pub fn unmarked(input: &[u8]) -> &[u8] {
    input.strip_prefix(MARK).unwrap_or(input)
}

/// The header of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BareLzma {
    /// Properties and dictionary (5 bytes), without the length.
    NoLength,
    /// Only properties (1 byte).
    PropertiesOnly,
    /// Position bits, literal context bits, literal position bits and 0xff, one byte each. DD-WRT's
    /// encoder chooses the first three for each block.
    Parameters,
    /// No header: the properties are a constant of the vendor's decoder.
    Headerless(LzmaProperties),
}

impl BareLzma {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoLength => "lzma without length",
            Self::PropertiesOnly => "lzma with properties only",
            Self::Parameters => "lzma with parameters in each block",
            Self::Headerless(_) => "lzma without header",
        }
    }

    /// Decodes `input` into the start of `out`, until one of both ends.
    pub(crate) fn decode(self, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
        let (properties, stream) = self.split(unmarked(input)).ok_or(DecodeError::Damaged)?;
        if properties.is_wide() {
            return wide(properties, stream, out);
        }
        // A match only refers to decoded bytes, so this dictionary, which the decoder allocates, is
        // enough for every stream.
        let dictionary = u32::try_from(out.len()).map_err(|_| DecodeError::Damaged)?;
        // The copy costs almost nothing compared to decoding. All ones stand for an unknown length.
        let mut contained = Vec::with_capacity(stream.len() + 13);
        contained.push(properties.byte());
        contained.extend_from_slice(&dictionary.max(4096).to_le_bytes());
        contained.extend_from_slice(&u64::MAX.to_le_bytes());
        contained.extend_from_slice(stream);
        run(&contained, out)
    }

    /// Splits a block into its properties and the stream after its header.
    fn split(self, input: &[u8]) -> Option<(LzmaProperties, &[u8])> {
        let (properties, stream) = match self {
            Self::NoLength => {
                let (head, stream) = input.split_first_chunk::<5>()?;
                (LzmaProperties::from_byte(head[0]), stream)
            }
            Self::PropertiesOnly => {
                let (&head, stream) = input.split_first()?;
                (LzmaProperties::from_byte(head), stream)
            }
            Self::Parameters => {
                let (&[pb, lc, lp, end], stream) = input.split_first_chunk()?;
                let found = LzmaProperties::new(lc, lp, pb);
                (found.filter(|_| end == PARAMETERS_END), stream)
            }
            Self::Headerless(properties) => (Some(properties), input),
        };
        Some((properties?, stream))
    }
}

/// Decodes as [`run`] does, with properties that liblzma refuses.
fn wide(properties: LzmaProperties, stream: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let outcome = lzma_wide::stream(properties, stream, None, out);
    let is_all = outcome.stored + FLUSH >= stream.len();
    // After the last encoded byte, a stream without an end marker decodes to garbage.
    let is_whole = is_all && (outcome.decoded > 0 || !outcome.is_damaged);
    is_whole
        .then_some(outcome.decoded)
        .ok_or(DecodeError::Damaged)
}

fn run(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let mut stream = Stream::new_lzma_decoder(MEMORY).map_err(|_| DecodeError::Damaged)?;
    loop {
        let before = done(&stream);
        let from = &input[before.0..];
        let to = &mut out[before.1..];
        let is_full = to.is_empty();
        let status = if is_full {
            Ok(Status::StreamEnd)
        } else {
            stream.process(from, to, Action::Run)
        };
        let (read, written) = done(&stream);
        let is_all = read + FLUSH >= input.len();
        match status {
            Ok(Status::StreamEnd) if is_all => return Ok(written),
            Ok(Status::StreamEnd) => return Err(DecodeError::Damaged),
            // After the last encoded byte, a stream without an end marker decodes to garbage and
            // may fail.
            Err(_) if is_all && written > 0 => return Ok(written),
            Err(_) => return Err(DecodeError::Damaged),
            // A call without progress means that the input is used up.
            Ok(_) if (read, written) == before => {
                let whole = is_all && written > 0;
                return whole.then_some(written).ok_or(DecodeError::Damaged);
            }
            Ok(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use lzma_rust2::{LzmaOptions, LzmaWriter};

    use super::*;

    fn encoded(input: &[u8], (lc, lp, pb): (u8, u8, u8)) -> Vec<u8> {
        let mut options = LzmaOptions::with_preset(6);
        options.dict_size = 1 << 16;
        (options.lc, options.lp, options.pb) = (lc.into(), lp.into(), pb.into());
        let mut writer = LzmaWriter::new_no_header(Vec::new(), &options, false).unwrap();
        writer.write_all(input).unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn streams_without_an_end_marker() {
        let input: Vec<u8> = (0..9000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        for (lc, lp, pb) in [
            (3, 0, 2),
            (0, 2, 2),
            (1, 2, 0),
            (0, 0, 0),
            (4, 0, 4),
            // Properties that liblzma refuses.
            (8, 4, 4),
            (8, 0, 2),
            (3, 2, 0),
            (1, 4, 1),
        ] {
            let properties = LzmaProperties::new(lc, lp, pb).unwrap();
            let stream = encoded(&input, (lc, lp, pb));
            let head = [properties.byte(), 0, 0, 1, 0];
            for (bare, block) in [
                (BareLzma::NoLength, [&head[..], &stream].concat()),
                (BareLzma::PropertiesOnly, [&head[..1], &stream].concat()),
                (
                    BareLzma::Parameters,
                    [&[pb, lc, lp, 0xff][..], &stream].concat(),
                ),
                (BareLzma::Headerless(properties), stream.clone()),
            ] {
                let mut out = vec![0; input.len()];
                assert_eq!(bare.decode(&block, &mut out), Ok(input.len()), "{bare:?}");
                assert!(out == input, "{bare:?}");
                // Garbage may follow in a longer buffer, but the encoded bytes are complete.
                let mut long = vec![0; input.len() + 5000];
                let len = bare.decode(&block, &mut long).unwrap();
                assert!(
                    len >= input.len() && long[..input.len()] == input,
                    "{bare:?} {len}"
                );
                let cut = &block[..block.len() / 2];
                let short = bare.decode(cut, &mut out);
                assert!(short.is_err() || short.unwrap() < input.len(), "{bare:?}");
            }
        }
    }

    #[test]
    fn headers_that_no_encoder_writes_are_damage() {
        let stream = encoded(&[7; 500], (3, 0, 2));
        for (bare, head) in [
            (BareLzma::NoLength, &[225, 0, 0, 1, 0][..]),
            (BareLzma::PropertiesOnly, &[255]),
            (BareLzma::Parameters, &[5, 3, 0, 0xff]),
            (BareLzma::Parameters, &[2, 9, 0, 0xff]),
            (BareLzma::Parameters, &[2, 3, 5, 0xff]),
            (BareLzma::Parameters, &[2, 3, 0, 0]),
            (BareLzma::Parameters, &[2, 3]),
            (BareLzma::NoLength, &[]),
        ] {
            let block = [head, &stream].concat();
            let block = if head.len() < 4 && bare != BareLzma::PropertiesOnly {
                head
            } else {
                &block
            };
            let found = bare.decode(block, &mut [0; 500]);
            assert_eq!(found, Err(DecodeError::Damaged), "{bare:?} {head:?}");
        }
    }
}
