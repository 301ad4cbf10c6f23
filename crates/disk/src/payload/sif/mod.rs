//! SIF, the Singularity Image Format: a header, a table of descriptors, the objects they describe.
//!
//! Of the objects only the partition with the root filesystem matters here: the one marked as the
//! primary system partition, or the only one there is. All numbers are little-endian, and nothing
//! is padded.

use forerun_io::{ReadAt, u64_from};
use forerun_vfs::{Bound, Error, Result};

use super::error::Check;
use super::{Payload, corrupt, read};
use crate::Container;

/// After the launch script, which takes 32 bytes.
const MAGIC: &[u8; 10] = b"SIF_MAGIC\0";
const MAGIC_AT: usize = 32;
const VERSION_AT: usize = 42;
const VERSION: &[u8; 3] = b"01\0";
/// Bytes of the header.
const HEADER: usize = 128;
/// Bytes of a descriptor.
const DESCRIPTOR: usize = 585;
/// Descriptors read at once.
const STEP: u64 = 64;
/// Most descriptors of a file. Files are made with room for 48.
const MAX_DESCRIPTORS: u64 = 65_536;

/// Type of a descriptor of a partition.
const PARTITION: u32 = 0x4004;
/// Type of the partition with the root filesystem.
const PRIMARY_SYSTEM: u32 = 2;
/// Type of a partition with changes of the root filesystem.
const OVERLAY: u32 = 4;

/// Checks the magic only.
pub fn is_sif(head: &[u8]) -> bool {
    head.get(MAGIC_AT..)
        .is_some_and(|rest| rest.starts_with(MAGIC))
}

/// Finds the partition that holds the root filesystem.
pub fn find(file: &dyn ReadAt, head: &[u8]) -> Result<Payload> {
    let len = file.len();
    let table = DescriptorTable::parse(head, len)?;
    let (mut primary, mut all) = (Found::default(), Found::default());
    let (mut at, mut has_overlay) = (0, false);
    while at < table.count {
        let count = STEP.min(table.count - at);
        // No overflow: the table lies in the file.
        let offset = table.offset + at * u64_from(DESCRIPTOR);
        let bytes = read(
            file,
            offset,
            usize::try_from(count).unwrap_or(0) * DESCRIPTOR,
        )?;
        for (bytes, index) in bytes.chunks_exact(DESCRIPTOR).zip(at..) {
            let Some(partition) = Partition::parse(bytes) else {
                continue;
            };
            all.add(index, partition);
            has_overlay |= partition.kind == OVERLAY;
            if partition.kind == PRIMARY_SYSTEM {
                primary.add(index, partition);
            }
        }
        at += count;
    }
    let found = if primary.count > 0 { &primary } else { &all };
    let (index, partition) = found.only(primary.count > 0)?;
    let at = table.offset + index * u64_from(DESCRIPTOR);
    let payload = partition.payload(len, at)?;
    // The only partition may be one: then it is read.
    let has_overlay = has_overlay && partition.kind != OVERLAY;
    Ok(Payload {
        has_overlay,
        ..payload
    })
}

/// The place of the descriptors, which lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DescriptorTable {
    offset: u64,
    count: u64,
}

impl DescriptorTable {
    fn parse(head: &[u8], len: u64) -> Result<Self> {
        let Some(head) = head.get(..HEADER) else {
            let need = u64_from(HEADER);
            return Err(corrupt("SIF", 0, Check::Short { len, need }));
        };
        let version = &head[VERSION_AT..];
        if !version.starts_with(VERSION) {
            let version = version[..2].escape_ascii();
            return Err(Error::Unsupported(format!(
                "a SIF file of version {version}; this reads 01"
            )));
        }
        let (count, offset, size) = (word(head, 88), word(head, 96), word(head, 104));
        if count > MAX_DESCRIPTORS {
            return Err(Error::limit(
                Bound::Other,
                "descriptors of the SIF file",
                MAX_DESCRIPTORS,
            ));
        }
        let need = count * u64_from(DESCRIPTOR);
        if need > size {
            return Err(corrupt("SIF", 88, Check::SifRoom { count, need, size }));
        }
        inside("the table of descriptors", offset, size, len, 96)?;
        Ok(Self { offset, count })
    }
}

/// A partition, as its descriptor describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Partition {
    offset: u64,
    size: u64,
    filesystem: u32,
    kind: u32,
}

impl Partition {
    /// Parses a descriptor. Returns `None` if it is unused or does not describe a partition.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let is_used = bytes.get(4).is_some_and(|&used| used != 0);
        (is_used && half(bytes, 0) == PARTITION).then(|| Self {
            offset: word(bytes, 17),
            size: word(bytes, 25),
            filesystem: half(bytes, 201),
            kind: half(bytes, 205),
        })
    }

    fn payload(self, len: u64, at: u64) -> Result<Payload> {
        inside("the partition", self.offset, self.size, len, at)?;
        if self.size == 0 {
            return Err(corrupt("SIF", at, Check::SifEmpty));
        }
        let refuse = |what: &str| {
            Err(Error::Unsupported(format!(
                "a SIF file whose partition is {what}"
            )))
        };
        match self.filesystem {
            // SquashFS, or raw: any format.
            1 | 4 => Ok(Payload {
                container: Container::Sif,
                offset: self.offset,
                size: Some(self.size),
                has_overlay: false,
            }),
            2 => refuse("ext3"),
            3 => refuse("an archive of an immutable object"),
            5 => refuse("an encrypted SquashFS image"),
            other => refuse(&format!("of filesystem type {other}")),
        }
    }
}

/// The first of several partitions, and how many there are.
#[derive(Default)]
struct Found {
    first: Option<(u64, Partition)>,
    count: u64,
}

impl Found {
    fn add(&mut self, index: u64, partition: Partition) {
        self.first.get_or_insert((index, partition));
        self.count += 1;
    }

    /// Returns the partition if there is exactly one. Any other number is valid, but does not say
    /// what to open.
    fn only(&self, is_primary: bool) -> Result<(u64, Partition)> {
        let count = self.count;
        match self.first {
            Some(first) if count == 1 => Ok(first),
            Some(_) => {
                let what = if is_primary {
                    "primary system partitions"
                } else {
                    "partitions and no primary one"
                };
                Err(Error::Unsupported(format!(
                    "a SIF file with {count} {what}: an offset tells which is meant"
                )))
            }
            None => Err(Error::Unsupported(
                "a SIF file without a partition".to_string(),
            )),
        }
    }
}

fn inside(what: &'static str, offset: u64, size: u64, len: u64, at: u64) -> Result<()> {
    // Numbers are signed in the format; negative ones are past any end.
    match offset.checked_add(size) {
        Some(end) if end <= len => Ok(()),
        _ => {
            let check = Check::Outside {
                what,
                offset,
                size,
                len,
            };
            Err(corrupt("SIF", at, check))
        }
    }
}

/// Reads a 64-bit number; 0 if the bytes are missing, which callers rule out.
fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
