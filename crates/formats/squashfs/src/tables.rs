//! Indexed tables: ids, fragments, export.
//!
//! Entries of equal length are in metadata blocks, all full except the last one; a list of pointers
//! to these blocks follows. Blocks are read when an entry is needed.

use forerun_io::u16_from;
use forerun_vfs::{ByteOrder, NodeId, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::blocks::Blocks;
use crate::cursor::{Cursor, Table};
use crate::error::Check;
use crate::ondisk::{METADATA_BLOCK, Numbers};
use crate::reference::Reference;
use crate::superblock::{Superblock, Version};

/// How a table stores its pointers.
#[derive(Clone, Copy, Debug)]
pub struct Pointers {
    /// Length of a pointer in bytes, at most 8.
    pub len: u64,
    pub order: ByteOrder,
}

impl Pointers {
    pub fn of(superblock: &Superblock) -> Self {
        match &superblock.legacy {
            None => Self::v4(superblock.order),
            Some(legacy) => Self {
                len: if legacy.version == Version::V3 { 8 } else { 4 },
                order: legacy.order,
            },
        }
    }

    pub const fn v4(order: ByteOrder) -> Self {
        Self { len: 8, order }
    }

    fn read(self, blocks: &Blocks, at: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        let out = bytes.get_mut(..forerun_io::usize_from(self.len));
        let out = out.unwrap_or_default();
        blocks.read(at, out)?;
        if self.order == ByteOrder::Big {
            out.reverse();
        }
        Ok(u64::from_le_bytes(bytes))
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Indexed {
    name: &'static str,
    start: u64,
    count: u64,
    entry: u64,
    first: u64,
    form: Pointers,
}

impl Indexed {
    /// Opens a table of `count` entries of `entry` bytes each, which divides 8192. Its pointers
    /// must be between `start` and `end`, and its blocks between `first` and the pointers.
    pub fn new(
        name: &'static str,
        pointers: std::ops::Range<u64>,
        count: u64,
        entry: u64,
        first: u64,
        form: Pointers,
    ) -> Result<Self> {
        let std::ops::Range { start, end } = pointers;
        // Cannot overflow: `count` has at most 32 bits.
        let need = count.div_ceil(Self::per_block(entry)) * form.len;
        let room = end.saturating_sub(start);
        if need > room {
            return Err(Check::TableRoom {
                table: name,
                count,
                need,
                room,
            }
            .at(None, start));
        }
        Ok(Self {
            name,
            start,
            count,
            entry,
            first,
            form,
        })
    }

    pub fn get<T: FromBytes + IntoBytes + Numbers>(
        &self,
        blocks: &Blocks,
        index: u64,
        node: Option<NodeId>,
    ) -> Result<T> {
        let (table, count) = (self.name, self.count);
        if index >= count {
            return Err(Check::TableIndex {
                table,
                index,
                count,
            }
            .at(node, self.start));
        }
        let per_block = Self::per_block(self.entry);
        let pointer_at = self.start + index / per_block * self.form.len;
        let block = self.form.read(blocks, pointer_at)?;
        if block < self.first || block >= self.start {
            let (start, end) = (block, self.start);
            return Err(Check::TableOutside { table, start, end }.at(node, pointer_at));
        }
        let whole = Table {
            name: table,
            start: block,
            end: self.start,
        };
        let offset = u16_from(index % per_block * self.entry);
        Cursor::new(blocks, whole, Reference::new(0, offset), node)?.read()
    }

    pub const fn count(&self) -> u64 {
        self.count
    }

    fn per_block(entry: u64) -> u64 {
        forerun_io::u64_from(METADATA_BLOCK) / entry
    }
}

/// Opens a table of `count` entries with pointers at `start`.
pub fn indexed(
    superblock: &Superblock,
    name: &'static str,
    start: u64,
    count: u64,
    entry: u64,
) -> Result<Indexed> {
    let pointers = start..superblock.end_of(start);
    let form = Pointers::of(superblock);
    Indexed::new(name, pointers, count, entry, superblock.head(), form)
}
