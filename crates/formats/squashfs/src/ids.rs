//! User and group ids: an indexed table in 4.0, two plain lists in older versions.

use forerun_vfs::{NodeId, Result};
use zerocopy::little_endian::U32;

use crate::blocks::Blocks;
use crate::error::Check;
use crate::superblock::Superblock;
use crate::tables::{Indexed, indexed};

/// The ids that inodes refer to by index.
pub enum IdTable {
    Indexed(Indexed),
    /// User ids of an older image, followed by its group ids; at most 510.
    Plain(Vec<u32>),
}

impl IdTable {
    /// Opens the id table of 4.0, or reads the lists of an older image.
    pub fn open(blocks: &Blocks, superblock: &Superblock) -> Result<Self> {
        let Some(legacy) = &superblock.legacy else {
            let count = u64::from(superblock.ids);
            let table = indexed(superblock, "id table", superblock.id_table, count, 4)?;
            return Ok(Self::Indexed(table));
        };
        let mut ids = Vec::new();
        for (start, count) in [legacy.uids, legacy.gids] {
            let mut bytes = vec![0; usize::from(count) * 4];
            if count > 0 {
                blocks.read(start, &mut bytes)?;
            }
            let (words, _) = bytes.as_chunks::<4>();
            ids.extend(words.iter().map(|&word| legacy.order.u32(word)));
        }
        Ok(Self::Plain(ids))
    }

    /// Returns the id at `index`. `node` is for errors.
    pub fn get(&self, blocks: &Blocks, index: u16, node: NodeId) -> Result<u32> {
        match self {
            Self::Indexed(table) => {
                let id: U32 = table.get(blocks, u64::from(index), Some(node))?;
                Ok(id.get())
            }
            Self::Plain(ids) => {
                let found = ids.get(usize::from(index)).copied();
                found.ok_or_else(|| {
                    let check = Check::TableIndex {
                        table: "tables of uids and guids",
                        index: u64::from(index),
                        count: forerun_io::u64_from(ids.len()),
                    };
                    check.at(Some(node), 0)
                })
            }
        }
    }
}
