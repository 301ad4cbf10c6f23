//! The end of an archive: the records that locate the central directory (4.3.14 to 4.3.16).

use std::ops::Range;

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, Result};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::ondisk::{
    CENTRAL, END, END64, End64Record, EndRecord, IN_ZIP64, IN_ZIP64_SHORT, LOCATOR, Locator,
};

const END_LEN: usize = size_of::<EndRecord>();
const END64_LEN: usize = size_of::<End64Record>();
const LOCATOR_LEN: usize = size_of::<Locator>();
/// Length of the end of a file in which the records are searched for: the longest comment, and the
/// records before it.
pub const TAIL: usize = END_LEN + 0xffff + LOCATOR_LEN;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub directory: Range<u64>,
    /// Number of entries that the directory should have.
    pub entries: u64,
    /// Number of bytes in the file before the archive. Offsets in the archive count from its start.
    pub prefix: u64,
    /// The comment, in an unknown encoding.
    pub comment: Vec<u8>,
    /// End of the archive in the file.
    pub len: u64,
    pub is_zip64: bool,
}

/// Returns the offset of the end record in the last bytes of a file: the last record whose comment
/// ends with the file, otherwise the last record.
pub fn find(tail: &[u8]) -> Option<usize> {
    let mut last = None;
    let latest = tail.len().checked_sub(END_LEN)?;
    for at in (0..=latest).rev() {
        let bytes = &tail[at..];
        if !bytes.starts_with(&END) {
            continue;
        }
        let Ok((record, rest)) = EndRecord::read_from_prefix(bytes) else {
            continue;
        };
        let comment = usize::from(record.comment_len.get());
        if comment == rest.len() {
            return Some(at);
        }
        if comment < rest.len() {
            last = last.or(Some(at));
        }
    }
    last
}

impl End {
    /// Reads the end of the archive in `source`.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` for an archive of several disks, `Io`.
    pub fn read(source: &dyn ReadAt) -> Result<Self> {
        let len = source.len();
        let start = len.saturating_sub(u64_from(TAIL));
        let tail = read(source, start..len)?;
        let Some(found) = find(&tail) else {
            let searched = u64_from(tail.len());
            return Err(Check::NoEnd { searched }.at(start));
        };
        let at = start + u64_from(found);
        let Ok((record, rest)) = EndRecord::read_from_prefix(&tail[found..]) else {
            return Err(Check::NoEnd { searched: 0 }.at(at));
        };
        let comment = rest.get(..usize::from(record.comment_len.get()));
        let comment = comment.unwrap_or_default().to_vec();
        let places = match locator(&tail[..found]).filter(|_| is_full(&record)) {
            Some(locator) => Places::of_zip64(source, &locator, at)?,
            None => Places::of_record(&record, at)?,
        };
        let (directory, prefix) = places.directory(source)?;
        Ok(Self {
            directory,
            entries: places.entries,
            prefix,
            len: at + u64_from(END_LEN + comment.len()),
            comment,
            is_zip64: places.is_zip64,
        })
    }
}

/// Returns whether a field of the record says that its value is in the zip64 record.
const fn is_full(record: &EndRecord) -> bool {
    record.entries.get() == IN_ZIP64_SHORT
        || record.entries_here.get() == IN_ZIP64_SHORT
        || record.disk.get() == IN_ZIP64_SHORT
        || record.directory_disk.get() == IN_ZIP64_SHORT
        || record.directory_len.get() == IN_ZIP64
        || record.directory_offset.get() == IN_ZIP64
}

/// Returns the locator that ends with `before`.
fn locator(before: &[u8]) -> Option<Locator> {
    let at = before.len().checked_sub(LOCATOR_LEN)?;
    let (locator, _) = Locator::read_from_prefix(before.get(at..)?).ok()?;
    (locator.signature == LOCATOR).then_some(locator)
}

/// What either end record says about the directory.
struct Places {
    offset: u64,
    len: u64,
    entries: u64,
    /// Offset of the record, at which the directory ends.
    record: u64,
    is_zip64: bool,
}

