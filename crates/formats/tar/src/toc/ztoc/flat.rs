//! Parses FlatBuffers: tables of optional fields that refer to each other by offsets.
//!
//! Each access is checked against the buffer, so no separate verification is needed. The crate
//! `flatbuffers` has a verifier, but needs generated code with `unsafe`, and refuses names that are
//! not UTF-8, which archives may have. A table of contents needs only five kinds of fields.

use forerun_io::usize_from;

/// The offset of an invalid value in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFlat(pub usize);

// Offsets and counts have 32 bits, and each is checked against the buffer before the next is added,
// so no sum overflows.

type Result<T> = std::result::Result<T, BadFlat>;

/// A table. Its fields are numbered.
#[derive(Clone, Copy, Debug)]
pub struct FlatTable<'b> {
    buffer: &'b [u8],
    at: usize,
    /// Bytes of the table, and the offsets of its fields in it.
    len: usize,
    fields: &'b [u8],
}

#[derive(Clone, Copy, Debug)]
pub struct FlatList<'b> {
    buffer: &'b [u8],
    at: usize,
    entries: &'b [[u8; 4]],
}

impl<'b> FlatTable<'b> {
    /// Returns the root table of the buffer.
    pub fn root(buffer: &'b [u8]) -> Result<Self> {
        Self::new(buffer, follow(buffer, 0)?)
    }

    fn new(buffer: &'b [u8], at: usize) -> Result<Self> {
        let back = i32::from_le_bytes(bytes_at(buffer, at)?);
        let fields_at = i64::try_from(at).ok();
        let fields_at = fields_at.and_then(|at| usize::try_from(at.checked_sub(back.into())?).ok());
        let fields_at = fields_at.ok_or(BadFlat(at))?;
        let fields_len = usize::from(u16::from_le_bytes(bytes_at(buffer, fields_at)?));
        let len = usize::from(u16::from_le_bytes(bytes_at(buffer, fields_at + 2)?));
        let fields = part(buffer, fields_at, fields_len)?;
        part(buffer, at, len)?;
        Ok(Self {
            buffer,
            at,
            len,
            // The field offsets follow the two lengths.
            fields: fields.get(4..).ok_or(BadFlat(fields_at))?,
        })
    }

    /// Returns the offset of a field of `len` bytes, or `None` if the table lacks the field.
    fn field(&self, number: usize, len: usize) -> Result<Option<usize>> {
        let start = number * 2;
        let Some(&[low, high]) = self.fields.get(start..start + 2) else {
            return Ok(None);
        };
        match usize::from(u16::from_le_bytes([low, high])) {
            0 => Ok(None),
            offset if offset >= 4 && offset + len <= self.len => Ok(Some(self.at + offset)),
            _ => Err(BadFlat(self.at)),
        }
    }

    fn number<const N: usize>(&self, number: usize) -> Result<Option<[u8; N]>> {
        let at = self.field(number, N)?;
        at.map(|at| bytes_at(self.buffer, at)).transpose()
    }

    pub fn u8(&self, number: usize, default: u8) -> Result<u8> {
        let bytes = self.number(number)?;
        Ok(bytes.map_or(default, u8::from_le_bytes))
    }

    /// Returns a field of four bytes; 0 if it is missing.
    pub fn u32(&self, number: usize) -> Result<u32> {
        Ok(self.number(number)?.map_or(0, u32::from_le_bytes))
    }

    /// Returns a field of eight bytes; 0 if it is missing.
    pub fn i64(&self, number: usize) -> Result<i64> {
        Ok(self.number(number)?.map_or(0, i64::from_le_bytes))
    }

    /// Returns a string or a list of bytes; empty if the field is missing.
    pub fn bytes(&self, number: usize) -> Result<&'b [u8]> {
        match self.field(number, 4)? {
            Some(at) => counted(self.buffer, follow(self.buffer, at)?),
            None => Ok(&[]),
        }
    }

    pub fn table(&self, number: usize) -> Result<Option<Self>> {
        let Some(at) = self.field(number, 4)? else {
            return Ok(None);
        };
        Self::new(self.buffer, follow(self.buffer, at)?).map(Some)
    }

    /// Returns a list of tables or strings; empty if the field is missing.
    pub fn list(&self, number: usize) -> Result<FlatList<'b>> {
        let mut list = FlatList {
            buffer: self.buffer,
            at: 0,
            entries: &[],
        };
        if let Some(at) = self.field(number, 4)? {
            let at = follow(self.buffer, at)?;
            let count = count_at(self.buffer, at)?;
            list.at = at + 4;
            let bytes = part(self.buffer, list.at, count * 4)?;
            (list.entries, _) = bytes.as_chunks();
        }
        Ok(list)
    }
}

