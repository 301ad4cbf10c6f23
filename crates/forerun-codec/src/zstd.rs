//! Zstandard by the reference library.

use std::cell::RefCell;

use zstd_safe::{CCtx, DCtx};

use crate::DecodeError;
use crate::encode::{in_range, make_room};
use crate::encoding::EncodingError;

thread_local! {
    static CONTEXT: RefCell<Option<DCtx<'static>>> = RefCell::new(DCtx::try_create());
}

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let expected = out.len();
    if input.is_empty() {
        // The library takes it for no frames.
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

pub struct Encoder {
    context: CCtx<'static>,
    level: i32,
}

impl Encoder {
    pub fn new(level: u8) -> Result<Self, EncodingError> {
        in_range("zstd", "level", u32::from(level), 1..=22)?;
        let context = CCtx::try_create().ok_or_else(|| EncodingError::Setup {
            codec: "zstd",
            reason: "out of memory".into(),
        })?;
        let level = i32::from(level);
        Ok(Self { context, level })
    }

    pub fn encode(&mut self, input: &[u8], room: usize, out: &mut Vec<u8>) -> Option<usize> {
        make_room(out, room);
        let out = out.as_mut_slice();
        self.context.compress(out, input, self.level).ok()
    }
}
