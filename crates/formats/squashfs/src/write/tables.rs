//! Tables after the directories: fragments, export, ids. Each is a list of metadata blocks,
//! followed by their offsets.

use std::collections::HashMap;

use forerun_build::{BuildError, ImageWriter};
use forerun_io::{u16_from, u64_from};

use super::cannot;
use super::metadata::MetadataWriter;

/// Writes `bytes` as metadata blocks. Returns their offsets, as the table's pointers store them.
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
    let starts = starts.map(|start| (base + start).to_le_bytes());
    Ok(starts.flatten().collect())
}

/// Writes a table. Returns the offset of its pointers, which the superblock stores.
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

#[derive(Default)]
pub struct Ids {
    indexes: HashMap<u32, u16>,
    ids: Vec<u32>,
}

impl Ids {
    /// Returns the index of an id. Adds the id if it is new.
    pub fn index(&mut self, id: u32) -> Result<u16, BuildError> {
        if let Some(&index) = self.indexes.get(&id) {
            return Ok(index);
        }
        // Up to 65535 ids: the superblock stores their count in 16 bits.
        let index = u16::try_from(self.ids.len());
        let Some(index) = index.ok().filter(|index| *index < u16::MAX) else {
            return Err(cannot("more than 65535 users and groups".to_string()));
        };
        self.ids.push(id);
        self.indexes.insert(id, index);
        Ok(index)
    }

    pub fn len(&self) -> u16 {
        u16_from(u64_from(self.ids.len()))
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }
}
