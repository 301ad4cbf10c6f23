//! The encoder of MicroLZMA: LZMA without header and end marker, with the properties in place of
//! the first byte.
//!
//! It uses lzma-rust2, the only LZMA encoder with a safe interface that can leave out the end
//! marker.

use std::io::{self, Write};

use lzma_rust2::{LzmaOptions, LzmaWriter};

use crate::encoding::EncodingError;
use crate::shared::in_range;

pub struct MicroLzmaEncoder {
    options: LzmaOptions,
}

impl MicroLzmaEncoder {
    pub fn new(level: u8, dictionary: u32) -> Result<Self, EncodingError> {
        in_range("lzma", "level", level.into(), 0..=9)?;
        in_range("lzma", "dictionary", dictionary, 4096..=8 << 20)?;
        let mut options = LzmaOptions::with_preset(level.into());
        options.dict_size = dictionary;
        Ok(Self { options })
    }

    /// Encodes `input` into `out`. Returns the length, or `None` if `out` is too small.
    pub fn encode(&mut self, input: &[u8], out: &mut [u8]) -> Option<usize> {
        let mut options = self.options.clone();
        // A dictionary longer than the input would only waste memory.
        let len = u32::try_from(input.len()).unwrap_or(u32::MAX);
        options.dict_size = options.dict_size.min(len.max(4096));
        let room = Room { out, len: 0 };
        let mut writer = LzmaWriter::new_no_header(room, &options, false).ok()?;
        let properties = writer.props();
        writer.write_all(input).ok()?;
        let room = writer.finish().ok()?;
        // The first byte of any LZMA stream is zero.
        *room.out.first_mut()? = !properties;
        Some(room.len)
    }
}

struct Room<'o> {
    out: &'o mut [u8],
    len: usize,
}

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.len + bytes.len();
        let there = self.out.get_mut(self.len..end);
        there
            .ok_or(io::ErrorKind::WriteZero)?
            .copy_from_slice(bytes);
        self.len = end;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
