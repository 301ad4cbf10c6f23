//! LZMA in the `.lzma` container, by liblzma. [`lzma_wide`](crate::lzma_wide) decodes the
//! properties that liblzma refuses.

use liblzma::stream::{Action, Error, LzmaOptions, Status, Stream};

use crate::DecodeError;
use crate::encoding::EncodingError;
use crate::lzma_bare::unmarked;
use crate::lzma_properties::LzmaProperties;
use crate::lzma_wide;
use crate::shared::make_room;
use crate::xz::{MEMORY, run};

const LEN_AT: std::ops::Range<usize> = 5..13;

pub fn decode(input: &[u8], out: &mut [u8]) -> Result<usize, DecodeError> {
    let input = unmarked(input);
    let properties = input.first().and_then(|&it| LzmaProperties::from_byte(it));
    if let Some(wide) = properties.filter(|it| it.is_wide()) {
        return lzma_wide::alone(wide, input, out);
    }
    let mut stream = Stream::new_lzma_decoder(MEMORY).map_err(|_| DecodeError::Damaged)?;
    run(&mut stream, input, out)
}

pub struct LzmaEncoder {
    options: LzmaOptions,
}

impl LzmaEncoder {
    pub fn new(block_size: u32) -> Result<Self, EncodingError> {
        let setup = |error: Error| EncodingError::Setup {
            codec: "lzma",
            reason: error.to_string(),
        };
        let mut options = LzmaOptions::new_preset(6).map_err(setup)?;
        options.dict_size(block_size.max(4096));
        Ok(Self { options })
    }

    pub fn encode(&mut self, input: &[u8], room: usize, out: &mut Vec<u8>) -> Option<usize> {
        let mut stream = Stream::new_lzma_encoder(&self.options).ok()?;
        make_room(out, room);
        let status = stream.process(input, out, Action::Finish).ok()?;
        if status != Status::StreamEnd {
            return None;
        }
        // The library writes an unknown length, but readers of images need the real one.
        let len = u64::try_from(input.len()).ok()?.to_le_bytes();
        out.get_mut(LEN_AT)?.copy_from_slice(&len);
        usize::try_from(stream.total_out()).ok()
    }
}
