//! Partition tables: MBR with extended partitions, and GPT.
//!
//! A table is validated before a partition of it is used, and numbers are those of Linux: 1 to 4 for entries of an
//! MBR, from 5 on for logical partitions, and the position in the table for GPT.

mod gpt;
mod mbr;
#[cfg(test)]
mod tests;

use forerun_io::{ReadAt, past_end, u64_from};
use forerun_vfs::{Error, Result};

/// The kind of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableKind {
    /// A master boot record.
    Mbr,
    /// A GUID partition table.
    Gpt,
}

impl TableKind {
    /// Returns a short stable name, for JSON output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mbr => "mbr",
            Self::Gpt => "gpt",
        }
    }
}

/// A valid partition table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    /// MBR or GPT.
    pub kind: TableKind,
    /// The partitions, by number.
    pub partitions: Vec<TablePartition>,
    /// Whether only the copy at the end of the disk is valid.
    pub from_backup: bool,
}

/// A partition of a table. It starts in the source; a truncated source ends before it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePartition {
    /// Its number, from 1 on.
    pub number: u32,
    /// Offset of its first byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
    /// Its type, as text.
    pub type_name: String,
    /// Its name; empty in an MBR.
    pub label: String,
}

/// Reads the partition table at the start of `source`. Returns nothing where there is no valid one.
///
/// # Errors
/// [`Error::Io`] if the source cannot be read.
pub fn partition_table(source: &dyn ReadAt) -> Result<Option<PartitionTable>> {
    let mbr = mbr::read(source)?;
    if mbr.as_ref().is_none_or(|mbr| mbr.protects) {
        // A disk whose first sector was overwritten may have its GPT still.
        if let Some(table) = gpt::read(source)? {
            return Ok(Some(table));
        }
    }
    Ok(mbr.map(|mbr| PartitionTable {
        kind: TableKind::Mbr,
        partitions: mbr.partitions,
        from_backup: false,
    }))
}

/// Reads `N` bytes. Returns nothing where the source ends before.
fn read<const N: usize>(source: &dyn ReadAt, offset: u64) -> Result<Option<[u8; N]>> {
    if past_end(offset, N, source.len()).is_err() {
        return Ok(None);
    }
    let mut bytes = [0; N];
    let read = source.read_exact_at(offset, &mut bytes);
    read.map_err(|error| Error::io(offset, N, error))?;
    Ok(Some(bytes))
}

/// Reads a little-endian number of at most eight bytes; 0 where bytes are missing.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes.get(at..at.saturating_add(size)).unwrap_or_default();
    let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    debug_assert!(u64_from(bytes.len()) <= 8);
    bytes.iter().rev().fold(0, push)
}
