//! Tables behind the directories: fragments, export, ids. Each is metadata blocks and, behind them,
//! where each of those starts.

use std::collections::HashMap;

use forerun_build::{BuildError, ImageWriter};

use super::cannot;
use super::metadata::MetadataWriter;

/// Writes `bytes` as metadata blocks; gives their starts, as the list behind them has them.
pub fn write_blocks(
    mut table: MetadataWriter,
    bytes: &[u8],
    out: &mut ImageWriter<'_>,
) -> Result<Vec<u8>, BuildError> {
    let base = out.position();
    table.write(bytes);
    table.finish();
    out.write(&table.take())?;
    let starts = table.starts.iter();
    let starts = starts.map(|start| base.saturating_add(*start).to_le_bytes());
    Ok(starts.flatten().collect())
}

/// Writes a table and gives where its list of blocks is, which is what the superblock holds.
pub fn write_table(
    table: MetadataWriter,
    bytes: &[u8],
    out: &mut ImageWriter<'_>,
) -> Result<u64, BuildError> {
    let starts = write_blocks(table, bytes, out)?;
    let start = out.position();
    out.write(&starts)?;
    Ok(start)
}

/// Users and groups, each once.
#[derive(Default)]
pub struct Ids {
    indexes: HashMap<u32, u16>,
    ids: Vec<u32>,
}

impl Ids {
    /// The index of a user or group.
    pub fn index(&mut self, id: u32) -> Result<u16, BuildError> {
        if let Some(&index) = self.indexes.get(&id) {
            return Ok(index);
        }
        // One less than there are indexes, because the superblock holds their number in 16 bits.
        let index = u16::try_from(self.ids.len());
        let Some(index) = index.ok().filter(|index| *index < u16::MAX) else {
            return Err(cannot("more than 65535 users and groups".to_string()));
        };
        self.ids.push(id);
        self.indexes.insert(id, index);
        Ok(index)
    }

    /// How many there are.
    pub fn len(&self) -> u16 {
        u16::try_from(self.ids.len()).unwrap_or(u16::MAX)
    }

    /// The table's contents.
    pub fn bytes(&self) -> Vec<u8> {
        self.ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }
}
