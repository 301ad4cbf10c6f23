//! The bytes after an inode: indexes of compressed data or chunks, and an inline tail.

use forerun_build::BuildError;
use forerun_io::{u64_from, usize_from};

use super::cannot;
use super::data::{Body, Data};
use super::index::{self, Format};
use super::options::ErofsOptions;
use crate::inode::DataLayout;

/// Flag in the chunk format: table entries have eight bytes, with a device.
const WIDE_CHUNKS: u32 = 0x20;

pub struct Stored {
    pub layout: DataLayout,
    pub union: u32,
    pub indexes: Vec<u8>,
    pub inline: Vec<u8>,
}

impl Stored {
    pub const fn plain(union: u32) -> Self {
        Self {
            layout: DataLayout::Plain,
            union,
            indexes: Vec::new(),
            inline: Vec::new(),
        }
    }
}

/// Returns whether a file of this length needs an extended inode.
pub fn is_long(len: u64) -> bool {
    u32::try_from(len).is_err()
}

/// Returns the lengths of the index and of the inline data after an inode with this body.
pub fn body_behind(format: Format, body: &Body, head: u64, len: u64) -> (u64, u64) {
    match body {
        Body::Packed(packed) => {
            let inline = packed.inline.map_or(0, |inline| u64_from(inline.len));
            (index::len(format, packed, head, len), inline)
        }
        Body::Flat { tail, .. } => (0, tail.map_or(0, |tail| u64_from(tail.len))),
    }
}

pub fn body_stored(
    format: Format,
    body: &Body,
    (head, len): (u64, u64),
    data: &Data,
    base: u32,
) -> Result<Stored, BuildError> {
    match body {
        Body::Packed(packed) => {
            let inline = packed.inline.map(|inline| data.tails.read(inline));
            Ok(Stored {
                layout: if index::is_full(format, packed) {
                    DataLayout::CompressedFull
                } else {
                    DataLayout::CompressedCompact
                },
                union: packed.blocks,
                indexes: index::encode(format, packed, head, len, base),
                inline: inline.transpose()?.unwrap_or_default(),
            })
        }
        Body::Flat { start, tail } => {
            let start = block(u64::from(base) + u64::from(*start))?;
            match tail {
                Some(tail) => Ok(Stored {
                    layout: DataLayout::Inline,
                    inline: data.tails.read(*tail)?,
                    ..Stored::plain(start)
                }),
                None => Ok(Stored::plain(start)),
            }
        }
    }
}

pub fn block(block: u64) -> Result<u32, BuildError> {
    u32::try_from(block).map_err(|_| cannot(format!("{block} blocks")))
}

/// Returns the lengths of the index and of the inline data after the inode of an uncompressed file.
pub fn predict(options: &ErofsOptions, chunk_size: Option<u32>, head: u64, len: u64) -> (u64, u64) {
    let block = u64::from(options.block_size);
    let tail = len % block;
    let inline = options.inline_tails && tail > 0 && head + tail <= block;
    match chunk_size {
        _ if len == 0 => (0, 0),
        Some(chunk) if !inline || len > block || options.has_devices() => {
            let unit = if options.has_devices() { 8 } else { 4 };
            let start = head.next_multiple_of(unit);
            (start - head + len.div_ceil(chunk.into()) * unit, 0)
        }
        _ => (0, if inline { tail } else { 0 }),
    }
}

/// Returns the stored form of a file whose chunks, each `chunk` bytes long, start at these blocks of
/// these devices.
pub fn chunks_stored(
    options: &ErofsOptions,
    chunk: u32,
    starts: impl Iterator<Item = (u16, u32)>,
    head: u64,
) -> Stored {
    let wide = options.has_devices();
    let bits = chunk.ilog2() - options.block_bits();
    Stored {
        layout: DataLayout::Chunks,
        union: bits | if wide { WIDE_CHUNKS } else { 0 },
        indexes: chunk_indexes(starts, wide, head),
        inline: Vec::new(),
    }
}

fn chunk_indexes(starts: impl Iterator<Item = (u16, u32)>, wide: bool, head: u64) -> Vec<u8> {
    let unit = if wide { 8 } else { 4 };
    let gap = head.next_multiple_of(unit) - head;
    let mut bytes = vec![0; usize_from(gap)];
    for (device, block) in starts {
        if wide {
            bytes.extend_from_slice(&[0; 2]);
            bytes.extend_from_slice(&device.to_le_bytes());
        }
        bytes.extend_from_slice(&block.to_le_bytes());
    }
    bytes
}
