//! The checks of streams.

use forerun_vfs::{Corrupt, Error};

use crate::Compression;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Check {
    #[error("the compressed data is damaged before {near:#x}")]
    Damaged { near: u64 },
    #[error("the file is {len} bytes long and ends within the stream that begins here")]
    Cut { len: u64 },
    #[error(
        "the header of the gzip member has the compression method {method} or the flags {flags:#04x}"
    )]
    Header { method: u8, flags: u8 },
    #[error("the decoded stream has the checksum {found:#010x}, not {stored:#010x}")]
    Checksum { stored: u32, found: u32 },
    #[error("the stream decodes to {found} bytes, modulo 2^32; it declares {stored}")]
    Length { stored: u32, found: u32 },
    #[error("the descriptor of the LZ4 frame is not valid: flags {flags:#04x}, sizes {sizes:#04x}")]
    Descriptor { flags: u8, sizes: u8 },
    #[error("the frame decodes to {decoded} bytes; it declares {stored}")]
    Content { stored: u64, decoded: u64 },
    #[error("the block needs the bytes before it, which cannot be decoded")]
    History,
    #[error("the saved checkpoints have {len} bytes, which is not the length they state")]
    Checkpoints { len: u64 },
    #[error(
        "checkpoint {number}, at decoded byte {decoded}, is outside the file or before the previous checkpoint"
    )]
    Checkpoint { number: usize, decoded: u64 },
    #[error("the checkpoints cover {found} of {expected} decoded bytes")]
    Covered { found: u64, expected: u64 },
}

impl Check {
    /// Creates the error of this check for the stream at `offset` of the file.
    pub fn at(self, compression: Compression, offset: u64) -> Error {
        Corrupt::new(compression.name(), None, offset, self).into()
    }
}
