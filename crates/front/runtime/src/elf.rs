//! The ELF file in front of the image: its length and its sections.
//!
//! The AppImage specification (type 2) places the image directly after the section headers, which
//! linkers put last. Other tools store update information and a signature in sections that are not
//! loaded.
//!
//! The file may be any file the user names, so only the headers and the requested section are read.

use forerun_io::ReadAt;

use crate::failure::Failure;

/// Bytes of the 64-bit header, the longer variant.
const HEADER: usize = 64;
/// Maximum number of sections in a runtime; the format allows 65,535.
const MAX_SECTIONS: u16 = 256;
const MAX_SECTION: u64 = 1 << 20;

/// The header fields that locate the sections.
#[derive(Debug, PartialEq, Eq)]
pub struct Elf {
    is_64: bool,
    is_big: bool,
    sections: u64,
    entry_len: u16,
    count: u16,
    names: u16,
}

struct Section {
    name: u64,
    offset: u64,
    len: u64,
}

impl Elf {
    /// Reads the header. Fails if the file is not ELF, has no section headers, or is truncated.
    pub fn read(file: &dyn ReadAt) -> Result<Self, Failure> {
        let mut head = [0; HEADER];
        let len = HEADER.min(forerun_io::usize_from(file.len()));
        let start = &mut head[..len];
        file.read_exact_at(0, start)
            .map_err(|error| Failure::io("reading the ELF header", &error))?;
        let elf = Self::parse(&head).ok_or_else(|| Failure::new("not an ELF program"))?;
        if elf.end() > file.len() {
            return Err(Failure::new(format!(
                "the file is cut off: its section headers end at byte {}, the file at {}",
                elf.end(),
                file.len()
            )));
        }
        Ok(elf)
    }

    fn parse(head: &[u8; HEADER]) -> Option<Self> {
        let is_64 = match (head.first_chunk()?, head.get(4)?) {
            (b"\x7fELF", 1) => false,
            (b"\x7fELF", 2) => true,
            _ => return None,
        };
        let is_big = *head.get(5)? == 2;
        let number = |at, len| number(head, at, len, is_big);
        let short = |at| u16::try_from(number(at, 2)?).ok();
        let (sections, shorts) = if is_64 {
            (number(0x28, 8)?, 0x3a)
        } else {
            (number(0x20, 4)?, 0x2e)
        };
        let elf = Self {
            is_64,
            is_big,
            sections,
            entry_len: short(shorts)?,
            count: short(shorts + 2)?,
            names: short(shorts + 4)?,
        };
        let is_sound = elf.count > 0
            && elf.count <= MAX_SECTIONS
            && usize::from(elf.entry_len) >= elf.section_len()
            && elf.sections.checked_add(elf.table_len()).is_some();
        is_sound.then_some(elf)
    }

    /// Returns the offset of the first byte after the section headers.
    pub const fn end(&self) -> u64 {
        // `read` has checked that the sum fits.
        self.sections + self.table_len()
    }

    const fn table_len(&self) -> u64 {
        // Both factors have 16 bits. `From` is not const.
        #[allow(clippy::as_conversions)]
        let (count, len) = (self.count as u64, self.entry_len as u64);
        count * len
    }

    const fn section_len(&self) -> usize {
        if self.is_64 { 64 } else { 40 }
    }

    /// Returns the contents of the named section, or `None`. Fails if the section is outside the
    /// file or longer than `MAX_SECTION`.
    pub fn section(&self, file: &dyn ReadAt, wanted: &str) -> Result<Option<Vec<u8>>, Failure> {
        let names = self.header(file, self.names)?;
        let names = contents(file, &names)?;
        for index in 0..self.count {
            let section = self.header(file, index)?;
            let at = usize::try_from(section.name).ok();
            let name = at.and_then(|at| names.get(at..)).unwrap_or_default();
            let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
            if name == wanted.as_bytes() {
                return contents(file, &section).map(Some);
            }
        }
        Ok(None)
    }

    fn header(&self, file: &dyn ReadAt, index: u16) -> Result<Section, Failure> {
        let mut bytes = [0; 64];
        let bytes = &mut bytes[..self.section_len()];
        let at = u64::from(index) * u64::from(self.entry_len);
        let read = file.read_exact_at(self.sections + at, bytes);
        read.map_err(|error| Failure::io("reading the section headers", &error))?;
        let number = |at, len| number(bytes, at, len, self.is_big).unwrap_or(0);
        let (offset, len) = if self.is_64 {
            (number(0x18, 8), number(0x20, 8))
        } else {
            (number(0x10, 4), number(0x14, 4))
        };
        Ok(Section {
            name: number(0, 4),
            offset,
            len,
        })
    }
}

fn contents(file: &dyn ReadAt, section: &Section) -> Result<Vec<u8>, Failure> {
    let end = section.offset.checked_add(section.len);
    if section.len > MAX_SECTION || end.is_none_or(|end| end > file.len()) {
        return Err(Failure::new("a section of the ELF file lies outside it"));
    }
    let mut bytes = vec![0; forerun_io::usize_from(section.len)];
    let read = file.read_exact_at(section.offset, &mut bytes);
    read.map_err(|error| Failure::io("reading a section", &error))?;
    Ok(bytes)
}

/// Returns the `len`-byte integer at offset `at`.
fn number(bytes: &[u8], at: usize, len: usize, is_big: bool) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
    Some(if is_big {
        bytes.iter().fold(0, add)
    } else {
        bytes.iter().rev().fold(0, add)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use forerun_io::{FileSource, MemorySource};

    use super::*;

    #[test]
    fn the_end_of_this_program() {
        let path = std::env::current_exe().unwrap();
        let file = FileSource::open(&path).unwrap();
        let elf = Elf::read(&file).unwrap();
        assert_eq!(elf.end(), file.len());
        let text = elf.section(&file, ".comment").unwrap().unwrap();
        assert!(String::from_utf8_lossy(&text).contains("rustc"));
        assert!(elf.section(&file, ".none").unwrap().is_none());
    }

    #[test]
    fn any_change_of_the_header_is_an_error_or_a_place_in_the_file() {
        let path = std::env::current_exe().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for at in 0..HEADER {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let file = MemorySource::new(bytes);
                if let Ok(elf) = Elf::read(&file) {
                    assert!(elf.end() <= file.len());
                    let _any = elf.section(&file, ".comment");
                }
            }
        }
    }

    #[test]
    fn files_that_are_none() {
        for (bytes, expected) in [
            (&b""[..], "not an ELF program"),
            (b"#!/bin/sh\n", "not an ELF program"),
            (b"\x7fELF\x02\x01\x01", "not an ELF program"),
        ] {
            let error = Elf::read(&MemorySource::new(bytes.to_vec())).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let cut = MemorySource::new(whole[..4096].to_vec());
        let error = Elf::read(&cut).unwrap_err().to_string();
        assert!(error.contains("cut off"), "{error}");
    }
}
