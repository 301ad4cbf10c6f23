//! Decodes the stream at the start of some bytes, and finds where it ends.

use std::cell::RefCell;

use zlib_rs::{Inflate, InflateFlush, Status};

use crate::{DecodeError, usize_from, zstd};

/// log2 of the largest window, which decodes streams with any window.
const WINDOW_BITS: u8 = 15;

thread_local! {
    static INFLATE: RefCell<Inflate> = RefCell::new(Inflate::new(true, WINDOW_BITS));
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// Number of input bytes that belong to the stream.
    pub stored: usize,
    pub decoded: usize,
}

/// Decodes a zlib stream. The library verifies its checksum.
pub fn zlib(input: &[u8], out: &mut [u8]) -> Result<First, DecodeError> {
    let expected = out.len();
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(true);
        let done = |inflate: &Inflate| First {
            stored: usize_from(inflate.total_in()),
            decoded: usize_from(inflate.total_out()),
        };
        // The extra byte tells a stream that continues from one that ends with `out`.
        let mut past = [0];
        loop {
            let before = done(inflate);
            let from = &input[before.stored..];
            let to = match out.get_mut(before.decoded..) {
                Some(to) if !to.is_empty() => to,
                _ => &mut past,
            };
            let status = inflate.decompress(from, to, InflateFlush::NoFlush);
            let status = status.map_err(|_| DecodeError::Damaged)?;
            let after = done(inflate);
            if after.decoded > expected {
                return Err(DecodeError::Long { expected });
            }
            if status == Status::StreamEnd {
                return Ok(after);
            }
            if after == before {
                return Err(DecodeError::Damaged);
            }
        }
    })
}

pub fn zstd(input: &[u8], out: &mut [u8]) -> Result<First, DecodeError> {
    let stored = zstd_safe::find_frame_compressed_size(input).map_err(|_| DecodeError::Damaged)?;
    let frame = input.get(..stored).ok_or(DecodeError::Damaged)?;
    let decoded = zstd::decode(frame, out)?;
    Ok(First { stored, decoded })
}
