//! DEFLATE blocks from the middle of a stream, decoded by zlib-rs, which takes the bytes before
//! them as a dictionary.
//!
//! The first block may start at any bit of a byte, but the library starts only at the first bit. So
//! this module prepends empty blocks whose bits fill up the byte. Shifting the bits of the span
//! instead is impossible, because uncompressed blocks start at byte boundaries.

use std::cell::RefCell;

use zlib_rs::{Inflate, InflateFlush, Status};

use crate::stream::{PassInflate, StreamPlace};
use crate::{DecodeError, usize_from};

/// log2 of the largest window, which a span may refer back to.
const WINDOW_BITS: u8 = 15;

thread_local! {
    static INFLATE: RefCell<Inflate> = RefCell::new(Inflate::new(false, WINDOW_BITS));
}

/// Decodes blocks that start at bit `skip` of `input`, until `out` is full or the stream ends.
/// `history` has the decoded bytes before them; only its last 32 KiB are used.
pub fn decode(
    skip: u8,
    history: &[u8],
    input: &[u8],
    out: &mut [u8],
) -> Result<usize, DecodeError> {
    match decode_part(skip, history, input, out) {
        Ok((_, decoded)) => Ok(decoded),
        Err(_) => decode_by_pass(skip, history, input, out),
    }
}

/// Decodes with the decoder of the first pass, which accepts blocks that zlib-rs refuses, for
/// example a block without an end-of-block code. So all bytes that the pass has decoded from a
/// damaged archive can be read.
fn decode_by_pass(
    skip: u8,
    history: &[u8],
    input: &[u8],
    out: &mut [u8],
) -> Result<usize, DecodeError> {
    let stream = match (input.split_first(), skip) {
        (Some((&first, rest)), 1..8) => [&Bits::lead(skip, first).bytes, rest].concat(),
        _ => input.to_vec(),
    };
    let mut pass = PassInflate::after(history);
    let (mut read, mut filled) = (0_usize, 0_usize);
    while filled < out.len() {
        let step = pass.step(&stream[read..]);
        let to = &mut out[filled..];
        let decoded = pass.decoded();
        let decoded = decoded.get(..to.len()).unwrap_or(decoded);
        to.iter_mut()
            .zip(decoded)
            .for_each(|(to, byte)| *to = *byte);
        filled += decoded.len();
        if filled == out.len() {
            // Damage behind the last wanted byte does not matter.
            break;
        }
        let step = step?;
        read += step.used;
        match step.place {
            StreamPlace::End => break,
            StreamPlace::Within if step.used == 0 && decoded.is_empty() => {
                return Err(DecodeError::Damaged);
            }
            StreamPlace::Within | StreamPlace::Between { .. } => {}
        }
    }
    Ok(filled)
}

/// Decodes as [`decode`] does, and also returns how many bytes of `input` were used.
pub fn decode_part(
    skip: u8,
    history: &[u8],
    input: &[u8],
    out: &mut [u8],
) -> Result<(usize, usize), DecodeError> {
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        if !history.is_empty() {
            let start = history.len().saturating_sub(1 << WINDOW_BITS);
            let set = inflate.set_dictionary(&history[start..]);
            set.map_err(|_| DecodeError::Damaged)?;
        }
        let (Some((&first, rest)), 1..8) = (input.split_first(), skip) else {
            let decoded = fill(inflate, input, out)?;
            return Ok((usize_from(inflate.total_in()), decoded));
        };
        let lead = Bits::lead(skip, first);
        // The last byte of the prepended blocks contains bits of the span.
        let status = inflate.decompress(&lead.bytes, out, InflateFlush::NoFlush);
        status.map_err(|_| DecodeError::Damaged)?;
        let decoded = fill_after(inflate, lead.bytes.len(), rest, out)?;
        let behind_lead = usize_from(inflate.total_in()).checked_sub(lead.bytes.len());
        Ok((behind_lead.ok_or(DecodeError::Damaged)? + 1, decoded))
    })
}

/// DEFLATE bits, packed from the lowest bit of each byte.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Number of bits used in the last byte; 0 if it is full.
    used: u8,
}

