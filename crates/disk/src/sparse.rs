//! Android sparse images: chunks of blocks that are stored, filled or omitted, in the order of the
//! disk.

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Extent, Held, Limits, Result, on_disk};
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use crate::error::Check;
use crate::map::{Map, Place};
use crate::{Disk, DiskKind, read};

on_disk! {
    Header, 28 {
        magic: [u8; 4],
        major: U16,
        minor: U16,
        file_hdr_sz: U16,
        chunk_hdr_sz: U16,
        blk_sz: U32,
        total_blks: U32,
        total_chunks: U32,
        image_checksum: U32,
    }
}

on_disk! {
    /// Header of a chunk.
    Chunk, 12 {
        kind: U16,
        reserved: U16,
        /// Length in blocks of the disk.
        blocks: U32,
        /// Length in bytes of the file, including this header.
        total: U32,
    }
}

const MAGIC: [u8; 4] = [0x3a, 0xff, 0x26, 0xed];
const RAW: u16 = 0xcac1;
const FILL: u16 = 0xcac2;
const DONT_CARE: u16 = 0xcac3;
const CRC: u16 = 0xcac4;

/// Bytes per read: several headers if chunks are short.
const WINDOW: u64 = 4096;

/// Returns whether `head` is the start of a sparse image.
pub fn is_header(head: &[u8]) -> bool {
    Header::read_from_prefix(head).is_ok_and(|(head, _)| head.magic == MAGIC && head.major == 1)
}

/// Reads the chunk headers into a map.
pub fn open(source: &dyn ReadAt, limits: &Limits) -> Result<Disk> {
    let fail = |offset, check: Check| check.at("android-sparse", offset);
    let mut file = Headers::new(source);
    let header: Header = file.get(0, 0)?;
    let (file_len, chunk_len) = (header.file_hdr_sz.get(), header.chunk_hdr_sz.get());
    if usize::from(file_len) < size_of::<Header>() || usize::from(chunk_len) < size_of::<Chunk>() {
        let (file, chunk) = (file_len, chunk_len);
        return Err(fail(8, Check::HeaderLen { file, chunk }));
    }
    if u64::from(file_len) > source.len() {
        let (chunk, end, len) = (0, file_len.into(), source.len());
        return Err(fail(8, Check::Cut { chunk, end, len }));
    }
    let len = header.blk_sz.get();
    if len == 0 || !len.is_multiple_of(4) {
        return Err(fail(12, Check::BlockLen { len }));
    }
    let (block, mut held) = (u64::from(len), Held::new(limits));
    if u64::from(header.total_blks.get()) * block > Extent::LAST {
        return Err(fail(16, Check::TooLong));
    }
    let mut map = Map::new([0; 4]);
    // Neither overflows: there are fewer than 2^32 blocks of less than 2^32 bytes, and the file has
    // an end.
    let (mut at, mut blocks) = (u64::from(file_len), 0_u64);
    for chunk in 0..header.total_chunks.get() {
        let head: Chunk = file.get(at, chunk)?;
        let (count, total) = (head.blocks.get(), head.total.get());
        let data = at + u64::from(chunk_len);
        let first = blocks;
        blocks += u64::from(count);
        if blocks > u64::from(header.total_blks.get()) {
            break;
        }
        let (bytes, range) = (u64::from(count) * block, first * block..blocks * block);
        let stored = match head.kind.get() {
            RAW => bytes,
            FILL | CRC => 4,
            DONT_CARE => 0,
            kind => return Err(fail(at, Check::ChunkKind { chunk, kind })),
        };
        let expected = stored + u64::from(chunk_len);
        if u64::from(total) != expected {
            let (found, blocks) = (total, count);
            let check = Check::ChunkLen {
                chunk,
                found,
                blocks,
                expected,
            };
            return Err(fail(at, check));
        }
        let end = at + expected;
        if end > source.len() {
            let len = source.len();
            return Err(fail(at, Check::Cut { chunk, end, len }));
        }
        match head.kind.get() {
            RAW => map.add(range, Place::Stored(data), &mut held)?,
            FILL => {
                let mut pattern = [0; 4];
                read(source, data, &mut pattern)?;
                if pattern != [0; 4] {
                    map.add(range, Place::Fill(pattern), &mut held)?;
                }
            }
            // The checksum covers the disk up to this chunk. Tools rarely write one, and no reader
            // verifies it.
            CRC if count == 0 => {}
            CRC => {
                let (found, blocks) = (total, count);
                let check = Check::ChunkLen {
                    chunk,
                    found,
                    blocks,
                    expected: 0,
                };
                return Err(fail(at, check));
            }
            _ => {}
        }
        at = end;
    }
    let stated = header.total_blks.get();
    if blocks != u64::from(stated) {
        let found = blocks;
        return Err(fail(16, Check::Blocks { found, stated }));
    }
    map.extend(blocks * block);
    Ok(Disk {
        kind: DiskKind::AndroidSparse,
        stored_len: at,
        volumes: Vec::new(),
        map,
    })
}

/// Reads chunk headers in order.
struct Headers<'s> {
    source: &'s dyn ReadAt,
    start: u64,
    bytes: Vec<u8>,
}

impl<'s> Headers<'s> {
    const fn new(source: &'s dyn ReadAt) -> Self {
        Self {
            source,
            start: 0,
            bytes: Vec::new(),
        }
    }

    fn get<T: FromBytes>(&mut self, at: u64, chunk: u32) -> Result<T> {
        let (need, len) = (u64_from(size_of::<T>()), self.source.len());
        let end = at + need;
        if end > len {
            return Err(Check::Cut { chunk, end, len }.at("android-sparse", at));
        }
        if at < self.start || end > self.start + u64_from(self.bytes.len()) {
            self.bytes.resize(usize_from(WINDOW.min(len - at)), 0);
            self.start = at;
            read(self.source, at, &mut self.bytes)?;
        }
        let bytes = self.bytes.get(usize_from(at - self.start)..);
        match T::read_from_prefix(bytes.unwrap_or_default()) {
            Ok((header, _)) => Ok(header),
            Err(_) => Err(Check::Cut { chunk, end, len }.at("android-sparse", at)),
        }
    }
}
