//! Directory listings, and the indexes of long ones.

use forerun_build::BuildError;
use forerun_io::{u64_from, usize_from};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{I16, U16, U32};

use super::cannot;
use super::metadata::{MetadataWriter, Place};
use crate::ondisk::{DIR_RUN, DirEntry, DirHeader, DirIndex, METADATA_BLOCK};

pub struct Entry<'n> {
    pub name: &'n [u8],
    pub inode: Place,
    pub number: u32,
    pub kind: u16,
}

#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub place: Place,
    /// Length without the three that the format adds.
    pub len: u32,
    /// [`DirIndex`]es with their names, as they follow the inode.
    pub indexes: Vec<u8>,
    pub index_count: u16,
}

/// Writes the listing of a directory. `entries` must be sorted by name.
pub fn write_listing<'n>(
    table: &mut MetadataWriter,
    entries: impl Iterator<Item = Result<Entry<'n>, BuildError>>,
) -> Result<Listing, BuildError> {
    let place = table.place()?;
    let mut writer = Writer {
        table,
        base: u64::from(place.offset),
        len: 0,
        run: Run::default(),
        indexed: 0,
        indexes: Vec::new(),
        index_count: 0,
    };
    for entry in entries {
        let entry = entry?;
        if !writer.continues(&entry) {
            writer.end_run()?;
        }
        writer.run.push(&entry)?;
    }
    writer.end_run()?;
    let too_long = || cannot("a directory listing of 4 GiB".to_string());
    let len = u32::try_from(writer.len).map_err(|_| too_long())?;
    if len > u32::MAX - 3 {
        return Err(too_long());
    }
    let long = usize_from(writer.len) > METADATA_BLOCK;
    Ok(Listing {
        place,
        len,
        index_count: if long { writer.index_count } else { 0 },
        indexes: if long { writer.indexes } else { Vec::new() },
    })
}

struct Writer<'t> {
    table: &'t mut MetadataWriter,
    /// Offset of the listing in its first metadata block.
    base: u64,
    /// Bytes of the completed runs.
    len: u64,
    run: Run,
    /// Number of the metadata block of the last index, counted from the listing's first one; 0
    /// before the first index.
    indexed: u64,
    indexes: Vec<u8>,
    index_count: u16,
}

/// The entries after one header.
#[derive(Default)]
struct Run {
    block: u32,
    number: u32,
    count: u32,
    first_name: Vec<u8>,
    bytes: Vec<u8>,
}

impl Run {
    fn delta(&self, entry: &Entry<'_>) -> Option<i16> {
        i16::try_from(i64::from(entry.number) - i64::from(self.number)).ok()
    }

    fn push(&mut self, entry: &Entry<'_>) -> Result<(), BuildError> {
        if self.count == 0 {
            self.block = entry.inode.block;
            self.number = entry.number;
            self.first_name = entry.name.to_vec();
        }
        let size = entry.name.len().checked_sub(1);
        let size = size.and_then(|size| u16::try_from(size).ok());
        let (Some(size), Some(delta)) = (size, self.delta(entry)) else {
            return Err(cannot(format!("a name of {} bytes", entry.name.len())));
        };
        let raw = DirEntry {
            offset: entry.inode.offset.into(),
            inode_number: I16::new(delta),
            kind: entry.kind.into(),
            size: U16::new(size),
        };
        self.bytes.extend_from_slice(raw.as_bytes());
        self.bytes.extend_from_slice(entry.name);
        self.count += 1;
        Ok(())
    }
}