impl<'b> FlatList<'b> {
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the offsets of the entries.
    fn places(self) -> impl Iterator<Item = Result<usize>> {
        let starts = (self.at..).step_by(4).zip(self.entries);
        starts.map(|(at, entry)| Ok(at + word(*entry)))
    }

    pub fn tables(self) -> impl Iterator<Item = Result<FlatTable<'b>>> {
        let buffer = self.buffer;
        self.places().map(move |at| FlatTable::new(buffer, at?))
    }

    pub fn texts(self) -> impl Iterator<Item = Result<&'b [u8]>> {
        let buffer = self.buffer;
        self.places().map(move |at| counted(buffer, at?))
    }
}

fn word(bytes: [u8; 4]) -> usize {
    usize_from(u64::from(u32::from_le_bytes(bytes)))
}

fn part(buffer: &[u8], at: usize, len: usize) -> Result<&[u8]> {
    buffer.get(at..at + len).ok_or(BadFlat(at))
}

fn bytes_at<const N: usize>(buffer: &[u8], at: usize) -> Result<[u8; N]> {
    let bytes = part(buffer, at, N)?.first_chunk();
    bytes.copied().ok_or(BadFlat(at))
}

/// Returns the target of the relative offset at `at`.
fn follow(buffer: &[u8], at: usize) -> Result<usize> {
    Ok(at + word(bytes_at(buffer, at)?))
}

fn count_at(buffer: &[u8], at: usize) -> Result<usize> {
    Ok(word(bytes_at(buffer, at)?))
}

/// Returns the bytes after the count at `at`, as many as it says.
fn counted(buffer: &[u8], at: usize) -> Result<&[u8]> {
    part(buffer, at + 4, count_at(buffer, at)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a table with a number, a string, a list of one table (itself, by a backward offset)
    /// and no fourth field.
    fn buffer() -> Vec<u8> {
        let mut bytes = 16_u32.to_le_bytes().to_vec();
        // At 4: 12 bytes of field offsets, 16 bytes of table, then the field offsets.
        for word in [12_u16, 16, 4, 8, 12, 0] {
            bytes.extend(word.to_le_bytes());
        }
        // At 16: the field offsets start 12 bytes before. Then 7, and offsets to 32 and 40.
        for word in [12_u32, 7, 32 - 24, 40 - 28] {
            bytes.extend(word.to_le_bytes());
        }
        // At 32: a string of three bytes. At 40: a list of one string.
        bytes.extend([3, 0, 0, 0, b'a', 0xff, b'c', 0]);
        bytes.extend([1, 0, 0, 0, 4, 0, 0, 0]);
        // At 48: that string.
        bytes.extend([1, 0, 0, 0, b'x']);
        bytes
    }

    type Fields = (u32, Vec<u8>, Vec<Vec<u8>>, i64, u8);

    fn read(buffer: &[u8]) -> Result<Fields> {
        let table = FlatTable::root(buffer)?;
        let texts = table.list(2)?.texts();
        let texts = texts
            .map(|text| Ok(text?.to_vec()))
            .collect::<Result<_>>()?;
        let text = table.bytes(1)?.to_vec();
        Ok((table.u32(0)?, text, texts, table.i64(3)?, table.u8(9, 5)?))
    }

    #[test]
    fn fields_are_read_and_absent_ones_have_defaults() {
        let expected = (7, b"a\xffc".to_vec(), vec![b"x".to_vec()], 0, 5);
        assert_eq!(read(&buffer()), Ok(expected));
        assert!(
            FlatTable::root(&buffer())
                .unwrap()
                .table(3)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn what_lies_outside_is_refused() {
        let good = buffer();
        for len in 0..good.len() {
            assert!(read(&good[..len]).is_err(), "cut to {len} bytes");
        }
        for at in 0..good.len() {
            for byte in [0, 1, 3, 0x7f, 0x80, 0xff] {
                let mut bytes = good.clone();
                bytes[at] = byte;
                // Reads must not panic or leave the buffer.
                let _read = read(&bytes);
                let table = FlatTable::root(&bytes);
                let _tables = table.and_then(|table| {
                    let tables = table.list(2)?.tables();
                    tables
                        .map(|table| table?.u32(0))
                        .collect::<Result<Vec<_>>>()
                });
            }
        }
        let far = [&u32::MAX.to_le_bytes()[..], &[0; 40]].concat();
        assert_eq!(read(&far), Err(BadFlat(usize::try_from(u32::MAX).unwrap())));
        let mut huge = buffer();
        huge[40..44].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(read(&huge), Err(BadFlat(44)));
    }
}