impl Places {
    fn of_record(record: &EndRecord, at: u64) -> Result<Self> {
        refuse_disks(record.disk.get().into(), record.directory_disk.get().into())?;
        Ok(Self {
            offset: record.directory_offset.get().into(),
            len: record.directory_len.get().into(),
            entries: record.entries.get().into(),
            record: at,
            is_zip64: false,
        })
    }

    /// Reads the zip64 record that the locator before an end record at `end` names. If other bytes
    /// before the archive have shifted the record, it is expected directly before its locator.
    fn of_zip64(source: &dyn ReadAt, locator: &Locator, end: u64) -> Result<Self> {
        let at = end - u64_from(LOCATOR_LEN);
        let Some(adjacent) = at.checked_sub(u64_from(END64_LEN)) else {
            return Err(Check::NoEnd64.at(at));
        };
        for place in [locator.offset.get(), adjacent] {
            if place > adjacent {
                continue;
            }
            let bytes = read(source, place..place + u64_from(END64_LEN))?;
            let Ok((record, _)) = End64Record::read_from_prefix(&bytes) else {
                continue;
            };
            if record.signature == END64 {
                refuse_disks(record.disk.get(), record.directory_disk.get())?;
                return Ok(Self {
                    offset: record.directory_offset.get(),
                    len: record.directory_len.get(),
                    entries: record.entries.get(),
                    record: place,
                    is_zip64: true,
                });
            }
        }
        Err(Check::NoEnd64.at(at))
    }

    /// Returns the range of the directory, and the number of bytes before the archive. These are
    /// known if the directory ends at the record. If it is not found there, other records lie in
    /// between, and its offset is used unchanged.
    fn directory(&self, source: &dyn ReadAt) -> Result<(Range<u64>, u64)> {
        let Self {
            offset,
            len,
            record: end,
            ..
        } = *self;
        let declared = offset.checked_add(len);
        let Some(prefix) = declared.and_then(|declared| end.checked_sub(declared)) else {
            return Err(Check::Directory { offset, len, end }.at(end));
        };
        for prefix in [prefix, 0] {
            let start = offset + prefix;
            let is_there = len == 0 || read(source, start..(start + 4).min(end))? == CENTRAL;
            if is_there {
                return Ok((start..start + len, prefix));
            }
        }
        let start = offset + prefix;
        Ok((start..start + len, prefix))
    }
}

fn refuse_disks(disk: u32, directory: u32) -> Result<()> {
    match (disk, directory) {
        (0, 0) => Ok(()),
        _ => Err(Error::Unsupported(format!(
            "a zip archive of several disks (the end is on disk {disk}, the directory on disk {directory})"
        ))),
    }
}

/// Reads a short range that lies in the source.
pub fn read(source: &dyn ReadAt, range: Range<u64>) -> Result<Vec<u8>> {
    let len = usize_from(range.end - range.start);
    let mut bytes = vec![0; len];
    let read = source.read_exact_at(range.start, &mut bytes);
    read.map_err(|error| Error::io(range.start, len, error))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(comment_len: u16) -> Vec<u8> {
        let mut record = END.to_vec();
        record.extend([0; 16]);
        record.extend(comment_len.to_le_bytes());
        record
    }

    #[test]
    fn the_record_whose_comment_ends_the_file_is_found_first() {
        let cases = [
            (record(0), Some(0)),
            ([&b"stub"[..], &record(0)].concat(), Some(4)),
            ([&record(3)[..], b"abc"].concat(), Some(0)),
            // A comment that contains a record, which would end after or before the end of the
            // file.
            ([&record(22)[..], &record(9)].concat(), Some(0)),
            ([&record(25)[..], &record(0), b"abc"].concat(), Some(0)),
            // Bytes after the archive.
            ([&record(0)[..], b"abc"].concat(), Some(0)),
            ([&record(0)[..], &record(0), b"abc"].concat(), Some(22)),
            (record(1), None),
            (record(0)[..21].to_vec(), None),
            (Vec::new(), None),
        ];
        for (tail, expected) in cases {
            assert_eq!(find(&tail), expected, "{tail:02x?}");
        }
    }
}
