//! Helpers of all encoders: ranges of options, and output buffers.

use crate::EncodingError;

/// Makes the first `len` bytes of `out` writable.
pub fn make_room(out: &mut Vec<u8>, len: usize) {
    // The existing bytes were initialised by an earlier block.
    if out.len() < len {
        out.resize(len, 0);
    } else {
        out.truncate(len);
    }
}

pub fn in_range(
    codec: &'static str,
    option: &'static str,
    value: u32,
    range: std::ops::RangeInclusive<u32>,
) -> Result<(), EncodingError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(EncodingError::Range {
        codec,
        option,
        value,
        min: *range.start(),
        max: *range.end(),
    })
}
