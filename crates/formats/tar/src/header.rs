//! Parses one header block: its checksum, its numbers, its names.

use crate::error::Check;

/// Length of a header, and the unit of the archive.
pub const BLOCK: usize = 512;

/// The family of formats that a header belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// No magic number: names of 100 bytes and nothing after byte 257.
    V7,
    /// `ustar` and a NUL: POSIX, with a prefix of the name.
    Ustar,
    /// `ustar` and spaces: GNU, with a sparse map at the offset of the prefix.
    Gnu,
}

/// A header block with a valid checksum.
#[derive(Clone, Copy, Debug)]
pub struct Header<'a> {
    block: &'a [u8],
    pub family: Family,
}

/// Returns whether bytes begin with a header: by its magic number, or without one by its checksum
/// and contents.
pub fn is_header(bytes: &[u8]) -> bool {
    let block = bytes.get(..BLOCK).unwrap_or(bytes);
    match family(block) {
        Family::Ustar | Family::Gnu => true,
        Family::V7 => is_plausible_v7(block),
    }
}

fn family(block: &[u8]) -> Family {
    match (range(block, 257, 5), range(block, 262, 1)) {
        (b"ustar", b"\0") => Family::Ustar,
        (b"ustar", b" ") => Family::Gnu,
        _ => Family::V7,
    }
}

fn is_plausible_v7(block: &[u8]) -> bool {
    let named = block.first().is_some_and(|&first| first > b' ');
    let known = matches!(block.get(156), Some(0 | b'0' | b'1' | b'2' | b'5' | b'V'));
    let rest = range(block, 257, BLOCK - 257);
    let empty = rest.len() == BLOCK - 257 && rest.iter().all(|&byte| byte == 0);
    named && known && empty && Header::parse(block).is_ok_and(|header| header.has_numbers())
}

fn range(block: &[u8], at: usize, len: usize) -> &[u8] {
    block.get(at..at + len).unwrap_or_default()
}

pub fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

impl<'a> Header<'a> {
    /// Parses a block and verifies its checksum, which old programs computed over signed bytes.
    pub fn parse(block: &'a [u8]) -> Result<Self, Check> {
        let stored = number("chksum", range(block, 148, 8))?;
        let (mut unsigned, mut signed) = (0u64, 0i64);
        for (at, &byte) in block.iter().enumerate() {
            let byte = if (148..156).contains(&at) { b' ' } else { byte };
            unsigned += u64::from(byte);
            signed += i64::from(i8::from_ne_bytes([byte]));
        }
        if u64::try_from(stored) != Ok(unsigned) && stored != signed {
            let found = unsigned;
            return Err(Check::Checksum { stored, found });
        }
        Ok(Self {
            block,
            family: family(block),
        })
    }

    fn has_numbers(&self) -> bool {
        let fields = [(100, 8), (108, 8), (116, 8), (124, 12), (136, 12)];
        let mut fields = fields.iter();
        fields.all(|&(at, len)| number("", range(self.block, at, len)).is_ok())
    }

    pub fn kind(&self) -> u8 {
        self.block.get(156).copied().unwrap_or_default()
    }

    /// Returns the name, with its prefix if the format has one.
    pub fn path(&self) -> Vec<u8> {
        let name = until_nul(range(self.block, 0, 100));
        let prefix = match self.family {
            Family::Ustar => until_nul(range(self.block, 345, 155)),
            Family::Gnu | Family::V7 => &[],
        };
        match prefix {
            [] => name.to_vec(),
            prefix => [prefix, b"/", name].concat(),
        }
    }

