//! Streams of unknown length: finds the end of the stream at the start of some bytes.

use std::cell::RefCell;

use zlib_rs::{Inflate, InflateFlush, Status};

use crate::{DecodeError, usize_from, zstd};

/// log2 of the largest window: it decodes streams with any window.
const WINDOW_BITS: u8 = 15;

thread_local! {
    static INFLATE: RefCell<Inflate> = RefCell::new(Inflate::new(true, WINDOW_BITS));
}

/// The lengths of a stream, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct First {
    /// Bytes of the input that the stream takes.
    pub stored: usize,
    /// Bytes that it decodes to.
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
        // A byte past the end distinguishes a stream that continues from one that ends with `out`.
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

/// Decodes a Zstandard frame.
pub fn zstd(input: &[u8], out: &mut [u8]) -> Result<First, DecodeError> {
    let stored = zstd_safe::find_frame_compressed_size(input).map_err(|_| DecodeError::Damaged)?;
    let frame = input.get(..stored).ok_or(DecodeError::Damaged)?;
    let decoded = zstd::decode(frame, out)?;
    Ok(First { stored, decoded })
}