impl Bits {
    /// Returns empty blocks that end before bit `skip` of a byte, 1 to 7.
    fn before(skip: u8) -> Self {
        let mut bits = Self::default();
        let mut missing = skip;
        if skip % 2 == 1 {
            bits.odd_block();
            // The odd block is 5 bits longer than a whole number of bytes.
            missing = (skip + 8 - 5) % 8;
        }
        // A fixed block is 2 bits longer than a byte.
        for _ in 0..missing / 2 {
            bits.fixed_block();
        }
        bits
    }

    /// Returns empty blocks that end before bit `skip` of `first`, followed by the remaining bits
    /// of `first`.
    fn lead(skip: u8, first: u8) -> Self {
        let mut bits = Self::before(skip);
        bits.complete(first);
        bits
    }

    /// Adds `count` bits of `value`, the lowest first.
    fn add(&mut self, value: u32, count: u32) {
        for place in 0..count {
            if self.used == 0 {
                self.bytes.push(0);
            }
            if let Some(last) = self.bytes.last_mut() {
                *last |= u8::from(value >> place & 1 == 1) << self.used;
            }
            self.used = (self.used + 1) % 8;
        }
    }

    /// Adds an empty block with fixed codes (RFC 1951, section 3.2.6), 10 bits long.
    fn fixed_block(&mut self) {
        self.add(0b010, 3);
        self.add(0, 7);
    }

    /// Adds an empty block with dynamic Huffman codes (RFC 1951, section 3.2.7), 93 bits long. It
    /// defines only the end-of-block code, and no distance codes.
    fn odd_block(&mut self) {
        self.own_codes();
        self.no_codes(138);
        self.no_codes(118);
        // Length 1 for the end-of-block code, by code 0; length 0 for the distance code, by code
        // 10, whose first bit comes first.
        self.add(0, 1);
        self.add(0b01, 2);
        // The end-of-block code.
        self.add(0, 1);
    }

    /// Starts a block with dynamic codes, up to the lengths of the code length codes.
    fn own_codes(&mut self) {
        self.add(0b100, 3);
        // 257 literal lengths, 1 distance length, and 18 code length codes.
        self.add(0, 5);
        self.add(0, 5);
        self.add(14, 4);
        // In the order of section 3.2.7: 18 and 0 have codes of 2 bits, 1 has a code of 1 bit.
        for len in [0, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] {
            self.add(len, 3);
        }
    }

    /// Adds 11 to 138 lengths of 0 by code 18, whose 7 extra bits are the count minus 11.
    fn no_codes(&mut self, count: u32) {
        self.add(0b11, 2);
        self.add(count - 11, 7);
    }

    /// Fills the last byte with the upper bits of `byte`.
    fn complete(&mut self, byte: u8) {
        if let Some(last) = self.bytes.last_mut() {
            *last |= byte & u8::MAX.checked_shl(u32::from(self.used)).unwrap_or(0);
        }
    }
}

/// Decodes until `out` is full or the stream ends, and returns the decoded length.
pub fn fill(inflate: &mut Inflate, input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    fill_after(inflate, 0, input, out)
}