    pub fn link(&self) -> &'a [u8] {
        until_nul(range(self.block, 157, 100))
    }

    pub fn mode(&self) -> Result<u16, Check> {
        let mode = number("mode", range(self.block, 100, 8))?;
        u16::try_from(mode & 0o7777).map_err(|_| out_of_range("mode", mode))
    }

    pub fn uid(&self) -> Result<u32, Check> {
        self.word("uid", 108)
    }

    pub fn gid(&self) -> Result<u32, Check> {
        self.word("gid", 116)
    }

    pub fn device(&self) -> Result<(u32, u32), Check> {
        match self.family {
            Family::V7 => Ok((0, 0)),
            Family::Ustar | Family::Gnu => {
                Ok((self.word("devmajor", 329)?, self.word("devminor", 337)?))
            }
        }
    }

    pub fn size(&self) -> Result<u64, Check> {
        length("size", range(self.block, 124, 12))
    }

    pub fn mtime(&self) -> Result<i64, Check> {
        number("mtime", range(self.block, 136, 12))
    }

    /// Returns the length of an old GNU sparse file including its holes.
    pub fn real_size(&self) -> Result<u64, Check> {
        length("realsize", range(self.block, 483, 12))
    }

    /// Returns the sparse map in an old GNU header, and whether an extension block follows.
    pub fn sparse(&self) -> Result<(Vec<(u64, u64)>, bool), Check> {
        sparse_entries(self.block, 386, 4)
    }

    fn word(&self, field: &'static str, at: usize) -> Result<u32, Check> {
        let value = number(field, range(self.block, at, 8))?;
        u32::try_from(value).map_err(|_| out_of_range(field, value))
    }
}

/// Returns the sparse map in an extension block of an old GNU header, and whether another one
/// follows.
pub fn sparse_extension(block: &[u8]) -> Result<(Vec<(u64, u64)>, bool), Check> {
    sparse_entries(block, 0, 21)
}

fn sparse_entries(block: &[u8], at: usize, count: usize) -> Result<(Vec<(u64, u64)>, bool), Check> {
    let mut entries = Vec::new();
    for entry in range(block, at, count * 24).chunks_exact(24) {
        // An unused entry ends the map of the block.
        if entry.first() == Some(&0) {
            break;
        }
        let (offset, len) = entry.split_at(12);
        entries.push((length("offset", offset)?, length("numbytes", len)?));
    }
    let more = block.get(at + count * 24).is_some_and(|&flag| flag != 0);
    Ok((entries, more))
}

fn length(field: &'static str, bytes: &[u8]) -> Result<u64, Check> {
    let value = number(field, bytes)?;
    u64::try_from(value).map_err(|_| out_of_range(field, value))
}

const fn out_of_range(field: &'static str, value: i64) -> Check {
    Check::Range { field, value }
}

/// Parses a field in octal digits, or in base 256 if its first bit is set.
fn number(field: &'static str, bytes: &[u8]) -> Result<i64, Check> {
    let fail = || Check::Number {
        field,
        bytes: bytes.to_vec(),
    };
    match bytes.first() {
        Some(&first) if first & 0x80 != 0 => base_256(bytes).ok_or_else(fail),
        _ => octal(bytes).ok_or_else(fail),
    }
}

fn octal(bytes: &[u8]) -> Option<i64> {
    let blank = |byte: &u8| matches!(*byte, b' ' | 0);
    let start = bytes.iter().position(|byte| !blank(byte));
    let digits = bytes.get(start.unwrap_or(bytes.len())..)?;
    let end = digits.iter().position(blank).unwrap_or(digits.len());
    let mut value = 0i64;
    for &digit in digits.get(..end)? {
        let digit = char::from(digit).to_digit(8)?;
        value = value.checked_mul(8)?.checked_add(i64::from(digit))?;
    }
    Some(value)
}

/// Parses a big-endian number in two's complement. Its first bit only marks the field as base 256.
fn base_256(bytes: &[u8]) -> Option<i64> {
    let (&first, rest) = bytes.split_first()?;
    let negative = first & 0x40 != 0;
    let first = if negative { first } else { first & 0x7f };
    let mut value = i128::from(i8::from_ne_bytes([first]));
    for &byte in rest {
        value = value.checked_mul(256)?.checked_add(i128::from(byte))?;
    }
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        let check = |bytes: &[u8], expected| assert_eq!(number("n", bytes).ok(), expected);
        check(b"0000644\0", Some(0o644));
        check(b"   644 \0", Some(0o644));
        check(b"\0\0\0\0", Some(0));
        check(b"7777777777777777777777", None);
        check(b"0009\0", None);
        check(b"\x80\0\0\0\0\0\x01\0", Some(256));
        check(b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2));
        check(
            &[
                0x80, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
            ],
            None,
        );
    }
}
