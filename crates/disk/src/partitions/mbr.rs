use forerun_io::ReadAt;
use forerun_vfs::Result;

use super::{TablePartition, number};

/// Sector size in bytes. An MBR does not store it; disks with other sectors have a GPT.
const SECTOR: u64 = 512;
const ENTRIES: usize = 446;
const MBR_ENTRY: usize = 16;
const FIRST_LOGICAL: u32 = 5;
/// Maximum number of logical partitions. Linux supports 256 partitions per disk.
const MOST_LOGICAL: u32 = 256;
/// Type of the entry that protects a GPT.
const PROTECTIVE: u8 = 0xee;

#[derive(Debug, Default)]
pub struct BootRecord {
    pub partitions: Vec<TablePartition>,
    /// The record only protects a GPT from tools that do not know GPT.
    pub protects: bool,
}

/// Reads the record in the first sector. Returns `None` if it is invalid.
pub fn read(source: &dyn ReadAt) -> Result<Option<BootRecord>> {
    let Some(sector) = super::read::<512>(source, 0)? else {
        return Ok(None);
    };
    let Some(entries) = parse(&sector) else {
        return Ok(None);
    };
    let mut record = BootRecord::default();
    for (entry, number) in entries.iter().zip(1..) {
        let used = entry.kind != 0;
        if used && (entry.start == 0 || entry.sectors == 0 || entry.offset(0) >= source.len()) {
            return Ok(None);
        }
        record.protects |= entry.kind == PROTECTIVE;
        if used {
            record.partitions.push(entry.partition(number, 0));
        }
    }
    if record.partitions.is_empty() {
        return Ok(None);
    }
    if let Some(extended) = entries.iter().find(|entry| entry.is_extended()) {
        logical(source, extended, &mut record.partitions)?;
    }
    Ok(Some(record))
}

/// Follows the chain of an extended partition. Each record must come after its predecessor, so that
/// a circular chain ends.
fn logical(
    source: &dyn ReadAt,
    extended: &RecordEntry,
    partitions: &mut Vec<TablePartition>,
) -> Result<()> {
    let base = extended.offset(0);
    let mut at = base;
    for number in FIRST_LOGICAL..FIRST_LOGICAL + MOST_LOGICAL {
        let sector = read_sector(source, at)?;
        let Some([entry, next, ..]) = sector.as_ref().and_then(parse) else {
            break;
        };
        if entry.kind != 0 && entry.sectors > 0 && entry.offset(at) < source.len() {
            partitions.push(entry.partition(number, at));
        }
        let following = next.offset(base);
        if !next.is_extended() || following <= at {
            break;
        }
        at = following;
    }
    Ok(())
}

fn read_sector(source: &dyn ReadAt, at: u64) -> Result<Option<[u8; 512]>> {
    super::read::<512>(source, at)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RecordEntry {
    kind: u8,
    start: u64,
    sectors: u64,
}

impl RecordEntry {
    const fn is_extended(self) -> bool {
        matches!(self.kind, 0x05 | 0x0f | 0x85)
    }

    /// Returns the byte offset relative to `base`. Neither overflows, because both are at most
    /// 32-bit sector numbers.
    const fn offset(self, base: u64) -> u64 {
        base + self.start * SECTOR
    }

    fn partition(self, number: u32, base: u64) -> TablePartition {
        TablePartition {
            number,
            offset: self.offset(base),
            len: self.sectors * SECTOR,
            type_name: type_name(self.kind),
            label: String::new(),
        }
    }
}

/// Parses the entries of a sector. Returns `None` without the signature, or if an entry is neither
/// active, inactive nor empty.
fn parse(sector: &[u8; 512]) -> Option<[RecordEntry; 4]> {
    let table = sector.get(ENTRIES..510)?;
    if sector.get(510..) != Some(&[0x55, 0xaa][..]) {
        return None;
    }
    let mut entries = [RecordEntry::default(); 4];
    for (entry, bytes) in entries.iter_mut().zip(table.chunks_exact(MBR_ENTRY)) {
        let (&status, &kind) = (bytes.first()?, bytes.get(4)?);
        if status & 0x7f != 0 {
            return None;
        }
        *entry = RecordEntry {
            kind,
            start: number(bytes, 8, 4),
            sectors: number(bytes, 12, 4),
        };
    }
    Some(entries)
}

fn type_name(kind: u8) -> String {
    let name = match kind {
        0x01 | 0x04 | 0x06 | 0x0e => "FAT",
        0x05 | 0x0f | 0x85 => "extended",
        0x07 => "exFAT or NTFS",
        0x0b | 0x0c => "FAT32",
        0x82 => "Linux swap",
        0x83 => "Linux",
        0x8e => "Linux LVM",
        PROTECTIVE => "protects a GPT that is damaged",
        0xef => "EFI system",
        _ => return format!("type {kind:#04x}"),
    };
    name.to_string()
}