/// Decodes `input` until `out` is full or the stream ends, after `before` bytes of input that were
/// decoded already. Returns the decoded length.
fn fill_after(
    inflate: &mut Inflate,
    before: usize,
    input: &[u8],
    out: &mut [u8],
) -> Result<usize, DecodeError> {
    loop {
        let (read, written) = (
            usize_from(inflate.total_in()),
            usize_from(inflate.total_out()),
        );
        if written >= out.len() {
            return Ok(written);
        }
        let from = read.checked_sub(before).ok_or(DecodeError::Damaged)?;
        let to = &mut out[written..];
        let status = inflate.decompress(&input[from..], to, InflateFlush::NoFlush);
        let now = usize_from(inflate.total_out());
        // Damage behind the last wanted byte does not matter.
        if now >= out.len() || status == Ok(Status::StreamEnd) {
            return Ok(now);
        }
        status.map_err(|_| DecodeError::Damaged)?;
        // One call consumes all input, so a call without progress means that the stream is
        // truncated.
        if (read, written) == (usize_from(inflate.total_in()), now) {
            return Err(DecodeError::Damaged);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_blocks_end_before_any_bit_and_decode_to_nothing() {
        for skip in 1..8 {
            let mut bits = Bits::before(skip);
            assert_eq!(bits.used, skip);
            // The length of a stored block starts at the next byte.
            bits.complete(0);
            let stream = [&bits.bytes[..], &stored(b"stored")[1..]].concat();
            let mut inflate = Inflate::new(false, WINDOW_BITS);
            let mut out = [0; 6];
            // If the three header bits do not fit, the length is one byte later.
            let stream = match skip {
                6 | 7 => [&bits.bytes[..], &[0], &stored(b"stored")[1..]].concat(),
                _ => stream,
            };
            assert_eq!(
                fill(&mut inflate, &stream, &mut out),
                Ok(6),
                "before bit {skip}"
            );
            assert_eq!(&out, b"stored");
        }
    }

    #[test]
    fn a_stored_block_starts_at_the_next_byte_whatever_the_bit() {
        for skip in 0..6 {
            let mut input = stored(b"stored");
            // Bits of the preceding block.
            input[0] |= (1 << skip) - 1;
            let mut out = [0; 6];
            assert_eq!(
                decode(skip, b"history", &input, &mut out),
                Ok(6),
                "bit {skip}"
            );
            assert_eq!(&out, b"stored");
        }
    }

    /// Returns a stored block of `bytes` that is not the last block.
    fn stored(bytes: &[u8]) -> Vec<u8> {
        let len = u16::try_from(bytes.len()).unwrap();
        [&[0][..], &len.to_le_bytes(), &(!len).to_le_bytes(), bytes].concat()
    }

    /// Returns a block with fixed codes that starts at bit 5 and contains only a match of 3 bytes
    /// at distance 4.
    fn a_match() -> Vec<u8> {
        // 0 (not last), 01 (fixed, low bit first), 0000001 (length 3), 00011 (distance 4), 0000000 (end).
        let bits = "0 10 0000001 00011 0000000".replace(' ', "");
        let bits = format!("11111{bits}");
        let mut bytes = vec![0u8; bits.len().div_ceil(8)];
        for (place, bit) in bits.chars().enumerate() {
            bytes[place / 8] |= u8::from(bit == '1') << (place % 8);
        }
        bytes
    }

    #[test]
    fn a_span_refers_to_what_is_before_it() {
        let mut out = [0; 3];
        assert_eq!(decode(5, b"....abcd", &a_match(), &mut out), Ok(3));
        assert_eq!(&out, b"abc");
        let long = [&[0; 40_000][..], b"wxyz"].concat();
        assert_eq!(decode(5, &long, &a_match(), &mut out), Ok(3));
        assert_eq!(&out, b"wxy");
    }

    #[test]
    fn what_is_not_there_is_damage() {
        let mut out = [0; 3];
        assert!(decode(5, b"abc", &a_match(), &mut out).is_err());
        assert!(decode(5, b"", &a_match(), &mut out).is_err());
        assert!(decode(5, b"abcd", &a_match()[..1], &mut out).is_err());
        assert!(decode(0, b"", &[], &mut out).is_err());
    }

    #[test]
    fn what_the_first_pass_takes_decodes_to_the_same() {
        for skip in 0..8 {
            // The block has no end-of-block code, so zlib refuses it.
            let mut bits = match skip {
                0 => Bits::default(),
                _ => Bits::before(skip),
            };
            let lead = bits.bytes.len().saturating_sub(1);
            bits.own_codes();
            // Length 0 for 97 literals, 1 for `a` and `b`, 0 for 138 and 20 further literals, and
            // for the distance.
            bits.no_codes(97);
            bits.add(0b00, 2);
            bits.no_codes(138);
            bits.no_codes(21);
            // Four literals, whose codes are 0 and 1.
            bits.add(0b0110, 4);
            let input = bits.bytes.get(lead..).unwrap();
            let mut out = [0; 4];
            let strict = decode_part(skip, b"", input, &mut out);
            assert_eq!(strict, Err(DecodeError::Damaged), "from bit {skip}");
            assert_eq!(decode(skip, b"", input, &mut out), Ok(4), "from bit {skip}");
            assert_eq!(&out, b"abba");
        }
    }

    #[test]
    fn blocks_after_the_span_are_left() {
        let input = [stored(b"first"), stored(b"second")].concat();
        let mut out = [0; 5];
        assert_eq!(decode(0, b"", &input, &mut out), Ok(5));
        assert_eq!(&out, b"first");
        let mut out = [0; 20];
        assert!(decode(0, b"", &input, &mut out).is_err(), "it is cut");
    }
}
