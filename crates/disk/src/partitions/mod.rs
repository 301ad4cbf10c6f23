//! Partition tables: MBR with extended partitions, and GPT.
//!
//! A table is validated before any of its partitions is used. Numbers are those of Linux: 1 to 4
//! for MBR entries, from 5 for logical partitions, and the position in the table for GPT.

mod gpt;
mod mbr;
#[cfg(test)]
mod tests;

use std::io;

use forerun_io::{ReadAt, past_end, u64_from};
use forerun_vfs::{Error, Result};

use crate::Volume;
use crate::expanded::whole_map;

/// The kind of a partition table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TableKind {
    Mbr,
    Gpt,
    Ubi,
}

impl TableKind {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mbr => "mbr",
            Self::Gpt => "gpt",
            Self::Ubi => "ubi",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionTable {
    pub kind: TableKind,
    /// The partitions in order of their numbers.
    pub partitions: Vec<TablePartition>,
    /// Only the copy at the end of the disk is valid.
    pub from_backup: bool,
    /// Length in bytes of the file, or of the disk that its map describes.
    pub disk_len: u64,
}

impl PartitionTable {
    /// Returns UBI volumes as partitions.
    pub(crate) fn of_volumes(volumes: &[Volume], disk_len: u64) -> Option<Self> {
        let volumes = volumes.iter().map(|volume| {
            let kind = match (volume.is_torn, volume.is_static) {
                (true, _) => "volume, its update was interrupted",
                (false, true) => "static volume",
                (false, false) => "dynamic volume",
            };
            TablePartition {
                number: volume.number,
                offset: volume.offset,
                len: volume.len,
                type_name: kind.to_string(),
                label: String::from_utf8_lossy(&volume.name).into_owned(),
            }
        });
        let partitions: Vec<_> = volumes.collect();
        (!partitions.is_empty()).then_some(Self {
            kind: TableKind::Ubi,
            partitions,
            from_backup: false,
            disk_len,
        })
    }
}

/// A partition of a table. It starts inside the source; a truncated source may end before the
/// partition does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TablePartition {
    /// Number, from 1; from 0 in UBI.
    pub number: u32,
    /// Offset of the first byte.
    pub offset: u64,
    pub len: u64,
    pub type_name: String,
    /// Name; empty in an MBR.
    pub label: String,
}

/// Reads the partition table at the start of `source`. If `source` is an Android sparse image or a
/// UBI flash, reads the table of the disk that it maps; UBI volumes are returned as partitions.
/// Returns `None` if there is no valid table.
pub fn partition_table(source: &dyn ReadAt) -> Result<Option<PartitionTable>> {
    match whole_map(source)? {
        Some(disk) if !disk.volumes.is_empty() => {
            let len = disk.disk_len();
            Ok(PartitionTable::of_volumes(&disk.volumes, len))
        }
        Some(disk) => of_disk(&disk.over(Borrowed(source))),
        None => of_disk(source),
    }
}

struct Borrowed<'s>(&'s dyn ReadAt);

impl ReadAt for Borrowed<'_> {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(offset, out)
    }
}

fn of_disk(source: &dyn ReadAt) -> Result<Option<PartitionTable>> {
    let mbr = mbr::read(source)?;
    if mbr.as_ref().is_none_or(|mbr| mbr.protects) {
        // A disk whose first sector was overwritten may still have its GPT.
        if let Some(table) = gpt::read(source)? {
            return Ok(Some(table));
        }
    }
    Ok(mbr.map(|mbr| PartitionTable {
        kind: TableKind::Mbr,
        partitions: mbr.partitions,
        from_backup: false,
        disk_len: source.len(),
    }))
}

/// Reads `N` bytes. Returns `None` if the source is shorter.
fn read<const N: usize>(source: &dyn ReadAt, offset: u64) -> Result<Option<[u8; N]>> {
    if past_end(offset, N, source.len()).is_err() {
        return Ok(None);
    }
    let mut bytes = [0; N];
    let read = source.read_exact_at(offset, &mut bytes);
    read.map_err(|error| Error::io(offset, N, error))?;
    Ok(Some(bytes))
}

/// Reads a little-endian number of at most eight bytes; 0 if bytes are missing.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let bytes = bytes.get(at..at + size).unwrap_or_default();
    let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    debug_assert!(u64_from(bytes.len()) <= 8);
    bytes.iter().rev().fold(0, push)
}
