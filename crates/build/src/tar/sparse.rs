//! GNU's sparse files in PAX archives, versions 0.0, 0.1 and 1.0. (The tar crate reads the older
//! form, entry type `S`.)

use std::io::{self, Read};

/// Parts of a file that the archive holds, as offset and length.
pub type Parts = Vec<(u64, u64)>;

/// The stored form of a sparse file.
pub struct SparseBody {
    /// Bytes before the first part.
    pub start: u64,
    /// The parts, which lie one after the other.
    pub parts: Parts,
}

/// Most parts of one file; more than any filesystem makes.
const PARTS_MAX: u64 = 1 << 20;

/// The `GNU.sparse.*` keys of one entry.
#[derive(Default)]
pub struct Keys {
    pub name: Option<Vec<u8>>,
    size: Option<u64>,
    version_1: bool,
    parts: Parts,
    sparse: bool,
}

impl Keys {
    /// Takes one key, without its prefix.
    pub fn take(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.sparse = true;
        match key {
            b"major" => self.version_1 = number(value)? == 1,
            b"name" => self.name = Some(value.to_vec()),
            b"realsize" | b"size" => self.size = Some(number(value)?),
            b"offset" => self.push(number(value)?, 0)?,
            b"numbytes" => {
                let len = number(value)?;
                self.parts.last_mut().ok_or_else(bad)?.1 = len;
            }
            b"map" => {
                let numbers: Vec<u64> = value
                    .split(|&byte| byte == b',')
                    .map(number)
                    .collect::<io::Result<_>>()?;
                for pair in numbers.chunks(2) {
                    let &[offset, len] = pair else {
                        return Err(bad());
                    };
                    self.push(offset, len)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the length of the file and the parts that its body holds; no parts for a plain file.
    /// In version 1.0 the body starts with the list of parts, which is read here.
    pub fn resolve(
        mut self,
        stored: u64,
        body: &mut dyn Read,
    ) -> io::Result<(u64, Option<SparseBody>)> {
        if !self.sparse {
            return Ok((stored, None));
        }
        let mut start = 0;
        let size = self.size.ok_or_else(bad)?;
        if self.version_1 {
            let mut map = Map { body, read: 0 };
            let count = map.number()?;
            for _ in 0..count {
                let (offset, len) = (map.number()?, map.number()?);
                self.push(offset, len)?;
            }
            map.skip_padding()?;
            start = map.read;
        }
        let mut end = 0;
        for &(offset, len) in &self.parts {
            // Parts are written in order and do not touch.
            if offset < end {
                return Err(bad());
            }
            end = offset.checked_add(len).ok_or_else(bad)?;
        }
        let held = self.parts.iter().map(|(_, len)| len).sum::<u64>();
        if end > size || start.checked_add(held).is_none_or(|end| end > stored) {
            Err(bad())
        } else {
            Ok((
                size,
                Some(SparseBody {
                    start,
                    parts: self.parts,
                }),
            ))
        }
    }

    fn push(&mut self, offset: u64, len: u64) -> io::Result<()> {
        if forerun_io::u64_from(self.parts.len()) >= PARTS_MAX {
            return Err(bad());
        }
        self.parts.push((offset, len));
        Ok(())
    }
}

/// The list at the start of a version 1.0 body: decimal numbers, a line each, padded to 512 bytes.
struct Map<'b> {
    body: &'b mut dyn Read,
    read: u64,
}

impl Map<'_> {
    fn number(&mut self) -> io::Result<u64> {
        let mut digits = Vec::new();
        loop {
            let mut byte = [0];
            self.body.read_exact(&mut byte)?;
            self.read += 1;
            if byte == *b"\n" {
                return number(&digits);
            }
            if digits.len() >= 20 {
                return Err(bad());
            }
            digits.extend(byte);
        }
    }

    fn skip_padding(&mut self) -> io::Result<()> {
        let padding = self.read.next_multiple_of(512) - self.read;
        self.read += padding;
        io::copy(&mut self.body.take(padding), &mut io::sink()).map(|_| ())
    }
}

/// Parses a decimal number of a header.
pub fn number(value: &[u8]) -> io::Result<u64> {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or_else(bad)
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "damaged PAX header")
}
