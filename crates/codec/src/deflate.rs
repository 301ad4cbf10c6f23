//! Raw DEFLATE. Whole streams are decoded by libdeflate, which is the fastest; prefixes, which
//! libdeflate does not support, by zlib-rs.

use std::cell::RefCell;

use libdeflater::{DecompressionError, Decompressor};
use zlib_rs::Inflate;

use crate::DecodeError;
use crate::deflate_span;

/// log2 of the largest window, which decodes streams with any window.
const WINDOW_BITS: u8 = 15;

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::new(Decompressor::new());
    static INFLATE: RefCell<Inflate> = RefCell::new(Inflate::new(false, WINDOW_BITS));
}

/// Decodes a stream. Ignores bytes after its end, because the library does not report where it
/// ends.
pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let expected = out.len();
    let result = DECOMPRESSOR.with_borrow_mut(|context| context.deflate_decompress(input, out));
    result.map_err(|error| match error {
        DecompressionError::InsufficientSpace => DecodeError::Long { expected },
        DecompressionError::BadData => DecodeError::Damaged,
    })
}

pub fn decode_prefix(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    INFLATE.with_borrow_mut(|inflate| {
        inflate.reset(false);
        deflate_span::fill(inflate, input, out)
    })
}
