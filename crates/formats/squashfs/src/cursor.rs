//! Reads across the boundaries of consecutive metadata blocks.

use forerun_vfs::{NodeId, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::blocks::{Block, Blocks};
use crate::error::Check;
use crate::ondisk::{METADATA_BLOCK, Numbers};
use crate::reference::Reference;

/// A table of metadata blocks from image offset `start` to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: &'static str,
    pub start: u64,
    pub end: u64,
}

impl Table {
    /// Returns the length of the table's blocks in the image.
    pub const fn len(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Returns an upper bound on the decoded length: each block takes at least three bytes.
    pub fn max_decoded(&self) -> u64 {
        (self.len() / 3).saturating_mul(forerun_io::u64_from(METADATA_BLOCK))
    }
}

#[derive(Clone)]
pub struct Cursor<'b> {
    blocks: &'b Blocks,
    table: Table,
    node: Option<NodeId>,
    /// Offset of the current block from the start of the table.
    at: u64,
    pos: usize,
    block: Option<Block>,
}

impl<'b> Cursor<'b> {
    /// Creates a cursor at `reference`. `node` is for errors.
    pub fn new(
        blocks: &'b Blocks,
        table: Table,
        reference: Reference,
        node: Option<NodeId>,
    ) -> Result<Self> {
        if reference.block() >= table.len() || reference.offset() > METADATA_BLOCK {
            return Err(Check::Reference {
                reference,
                table: table.name,
                len: table.len(),
            }
            .at(node, table.start));
        }
        Ok(Self {
            blocks,
            table,
            node,
            at: reference.block(),
            pos: reference.offset(),
            block: None,
        })
    }

    /// Returns the image offset of the block of the last read, for errors.
    pub const fn offset(&self) -> u64 {
        self.table.start + self.at
    }

    /// Returns the position of the next byte. At the end of a block, that is the position after its
    /// last byte.
    pub fn reference(&self) -> Reference {
        Reference::from_raw(self.at << 16 | forerun_io::u64_from(self.pos))
    }

    pub fn read<T: FromBytes + IntoBytes + Numbers>(&mut self) -> Result<T> {
        let mut value = match T::read_from_prefix(self.chunk()?) {
            Ok((value, _)) => {
                self.pos += size_of::<T>();
                value
            }
            // The structure continues in the next block.
            Err(_) => {
                let mut value = T::new_zeroed();
                self.read_into(value.as_mut_bytes())?;
                value
            }
        };
        self.blocks.adopt(&mut value);
        Ok(value)
    }

    /// Reads `spare.len()` bytes. Returns them from the block without a copy if it holds them all,
    /// otherwise copied into `spare`.
    pub fn bytes<'s>(&'s mut self, spare: &'s mut [u8]) -> Result<&'s [u8]> {
        if spare.len() > self.chunk()?.len() {
            self.read_into(spare)?;
            return Ok(spare);
        }
        let start = self.pos;
        self.pos += spare.len();
        let block = self.block.as_ref();
        let here = block.and_then(|block| block.data().get(start..self.pos));
        Ok(here.unwrap_or_default())
    }

    /// Moves from the end of a block to the start of the next one, so that [`Self::reference`]
    /// returns the form that the image uses.
    pub fn settle(&mut self) -> Result<()> {
        self.chunk().map(|_| ())
    }

    pub fn read_into(&mut self, out: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < out.len() {
            let rest = &mut out[done..];
            let from = self.chunk()?;
            let len = from.len().min(rest.len());
            rest[..len].copy_from_slice(&from[..len]);
            self.pos += len;
            done += len;
        }
        Ok(())
    }

    /// Skips `len` bytes. Decodes every block that it crosses.
    pub fn skip(&mut self, mut len: u64) -> Result<()> {
        while len > 0 {
            let here = forerun_io::u64_from(self.chunk()?.len()).min(len);
            self.pos += forerun_io::usize_from(here);
            len -= here;
        }
        Ok(())
    }

    /// Returns the rest of the current block, or the whole next block; never empty.
    fn chunk(&mut self) -> Result<&[u8]> {
        let block = self.block.as_ref();
        if block.is_none_or(|block| self.pos >= block.data().len()) {
            self.advance()?;
        }
        let block = self.block.as_ref();
        let rest = block.and_then(|block| block.data().get(self.pos..));
        Ok(rest.unwrap_or_default())
    }

    /// Loads the block that holds the next byte.
    fn advance(&mut self) -> Result<()> {
        let mut block = match self.block.take() {
            Some(block) => block,
            None => self.load()?,
        };
        if self.pos == METADATA_BLOCK && block.data().len() == METADATA_BLOCK {
            self.at += block.stored_len();
            self.pos = 0;
            block = self.load()?;
        }
        let (offset, len) = (self.pos, block.data().len());
        self.block = Some(block);
        if offset < len {
            Ok(())
        } else {
            Err(Check::MetadataOffset { offset, len }.at(self.node, self.offset()))
        }
    }

    fn load(&self) -> Result<Block> {
        let (offset, end) = (self.offset(), self.table.end);
        if offset >= end {
            let table = self.table.name;
            return Err(Check::TableEnd { table, end }.at(self.node, offset));
        }
        self.blocks.get(offset, end, self.node)
    }
}