impl Writer<'_> {
    /// Returns whether an entry may join the current run. A run also ends with its metadata block,
    /// so that a header for an index comes as early as possible.
    fn continues(&self, entry: &Entry<'_>) -> bool {
        let run = &self.run;
        let at = self.len + u64_from(size_of::<DirHeader>() + run.bytes.len());
        run.count > 0
            && run.count < DIR_RUN
            && run.block == entry.inode.block
            && run.delta(entry).is_some()
            && self.block_of(at) == self.block_of(self.len)
    }

    /// Returns the number of the metadata block at a listing offset, counted from the listing's
    /// first one.
    fn block_of(&self, at: u64) -> u64 {
        (self.base + at) / u64_from(METADATA_BLOCK)
    }

    fn end_run(&mut self) -> Result<(), BuildError> {
        let run = std::mem::take(&mut self.run);
        if run.count == 0 {
            return Ok(());
        }
        if self.block_of(self.len) > self.indexed {
            self.indexed = self.block_of(self.len);
            self.push_index(&run)?;
        }
        let header = DirHeader {
            count: U32::new(run.count - 1),
            start_block: U32::new(run.block),
            inode_number: U32::new(run.number),
        };
        self.table.write(header.as_bytes());
        self.table.write(&run.bytes);
        self.len += u64_from(size_of::<DirHeader>() + run.bytes.len());
        Ok(())
    }

    fn push_index(&mut self, run: &Run) -> Result<(), BuildError> {
        let counts = (
            u32::try_from(self.len),
            u32::try_from(run.first_name.len() - 1),
            self.index_count.checked_add(1),
        );
        let (Ok(index), Ok(size), Some(count)) = counts else {
            return Err(cannot("a directory listing of 512 MiB".to_string()));
        };
        let raw = DirIndex {
            index: index.into(),
            start_block: self.table.place()?.block.into(),
            size: size.into(),
        };
        self.indexes.extend_from_slice(raw.as_bytes());
        self.indexes.extend_from_slice(&run.first_name);
        self.index_count = count;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::as_conversions)]
mod tests {
    use forerun_codec::Encoding;

    use super::*;

    /// Writes a listing to uncompressed metadata blocks. Returns its runs as (entries, block,
    /// number).
    fn runs(entries: &[(&str, u32, u32)], before: usize) -> (Vec<(u32, u32, u32)>, Listing) {
        let mut table = MetadataWriter::new(&Encoding::Lz4 { high: false }, false).unwrap();
        table.write(&vec![0; before]);
        let entries = entries.iter().map(|&(name, block, number)| {
            Ok(Entry {
                name: name.as_bytes(),
                inode: Place { block, offset: 0 },
                number,
                kind: 2,
            })
        });
        let listing = write_listing(&mut table, entries).unwrap();
        table.finish();
        let encoded = table.take();
        let blocks = encoded.chunks(METADATA_BLOCK + 2);
        let bytes: Vec<u8> = blocks.flat_map(|block| block[2..].to_vec()).collect();
        let mut rest = &bytes[before..];
        let mut runs = Vec::new();
        while !rest.is_empty() {
            let word = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap());
            runs.push((word(0) + 1, word(4), word(8)));
            let mut at = 12;
            for _ in 0..=word(0) {
                at += 8 + usize::from(u16::from_le_bytes([rest[at + 6], rest[at + 7]])) + 1;
            }
            rest = &rest[at..];
        }
        (runs, listing)
    }

    #[test]
    fn a_run_ends_where_its_header_cannot_hold_the_next_entry() {
        let far = 5 + 32767;
        let (runs, listing) = runs(
            &[
                ("a", 0, 5),
                ("b", 0, far),
                ("c", 0, far + 1),
                ("d", 0, 1),
                ("e", 100, 2),
            ],
            0,
        );
        assert_eq!(runs, [(2, 0, 5), (1, 0, far + 1), (1, 0, 1), (1, 100, 2)]);
        assert_eq!((listing.len, listing.index_count), (4 * 12 + 5 * 9, 0));
    }

    #[test]
    fn a_run_has_256_entries_at_the_most() {
        let entries: Vec<(&str, u32, u32)> = (0..600).map(|n| ("x", 0, n)).collect();
        assert_eq!(
            runs(&entries, 0).0,
            [(256, 0, 0), (256, 0, 256), (88, 0, 512)]
        );
        assert_eq!(runs(&[], 9).0, []);
    }

    #[test]
    fn every_metadata_block_of_a_long_listing_has_an_index() {
        let name = "n".repeat(100);
        let entries: Vec<(&str, u32, u32)> = (0..400).map(|n| (&*name, 0, n)).collect();
        for before in [0, 1, 5000, METADATA_BLOCK - 1, METADATA_BLOCK] {
            let (_, listing) = runs(&entries, before);
            let last = (before % METADATA_BLOCK + listing.len as usize) / METADATA_BLOCK;
            assert_eq!(usize::from(listing.index_count), last, "{before}");
            for (n, index) in listing.indexes.chunks(12 + 100).enumerate() {
                let word = |at: usize| u32::from_le_bytes(index[at..at + 4].try_into().unwrap());
                let first = before / METADATA_BLOCK + n + 1;
                assert_eq!(word(4) as usize, first * (METADATA_BLOCK + 2));
                let at = before + word(0) as usize;
                assert_eq!(at / METADATA_BLOCK, first);
                assert!(at % METADATA_BLOCK < 120, "{before} {at}");
            }
        }
    }
}
