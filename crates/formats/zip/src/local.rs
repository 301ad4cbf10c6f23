//! Local file headers (4.3.7), which repeat the directory's entry before the contents of each
//! member.
//!
//! Only the local header says where the contents begin, since its extra field may differ in length
//! from the directory's.

use std::ops::Range;

use forerun_io::{ReadAt, u64_from};
use forerun_vfs::{NodeId, Result};
use zerocopy::FromBytes;

use crate::end::read;
use crate::error::{Check, lossy};
use crate::node::{Data, Node};
use crate::ondisk::{LOCAL, LocalHeader};

const HEADER: u64 = u64_from(size_of::<LocalHeader>());

/// Reads the local header of a member, which ends before the directory, at `end`.
pub fn header(source: &dyn ReadAt, id: NodeId, data: &Data, end: u64) -> Result<LocalHeader> {
    let at = data.header;
    let last = at.checked_add(HEADER).filter(|&last| last <= end);
    let last = last.ok_or_else(|| Check::LocalOutside { end }.of(id, at))?;
    let bytes = read(source, at..last)?;
    let found = bytes.first_chunk().copied().unwrap_or_default();
    match LocalHeader::read_from_prefix(&bytes) {
        Ok((header, _)) if found == LOCAL => Ok(header),
        _ => Err(Check::NoLocal { found }.of(id, at)),
    }
}

/// Returns the range of a member's contents, which end before the directory, at `end`.
pub fn contents(source: &dyn ReadAt, id: NodeId, data: &Data, end: u64) -> Result<Range<u64>> {
    let header = header(source, id, data, end)?;
    let names = u64::from(header.name_len.get()) + u64::from(header.extra_len.get());
    let offset = data.header + HEADER + names;
    let len = data.len;
    match offset.checked_add(len).filter(|&last| last <= end) {
        Some(last) => Ok(offset..last),
        None => Err(Check::Outside { offset, len, end }.of(id, data.header)),
    }
}

/// Returns a deviation if the local header has another name than the directory.
pub fn other_name(
    source: &dyn ReadAt,
    header: &LocalHeader,
    node: &Node,
    (name, end): (&[u8], u64),
) -> Result<Option<Check>> {
    let start = node.data.header + HEADER;
    let last = start + u64::from(header.name_len.get());
    // A name that reaches further is reported with the contents.
    if last > end {
        return Ok(None);
    }
    let local = read(source, start..last)?;
    Ok((local != name).then(|| Check::LocalName {
        local: lossy(&local),
        name: lossy(name),
    }))
}

/// Returns the fields in which the local header contradicts the directory. A member written as a
/// stream has its sizes and its CRC-32 after the contents, and zeros in the local header.
pub fn differences(header: &LocalHeader, node: &Node, method: u16, flags: u16) -> Vec<Check> {
    /// General purpose bit 3: sizes and CRC-32 follow the contents.
    const DESCRIPTOR: u16 = 8;
    let is_stream = header.flags.get() & DESCRIPTOR != 0;
    let is_other = |field: u32, value: u64| {
        field != u32::MAX && u64::from(field) != value && !(is_stream && field == 0)
    };
    let found = [
        ("method", header.method.get() != method),
        ("encryption flag", (header.flags.get() ^ flags) & 1 != 0),
        ("CRC-32", is_other(header.crc.get(), node.data.crc.into())),
        (
            "compressed size",
            is_other(header.compressed_size.get(), node.data.len),
        ),
        ("size", is_other(header.size.get(), node.size)),
    ];
    let found = found.into_iter().filter(|(_, differs)| *differs);
    found.map(|(field, _)| Check::Differs { field }).collect()
}
