//! Reads, decodes and caches metadata blocks.
//!
//! Inodes, listings and all tables are in blocks of 8 KiB, each compressed on its own. Many inodes
//! share a block, so decoded blocks are cached within a budget that the caller sets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use forerun_codec::Codec;
use forerun_io::{BlobId, BlockCache, BlockKey, Counter, Observer, ReadAt, u64_from};
use forerun_vfs::{ByteOrder, Error, NodeId, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::error::Check;
use crate::ondisk::{METADATA_BLOCK, METADATA_STORED, Numbers};
use crate::superblock::Superblock;

/// The byte after the block header in images of 1.x to 3.x made with `-check_data`.
const MARKER: u8 = 0xff;

/// How an image stores metadata blocks and numbers.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub numbers: ByteOrder,
    pub headers: ByteOrder,
    pub has_marker: bool,
}

impl Frame {
    pub fn of(superblock: &Superblock) -> Self {
        Self {
            numbers: superblock.order,
            headers: superblock.headers,
            has_marker: superblock
                .legacy
                .as_ref()
                .is_some_and(|legacy| legacy.has_marker),
        }
    }

    pub const fn len(self) -> usize {
        if self.has_marker { 3 } else { 2 }
    }
}

pub struct Blocks {
    source: Arc<dyn ReadAt>,
    codec: Codec,
    frame: Frame,
    cache: BlockCache<Error>,
    observer: Arc<Observer>,
    /// Total length of the uncompressed blocks read so far.
    stored: AtomicU64,
    /// Whether a compressed block without a checksum was read.
    has_unproven: AtomicBool,
}

/// A decoded block. Its last two bytes hold the stored length, so that one cache value has both.
#[derive(Clone)]
pub struct Block(Arc<[u8]>);

impl Block {
    /// Returns the decoded bytes: 8 KiB, or fewer for the last block of a table.
    pub fn data(&self) -> &[u8] {
        &self.0[..self.0.len() - 2]
    }

    /// Returns the length of the block in the image, with its header.
    pub fn stored_len(&self) -> u64 {
        let len = self.0.last_chunk().copied().unwrap_or_default();
        u64::from(u16::from_le_bytes(len))
    }
}

impl Blocks {
    pub fn new(
        source: Arc<dyn ReadAt>,
        codec: Codec,
        frame: Frame,
        cache: u64,
        observer: Arc<Observer>,
    ) -> Self {
        Self {
            source,
            codec,
            frame,
            cache: BlockCache::new(cache, u64_from(METADATA_BLOCK)),
            observer,
            stored: AtomicU64::new(0),
            has_unproven: AtomicBool::new(false),
        }
    }

    /// Returns how many bytes of the blocks read no checksum covers; `None` if compressed blocks
    /// have no checksum.
    pub fn unproven(&self) -> Option<u64> {
        let is_part = !self.has_unproven.load(Ordering::Relaxed);
        is_part.then(|| self.stored.load(Ordering::Relaxed))
    }

    /// Returns the block whose header is at `offset`, and which must end by `end`. `node` is for
    /// errors.
    pub fn get(&self, offset: u64, end: u64, node: Option<NodeId>) -> Result<Block> {
        let key = BlockKey::at(BlobId::IMAGE, offset);
        if let Some(bytes) = self.cache.get(key) {
            return Ok(Block(bytes));
        }
        let load = || self.load(offset, end, node);
        let (bytes, _) = self.cache.get_or_load(key, load)?;
        Ok(Block(bytes))
    }

    /// Reads a structure outside of metadata blocks.
    pub fn plain<T: FromBytes + IntoBytes + Numbers>(&self, offset: u64) -> Result<T> {
        let mut value = T::new_zeroed();
        self.read(offset, value.as_mut_bytes())?;
        self.adopt(&mut value);
        Ok(value)
    }

    /// Converts the numbers of a structure read from the image to the byte order of its type.
    pub fn adopt(&self, value: &mut impl Numbers) {
        if self.frame.numbers == ByteOrder::Big {
            value.turn_round();
        }
    }

    /// Returns the length in the header of a metadata block.
    pub fn len_in(&self, header: [u8; 2]) -> u16 {
        self.frame.headers.u16(header) & !METADATA_STORED
    }

    pub fn is_slow(&self) -> bool {
        self.source.is_slow()
    }

    /// Reads bytes outside of metadata blocks: the pointers of a table.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let read = self.source.read_exact_at(offset, out);
        read.map_err(|error| Error::io(offset, out.len(), error))
    }

    fn load(&self, offset: u64, end: u64, node: Option<NodeId>) -> Result<Arc<[u8]>> {
        let outside = |end| {
            Check::TableEnd {
                table: "metadata",
                end,
            }
            .at(node, offset)
        };
        let body = offset
            .checked_add(u64_from(self.frame.len()))
            .filter(|&body| body < end);
        let body = body.ok_or_else(|| outside(end))?;
        let mut header = [0; 3];
        let frame = header.get_mut(..self.frame.len()).unwrap_or_default();
        self.read(offset, frame)?;
        let [first, second, marker] = header;
        if self.frame.has_marker && marker != MARKER {
            return Err(Check::Marker { found: marker }.at(node, offset));
        }
        let word = self.frame.headers.u16([first, second]);
        let len = word & !METADATA_STORED;
        let is_stored = word & METADATA_STORED != 0;
        if len == 0 || usize::from(len) > METADATA_BLOCK {
            return Err(Check::MetadataLen { len }.at(node, offset));
        }
        if body + u64::from(len) > end {
            return Err(outside(end));
        }
        let mut stored = [0; METADATA_BLOCK];
        let stored = stored.get_mut(..usize::from(len)).unwrap_or_default();
        self.read(body, stored)?;
        let mut decoded = [0; METADATA_BLOCK];
        let has_checksum = || {
            let always = self.codec.has_checksum();
            always.unwrap_or_else(|| self.codec.stream_has_checksum(stored))
        };
        if is_stored {
            self.stored.fetch_add(u64::from(len), Ordering::Relaxed);
        } else if !has_checksum() {
            self.has_unproven.store(true, Ordering::Relaxed);
        }
        let data = if is_stored {
            stored
        } else {
            self.decode(offset, stored, &mut decoded, node)?
        };
        // At most 8195, as checked above.
        let taken = u16::try_from(self.frame.len()).unwrap_or(0) + len;
        let mut block = Vec::with_capacity(data.len() + 2);
        block.extend_from_slice(data);
        block.extend_from_slice(&taken.to_le_bytes());
        Ok(block.into())
    }

    fn decode<'d>(
        &self,
        offset: u64,
        stored: &[u8],
        decoded: &'d mut [u8; METADATA_BLOCK],
        node: Option<NodeId>,
    ) -> Result<&'d mut [u8]> {
        let timer = self.observer.timer();
        let result = self.codec.decode_up_to(stored, decoded);
        let len = result.map_or(0, u64_from);
        let key = BlockKey::at(BlobId::IMAGE, offset);
        self.observer.decode(timer, key, len, result.is_ok());
        self.observer.stats().add(Counter::MetadataDecodes, 1);
        match result {
            Ok(len) if len > 0 => Ok(decoded.get_mut(..len).unwrap_or_default()),
            Ok(_) => Err(Check::MetadataLen { len: 0 }.at(node, offset)),
            Err(source) => Err(Check::MetadataDecode { source }.at(node, offset)),
        }
    }
}
