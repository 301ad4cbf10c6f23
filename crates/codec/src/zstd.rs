//! Zstandard, by the reference library.

use std::cell::RefCell;

use zstd_safe::{CCtx, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use crate::DecodeError;
use crate::encoding::EncodingError;
use crate::shared::{in_range, make_room};

/// log2 of the largest window that a stream decoded in part may declare, because the library
/// allocates it. A frame may be one window, so this allows the largest block.
const WINDOW_LOG: u32 = 24;

thread_local! {
    static CONTEXT: RefCell<Option<DCtx<'static>>> = RefCell::new(DCtx::try_create());
    static STREAM: RefCell<Option<DCtx<'static>>> = RefCell::new(DCtx::try_create());
}

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let expected = out.len();
    if input.is_empty() {
        // The library accepts empty input as zero frames.
        return Err(DecodeError::Damaged);
    }
    CONTEXT.with_borrow_mut(|context| {
        let context = context.as_mut().ok_or(DecodeError::Damaged)?;
        context.decompress(out, input).map_err(|code| {
            if zstd_safe::get_error_name(code).starts_with("Destination buffer") {
                DecodeError::Long { expected }
            } else {
                DecodeError::Damaged
            }
        })
    })
}

pub fn decode_prefix(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let damaged = |_| DecodeError::Damaged;
    let wanted = out.len();
    STREAM.with_borrow_mut(|context| {
        let context = context.as_mut().ok_or(DecodeError::Damaged)?;
        let reset = context.reset(ResetDirective::SessionOnly);
        reset.map_err(damaged)?;
        let limit = DParameter::WindowLogMax(WINDOW_LOG);
        context.set_parameter(limit).map_err(damaged)?;
        let (mut from, mut to) = (InBuffer::around(input), OutBuffer::around(out));
        loop {
            let before = (from.pos(), to.pos());
            let hint = context.decompress_stream(&mut to, &mut from);
            let hint = hint.map_err(damaged)?;
            // Zero marks the end of the frame. Bytes after it are ignored.
            if hint == 0 || to.pos() >= wanted {
                return Ok(to.pos());
            }
            // The decoder needs more input, and there is none.
            if before == (from.pos(), to.pos()) {
                return Err(DecodeError::Damaged);
            }
        }
    })
}

pub struct ZstdEncoder {
    context: CCtx<'static>,
}

impl ZstdEncoder {
    pub fn new(level: u8) -> Result<Self, EncodingError> {
        in_range("zstd", "level", u32::from(level), 1..=22)?;
        // No checksums: Linux takes a SquashFS block for damaged if the last page of its data is
        // full before the whole checksum was read, which happens when the checksum crosses a page
        // boundary of the device.
        let context = context([CParameter::CompressionLevel(level.into())])?;
        Ok(Self { context })
    }

    pub fn encode(&mut self, input: &[u8], room: usize, out: &mut Vec<u8>) -> Option<usize> {
        make_room(out, room);
        let out = out.as_mut_slice();
        self.context.compress2(out, input).ok()
    }
}

pub fn context(
    parameters: impl IntoIterator<Item = CParameter>,
) -> Result<CCtx<'static>, EncodingError> {
    let failed = |reason: String| EncodingError::Setup {
        codec: "zstd",
        reason,
    };
    let mut context = CCtx::try_create().ok_or_else(|| failed("out of memory".into()))?;
    for parameter in parameters {
        let set = context.set_parameter(parameter);
        set.map_err(|code| failed(zstd_safe::get_error_name(code).to_string()))?;
    }
    Ok(context)
}

/// Returns whether the frame header at the start of `input` announces a checksum.
pub fn has_checksum(input: &[u8]) -> bool {
    const CHECKSUM: u8 = 1 << 2;
    matches!(input, [0x28, 0xB5, 0x2F, 0xFD, descriptor, ..] if descriptor & CHECKSUM != 0)
}
