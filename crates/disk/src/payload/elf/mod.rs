//! Finds the end of an ELF executable, where an appended image starts.
//!
//! Type 2 AppImages are such files, with `AI` and 2 in unused bytes of their identification. The
//! linker puts the section table last, so the end of the table is the end of the linked file, which
//! AppImages use. Tools that strip or patch executables leave other ends, so the end of the last
//! section and segment is considered too.

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::Result;

use super::error::Check;
use super::{Payload, corrupt, read};
use crate::Container;

/// Type of a section without bytes in the file.
const SHT_NOBITS: u64 = 8;

/// The kind of program in the first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgramKind {
    Other,
    Elf,
    AppImage1,
    AppImage2,
}

/// Determines the kind from magic numbers only.
pub fn kind(head: &[u8]) -> ProgramKind {
    if !head.starts_with(b"\x7fELF") {
        return ProgramKind::Other;
    }
    match head.get(8..11) {
        Some(b"AI\x01") => ProgramKind::AppImage1,
        Some(b"AI\x02") => ProgramKind::AppImage2,
        _ => ProgramKind::Elf,
    }
}

/// Returns the possible offsets after the executable, the likeliest first.
pub fn find(file: &dyn ReadAt, head: &[u8], container: Container) -> Result<Vec<Payload>> {
    let len = file.len();
    let elf = Header::parse(head, len).map_err(|check| corrupt("ELF", 0, check))?;
    let mut last = u64_from(elf.layout.header());
    for table in [&elf.sections, &elf.segments] {
        // At most 65,535 entries of 64 bytes, inside the file.
        let bytes = read(file, table.offset, usize_from(table.len()))?;
        for entry in bytes.chunks_exact(table.entry) {
            let (offset, size) = table.place(elf.layout, entry);
            let end = inside(table.what, offset, size, len);
            last = last.max(end.map_err(|check| corrupt("ELF", table.offset, check))?);
        }
    }
    last = last.max(elf.sections.end()).max(elf.segments.end());
    let first = match elf.sections.count {
        0 => last,
        _ => elf.sections.end(),
    };
    let mut places = vec![first, last];
    places.dedup();
    // If the file ends there, nothing is appended.
    places.retain(|&offset| offset < len);
    Ok(places
        .into_iter()
        .map(|offset| Payload {
            container,
            offset,
            size: None,
        })
        .collect())
}

/// Returns the offset after the section table, where the image of an AppImage begins.
pub fn end(file: &dyn ReadAt, head: &[u8]) -> Result<Option<u64>> {
    let elf = Header::parse(head, file.len()).map_err(|check| corrupt("ELF", 0, check))?;
    Ok((elf.sections.count > 0).then(|| elf.sections.end()))
}

/// Class and byte order, which determine the offsets and the decoding of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    wide: bool,
    big_endian: bool,
}

impl Layout {
    const fn header(self) -> usize {
        if self.wide { 64 } else { 52 }
    }

    /// Reads `size` bytes at `at` as a number; 0 if they are missing.
    fn number(self, bytes: &[u8], at: usize, size: usize) -> u64 {
        let bytes = bytes.get(at..at + size).unwrap_or_default();
        let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        if self.big_endian {
            bytes.iter().fold(0, push)
        } else {
            bytes.iter().rev().fold(0, push)
        }
    }

    /// Reads a field of address width at the offset for the class.
    fn address(self, bytes: &[u8], narrow: usize, wide: usize) -> u64 {
        if self.wide {
            self.number(bytes, wide, 8)
        } else {
            self.number(bytes, narrow, 4)
        }
    }
}

/// A table of the header. It lies inside the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HeaderTable {
    what: &'static str,
    offset: u64,
    count: u64,
    entry: usize,
}

impl HeaderTable {
    const fn len(&self) -> u64 {
        self.count * u64_from(self.entry)
    }

    const fn end(&self) -> u64 {
        self.offset + self.len()
    }

    /// Returns offset and size of an entry's section or segment in the file.
    fn place(&self, layout: Layout, entry: &[u8]) -> (u64, u64) {
        if self.what == SEGMENT {
            (layout.address(entry, 4, 8), layout.address(entry, 16, 32))
        } else if layout.number(entry, 4, 4) == SHT_NOBITS {
            (0, 0)
        } else {
            (layout.address(entry, 16, 24), layout.address(entry, 20, 32))
        }
    }
}

const SECTION: &str = "a section";
const SEGMENT: &str = "a segment";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    layout: Layout,
    sections: HeaderTable,
    segments: HeaderTable,
}

impl Header {
    fn parse(head: &[u8], len: u64) -> Result<Self, Check> {
        let (Some(&class), Some(&order)) = (head.get(4), head.get(5)) else {
            let need = 52;
            return Err(Check::Short { len, need });
        };
        if !(1..=2).contains(&class) || !(1..=2).contains(&order) {
            return Err(Check::ElfIdent { class, order });
        }
        let layout = Layout {
            wide: class == 2,
            big_endian: order == 2,
        };
        if head.len() < layout.header() {
            let need = u64_from(layout.header());
            return Err(Check::Short { len, need });
        }
        let half = |narrow, wide| layout.number(head, if layout.wide { wide } else { narrow }, 2);
        let entry = |narrow, wide| if layout.wide { wide } else { narrow };
        let segments = HeaderTable {
            what: SEGMENT,
            offset: layout.address(head, 28, 32),
            count: half(44, 56),
            entry: entry(32, 56),
        };
        let sections = HeaderTable {
            what: SECTION,
            offset: layout.address(head, 32, 40),
            count: half(48, 60),
            entry: entry(40, 64),
        };
        Ok(Self {
            layout,
            segments: checked(segments, "table of segments", half(42, 54), len)?,
            sections: checked(sections, "table of sections", half(46, 58), len)?,
        })
    }
}

/// Checks that the entries of a table have the expected size, and that it lies inside the file. An
/// empty table gets offset 0.
fn checked(
    table: HeaderTable,
    name: &'static str,
    size: u64,
    len: u64,
) -> Result<HeaderTable, Check> {
    if table.count == 0 {
        return Ok(HeaderTable { offset: 0, ..table });
    }
    let expected = u64_from(table.entry);
    if size != expected {
        return Err(Check::ElfEntry {
            table: name,
            size,
            expected,
        });
    }
    inside(name, table.offset, table.len(), len)?;
    Ok(table)
}

/// Returns the end of a range; fails if the range is not inside the file.
fn inside(what: &'static str, offset: u64, size: u64, len: u64) -> Result<u64, Check> {
    let end = offset.checked_add(size).filter(|&end| end <= len);
    end.ok_or(Check::Outside {
        what,
        offset,
        size,
        len,
    })
}

#[cfg(test)]
mod tests;
