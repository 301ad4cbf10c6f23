//! The GUID partition table: a header and an array of entries, each with a CRC-32, and a backup at
//! the end.

use forerun_io::{ReadAt, past_end, u32_from, usize_from};
use forerun_vfs::{Error, Result};
use libdeflater::crc32;

use super::{PartitionTable, TableKind, TablePartition, number};

/// Possible sector sizes. The table does not store its sector size.
const SECTORS: [u64; 2] = [512, 4096];
/// Length of a header in the specification.
const GPT_HEADER: usize = 92;
/// Maximum number of bytes of all entries. Tools write 16 KiB.
const MOST_ENTRIES: u64 = 1 << 20;

/// Partition types, one per line: the GUID in text form, and the name. The list has the types of
/// the Discoverable Partitions Specification, and those that `sfdisk -T` knows in addition.
const TYPES: &str = include_str!("gpt-types.txt");

/// Reads the table at the start of `source`, or its backup at the end. Returns `None` if neither is
/// valid.
pub fn read(source: &dyn ReadAt) -> Result<Option<PartitionTable>> {
    for sector in SECTORS {
        let last = (source.len() / sector).saturating_sub(1);
        for place in [1, last] {
            if let Some(partitions) = at(source, sector, place)? {
                return Ok(Some(PartitionTable {
                    kind: TableKind::Gpt,
                    partitions,
                    from_backup: place != 1,
                    disk_len: source.len(),
                }));
            }
        }
    }
    Ok(None)
}

/// Reads the partitions of the table whose header is in sector `place`.
fn at(source: &dyn ReadAt, sector: u64, place: u64) -> Result<Option<Vec<TablePartition>>> {
    let header = super::read::<512>(source, place * sector)?;
    let Some(entries) = header.and_then(|header| GptEntries::parse(&header, place)) else {
        return Ok(None);
    };
    let len = usize_from(entries.len());
    let offset = entries.block.checked_mul(sector);
    let is_inside = |offset: &u64| past_end(*offset, len, source.len()).is_ok();
    let Some(offset) = offset.filter(is_inside) else {
        return Ok(None);
    };
    // At most `MOST_ENTRIES` bytes.
    let mut bytes = vec![0; len];
    let read = source.read_exact_at(offset, &mut bytes);
    read.map_err(|error| Error::io(offset, len, error))?;
    if crc32(&bytes) != entries.crc {
        return Ok(None);
    }
    let chunks = bytes.chunks_exact(usize_from(entries.size));
    let partitions = chunks.zip(1..).filter_map(|(entry, number)| {
        let partition = partition(entry, number, sector)?;
        (partition.offset < source.len()).then_some(partition)
    });
    Ok(Some(partitions.collect()))
}

/// The location of the entries, from a header with a valid checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GptEntries {
    block: u64,
    count: u64,
    size: u64,
    crc: u32,
}

impl GptEntries {
    fn parse(header: &[u8; 512], place: u64) -> Option<Self> {
        let mut header = *header;
        let size = usize_from(number(&header, 12, 4));
        let crc = low(number(&header, 16, 4));
        let fits = (GPT_HEADER..=header.len()).contains(&size);
        if !header.starts_with(b"EFI PART") || !fits || number(&header, 24, 8) != place {
            return None;
        }
        header.get_mut(16..20)?.fill(0);
        if crc32(header.get(..size)?) != crc {
            return None;
        }
        let entries = Self {
            block: number(&header, 72, 8),
            count: number(&header, 80, 4),
            size: number(&header, 84, 4),
            crc: low(number(&header, 88, 4)),
        };
        let is_sound = entries.size >= 128 && entries.size.is_power_of_two();
        (is_sound && entries.len() <= MOST_ENTRIES).then_some(entries)
    }

    /// Returns the length of all entries. Both factors have 32 bits.
    const fn len(self) -> u64 {
        self.count * self.size
    }
}

fn partition(entry: &[u8], number: u32, sector: u64) -> Option<TablePartition> {
    let kind: [u8; 16] = *entry.first_chunk()?;
    let (first, last) = (super::number(entry, 32, 8), super::number(entry, 40, 8));
    if kind == [0; 16] || first == 0 || first > last {
        return None;
    }
    let units = entry.get(56..128)?.chunks_exact(2);
    let units = units.filter_map(|unit| Some(u16::from_le_bytes(unit.try_into().ok()?)));
    let units: Vec<_> = units.take_while(|&unit| unit != 0).collect();
    Some(TablePartition {
        number,
        offset: first.checked_mul(sector)?,
        len: (last - first).checked_add(1)?.checked_mul(sector)?,
        type_name: type_name(kind),
        label: String::from_utf16_lossy(&units),
    })
}

fn type_name(kind: [u8; 16]) -> String {
    let [a, b, c, d, e] = [0..4, 4..6, 6..8, 8..10, 10..16].map(|range| {
        let bytes = mixed(kind);
        let digits = bytes[range].iter().map(|byte| format!("{byte:02x}"));
        digits.collect::<String>()
    });
    let guid = format!("{a}-{b}-{c}-{d}-{e}");
    let names = TYPES.lines().filter_map(|line| line.split_once(' '));
    match names.clone().find(|(known, _)| *known == guid) {
        Some((_, name)) => name.to_string(),
        None => format!("type {guid}"),
    }
}

/// Converts between the byte orders of a GUID as text and as stored.
const fn mixed(b: [u8; 16]) -> [u8; 16] {
    [
        b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6], b[8], b[9], b[10], b[11], b[12], b[13],
        b[14], b[15],
    ]
}

fn low(number: u64) -> u32 {
    u32_from(number)
}
