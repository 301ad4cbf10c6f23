//! LZ4 blocks, by the reference library, which lzzzz contains.

use std::ops::Range;

use lzzzz::{lz4, lz4_hc};

use crate::DecodeError;
use crate::shared::make_room;

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let expected = out.len();
    lz4::decompress(input, out).map_err(|_| match decoded_len(input) {
        Some(len) if len > expected => DecodeError::Long { expected },
        _ => DecodeError::Damaged,
    })
}

pub fn decode_after(before: &[u8], input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    lz4::decompress_with_dict(input, out, before).map_err(|_| DecodeError::Damaged)
}

/// Length of the end of a prefix that is marked: the bytes that the library copies one by one, and
/// a few more.
const END: usize = 16;
/// A byte that rarely ends a prefix.
const RARE: u8 = 0xA5;

/// Decodes the start of a block. The library accepts a match at distance zero, which no encoder
/// makes. Such a match near the end of a prefix leaves bytes of `out` unchanged, which belong to
/// another block, and its last byte is one of them. So the end of `out` is marked first, and the
/// sequences are checked only if a mark may be left.
pub fn decode_prefix(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let wanted = out.len();
    let start = wanted.saturating_sub(END);
    out.iter_mut().skip(start).for_each(|byte| *byte = RARE);
    let len = lz4::decompress_partial(input, out, wanted).map_err(|_| DecodeError::Damaged)?;
    let may_be_stale = out.iter().skip(start).any(|&byte| byte == RARE);
    let is_stale = may_be_stale && copies_nothing(input, start..wanted);
    (!is_stale).then_some(len).ok_or(DecodeError::Damaged)
}

/// Returns whether a match at distance zero ends in the range `ends`, or reaches past it.
pub fn copies_nothing(input: &[u8], ends: Range<usize>) -> bool {
    let (mut rest, mut total) = (input, 0_usize);
    while let Some(sequence) = next(&mut rest) {
        total += sequence.literals;
        let Some((distance, copied)) = sequence.copy.filter(|_| total < ends.end) else {
            return false;
        };
        total += copied;
        if distance == 0 && total > ends.start {
            return true;
        }
    }
    false
}

/// Returns the decoded length of a block, or `None` if the block is damaged. The library does not
/// distinguish a block that is too long from a damaged one. So after a failure the lengths of the
/// sequences are summed.
fn decoded_len(input: &[u8]) -> Option<usize> {
    let (mut rest, mut total) = (input, 0_usize);
    loop {
        let sequence = next(&mut rest)?;
        total = total.checked_add(sequence.literals)?;
        let Some((distance, copied)) = sequence.copy else {
            return Some(total);
        };
        if distance == 0 || distance > total {
            return None;
        }
        total = total.checked_add(copied)?;
    }
}

/// Literals, followed by a match (length and distance) except in the last sequence.
struct Sequence {
    literals: usize,
    copy: Option<(usize, usize)>,
}

fn next(rest: &mut &[u8]) -> Option<Sequence> {
    let token = take(rest)?;
    let literals = length(token >> 4, rest)?;
    *rest = rest.get(literals..)?;
    if rest.is_empty() {
        let copy = None;
        return Some(Sequence { literals, copy });
    }
    let distance = u16::from_le_bytes([take(rest)?, take(rest)?]);
    let copied = length(token & 0x0F, rest)?.checked_add(MIN_MATCH)?;
    let copy = Some((usize::from(distance), copied));
    Some(Sequence { literals, copy })
}

/// The shortest match; lengths are stored relative to it.
const MIN_MATCH: usize = 4;

/// Reads a length that starts with four bits of the token. As long as its parts are full, it
/// continues in the next byte.
fn length(nibble: u8, rest: &mut &[u8]) -> Option<usize> {
    let mut len = usize::from(nibble);
    let mut goes_on = nibble == 0x0F;
    while goes_on {
        let byte = take(rest)?;
        len = len.checked_add(usize::from(byte))?;
        goes_on = byte == u8::MAX;
    }
    Some(len)
}

fn take(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

pub struct Lz4Encoder {
    high: bool,
}

impl Lz4Encoder {
    pub const fn new(high: bool) -> Self {
        Self { high }
    }

    pub fn encode(&mut self, input: &[u8], room: usize, out: &mut Vec<u8>) -> Option<usize> {
        make_room(out, room);
        let result = if self.high {
            lz4_hc::compress(input, out, lz4_hc::CLEVEL_MAX)
        } else {
            lz4::compress(input, out, lz4::ACC_LEVEL_DEFAULT)
        };
        result.ok()
    }
}
