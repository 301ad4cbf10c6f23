//! LZ4 blocks by the reference library, which lzzzz brings along.

use lzzzz::{lz4, lz4_hc};

use crate::DecodeError;
use crate::encode::make_room;

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let expected = out.len();
    lz4::decompress(input, out).map_err(|_| match decoded_len(input) {
        Some(len) if len > expected => DecodeError::Long { expected },
        _ => DecodeError::Damaged,
    })
}

pub fn decode_prefix(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let wanted = out.len();
    lz4::decompress_partial(input, out, wanted).map_err(|_| DecodeError::Damaged)
}

/// The length of what the block decodes to, nothing where it is damaged. The library does not tell
/// a block that is too long from a damaged one, so its sequences are added up: after a failure only.
fn decoded_len(input: &[u8]) -> Option<usize> {
    let (mut rest, mut total) = (input, 0_usize);
    loop {
        let token = take(&mut rest)?;
        let literals = length(token >> 4, &mut rest)?;
        total = total.checked_add(literals)?;
        rest = rest.get(literals..)?;
        if rest.is_empty() {
            return Some(total);
        }
        let distance = u16::from_le_bytes([take(&mut rest)?, take(&mut rest)?]);
        if distance == 0 || usize::from(distance) > total {
            return None;
        }
        let copied = length(token & 0x0F, &mut rest)?.checked_add(MIN_MATCH)?;
        total = total.checked_add(copied)?;
    }
}

/// What a copied length is counted from.
const MIN_MATCH: usize = 4;

/// A length that starts with four bits of the token and goes on in bytes while they are full.
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

pub struct Encoder {
    high: bool,
}

impl Encoder {
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
