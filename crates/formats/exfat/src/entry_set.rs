//! Entry sets: the file entry, its stream extension, its name, and further entries of the same
//! file.
//!
//! A set is kept as its bytes. Entries and fields that the driver does not know therefore stay
//! unchanged.

use forerun_vfs::{FileType, NameError};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::error::Check;
use crate::name;
use crate::ondisk::{
    ENTRY, FileEntry, GenericEntry, MAX_NAME, NAME_UNITS, NameEntry, StreamEntry, attribute, flag,
    kind,
};
use crate::time::Stamp;
use crate::upcase::Upcase;

pub const MAX_ENTRIES: usize = 256;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocation {
    /// First cluster; 0 if there is none.
    pub first: u32,
    pub len: u64,
    /// `NoFatChain`: the clusters are adjacent, and their FAT words mean nothing.
    pub contiguous: bool,
}

impl Allocation {
    /// Returns the failed check if the allocation is empty but names a cluster.
    pub fn unused(self) -> Option<Check> {
        let cluster = self.first;
        (self.len == 0 && cluster != 0).then_some(Check::UnusedClusters { cluster })
    }
}

/// An entry set. Its checksum matches its bytes, unless it was read with a wrong one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntrySet {
    bytes: Vec<u8>,
    file: FileEntry2,
    stream: StreamEntry2,
}

// The zerocopy structs are compared and cloned as bytes.
type FileEntry2 = Plain<FileEntry>;
type StreamEntry2 = Plain<StreamEntry>;

#[derive(Clone, Debug)]
struct Plain<T>(T);

impl<T: IntoBytes + zerocopy::Immutable> PartialEq for Plain<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_bytes() == other.0.as_bytes()
    }
}

impl<T: IntoBytes + zerocopy::Immutable> Eq for Plain<T> {}

/// Returns the `SetChecksum` of an entry set (6.3.3).
pub fn checksum(entries: &[u8]) -> u16 {
    let bytes = entries.iter().enumerate();
    bytes
        .filter(|(index, _)| !matches!(index, 2 | 3))
        .fold(0_u16, |sum, (_, &byte)| {
            sum.rotate_right(1).wrapping_add(u16::from(byte))
        })
}

pub const fn name_entries(units: usize) -> usize {
    units.div_ceil(NAME_UNITS)
}

impl EntrySet {
    /// Parses the bytes of one entry set, beginning with the file entry. Does not check the name's
    /// hash.
    pub fn parse(bytes: Vec<u8>) -> Result<Self, Check> {
        let set = Self::parse_unproven(bytes)?;
        set.wrong_checksum().map_or(Ok(set), Err)
    }

    /// Parses a set as Linux reads it: whatever its checksum.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn parse_unproven(bytes: Vec<u8>) -> Result<Self, Check> {
        let file = FileEntry::read_from_prefix(&bytes).map(|(file, _)| file);
        let Ok(file) = file else {
            return Err(Check::SetCut { count: 0, found: 0 });
        };
        let count = file.secondary_count;
        let entries = bytes.len() / ENTRY;
        if count < 2 {
            return Err(Check::SetShort { count });
        }
        if entries != usize::from(count) + 1 || !bytes.len().is_multiple_of(ENTRY) {
            let found = entries - 1;
            return Err(Check::SetCut { count, found });
        }
        for (index, entry) in bytes.chunks_exact(ENTRY).enumerate() {
            let found = entry.first().copied().unwrap_or(0);
            let expected = match index {
                0 => found == kind::FILE,
                1 => found == kind::STREAM,
                2 => found == kind::NAME,
                _ => found & (kind::IN_USE | kind::SECONDARY) == kind::IN_USE | kind::SECONDARY,
            };
            if !expected {
                let need = match index {
                    0 => kind::FILE,
                    1 => kind::STREAM,
                    _ => kind::NAME,
                };
                return match index {
                    0..=2 => Err(Check::SetOrder { index, found, need }),
                    _ => Err(Check::SetCut {
                        count,
                        found: index - 1,
                    }),
                };
            }
        }
        let Ok((stream, _)) = StreamEntry::read_from_prefix(&bytes[ENTRY..]) else {
            return Err(Check::SetCut { count, found: 0 });
        };
        let set = Self {
            bytes,
            file: Plain(file),
            stream: Plain(stream),
        };
        set.check_name_entries()?;
        Ok(set)
    }

    /// Returns the check that fails if the checksum is not that of the entries.
    pub fn wrong_checksum(&self) -> Option<Check> {
        let (found, actual) = (self.file.0.set_checksum.get(), checksum(&self.bytes));
        (found != actual).then_some(Check::SetChecksum { found, actual })
    }

    fn check_name_entries(&self) -> Result<(), Check> {
        let len = self.stream.0.name_length;
        let entries = self.bytes.chunks_exact(ENTRY).skip(2);
        let entries = entries
            .take_while(|entry| entry.first() == Some(&kind::NAME))
            .count();
        if len == 0 || entries < name_entries(usize::from(len)) {
            return Err(Check::NameLen { len, entries });
        }
        Ok(())
    }

    /// Returns a new set without data, with the same time in all three time fields.
    pub fn new(name: &[u16], attributes: u16, time: Stamp, upcase: &Upcase) -> Self {
        let mut file = FileEntry::new_zeroed();
        file.entry_type = kind::FILE;
        let mut stream = StreamEntry::new_zeroed();
        stream.entry_type = kind::STREAM;
        stream.general_secondary_flags = flag::ALLOCATION_POSSIBLE;
        let mut set = Self {
            bytes: vec![0; 2 * ENTRY],
            file: Plain(file),
            stream: Plain(stream),
        };
        set.file.0.file_attributes = attributes.into();
        set.set_created(time);
        set.set_modified(time);
        set.set_accessed(time);
        set.renamed(name, upcase)
    }

    /// Returns the set with another name. Other secondary entries are kept.
    #[must_use]
    pub fn renamed(&self, name: &[u16], upcase: &Upcase) -> Self {
        let name = &name[..name.len().min(MAX_NAME)];
        let others = self.bytes.chunks_exact(ENTRY).skip(2);
        let others = others.filter(|entry| entry.first() != Some(&kind::NAME));
        let mut bytes = vec![0; 2 * ENTRY];
        for part in name.chunks(NAME_UNITS) {
            let mut entry = NameEntry::new_zeroed();
            entry.entry_type = kind::NAME;
            for (to, &unit) in entry.file_name.iter_mut().zip(part) {
                to.set(unit);
            }
            bytes.extend_from_slice(entry.as_bytes());
        }
        for other in others {
            bytes.extend_from_slice(other);
        }
        bytes.truncate(MAX_ENTRIES * ENTRY);
        let mut set = Self {
            bytes,
            file: self.file.clone(),
            stream: self.stream.clone(),
        };
        let count = set.entries() - 1;
        set.file.0.secondary_count = u8::try_from(count).unwrap_or(u8::MAX);
        set.stream.0.name_length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        set.stream.0.name_hash = upcase.hash(name).into();
        set.seal();
        set
    }

    /// Copies file entry, stream extension and checksum into the bytes.
    fn seal(&mut self) {
        let head = [self.file.0.as_bytes(), self.stream.0.as_bytes()].concat();
        for (to, byte) in self.bytes.iter_mut().zip(&head) {
            *to = *byte;
        }
        self.file.0.set_checksum = checksum(&self.bytes).into();
        for (to, byte) in self.bytes.iter_mut().zip(self.file.0.as_bytes()) {
            *to = *byte;
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes of the file entry and the stream extension. Only renames change the other
    /// entries.
    pub fn head(&self) -> &[u8] {
        &self.bytes[..2 * ENTRY]
    }

    pub fn entries(&self) -> usize {
        self.bytes.len() / ENTRY
    }

    pub fn file(&self) -> &FileEntry {
        &self.file.0
    }

    pub fn stream(&self) -> &StreamEntry {
        &self.stream.0
    }

    pub fn name(&self) -> Vec<u16> {
        let entries = self.bytes.chunks_exact(ENTRY).skip(2);
        let entries = entries.take_while(|entry| entry.first() == Some(&kind::NAME));
        let units = entries.flat_map(|entry| entry[2..].chunks_exact(2));
        let units = units.map(|unit| unit.try_into().map_or(0, u16::from_le_bytes));
        units.take(self.stream.0.name_length.into()).collect()
    }

    /// Returns the name as bytes for callers; fails for a name that no file may have.
    pub fn visible_name(&self) -> Result<Vec<u8>, Check> {
        let units = self.name();
        name::visible(&units).map_err(|source: NameError| Check::Name {
            name: String::from_utf16_lossy(&units),
            source,
        })
    }

    pub fn file_type(&self) -> FileType {
        if self.has(attribute::DIRECTORY) {
            FileType::Directory
        } else {
            FileType::Regular
        }
    }

    pub fn has(&self, attribute: u16) -> bool {
        self.file.0.file_attributes.get() & attribute != 0
    }

    pub fn data(&self) -> Allocation {
        let stream = &self.stream.0;
        Allocation {
            first: stream.first_cluster.get(),
            len: stream.data_length.get(),
            contiguous: stream.general_secondary_flags & flag::NO_FAT_CHAIN != 0,
        }
    }

    /// Returns `ValidDataLength`, limited to the length.
    pub fn valid_len(&self) -> u64 {
        let stream = &self.stream.0;
        stream.valid_data_length.get().min(stream.data_length.get())
    }

    /// Returns the type of the first critical secondary entry that the driver does not know. A set
    /// with such an entry may only be listed and removed (8.2).
    pub fn unrecognized(&self) -> Option<u8> {
        let others = self.bytes.chunks_exact(ENTRY).skip(2);
        let mut kinds = others.filter_map(|entry| entry.first().copied());
        kinds.find(|&found| Self::is_unknown(found))
    }

    /// Returns whether a secondary entry after the stream extension is critical and of unknown
    /// type.
    pub const fn is_unknown(found: u8) -> bool {
        found & kind::BENIGN == 0 && found != kind::NAME
    }

    /// Returns the allocations of further secondary entries. They are freed when the set is removed
    /// (8.2).
    pub fn other_allocations(&self) -> Vec<Allocation> {
        let others = self.bytes.chunks_exact(ENTRY).skip(2);
        let others = others.filter(|entry| entry.first() != Some(&kind::NAME));
        others.filter_map(secondary_allocation).collect()
    }

    /// Sets the allocation of the data, and its valid length.
    pub fn set_data(&mut self, data: Allocation, valid: u64) {
        let stream = &mut self.stream.0;
        let other = stream.general_secondary_flags & !flag::NO_FAT_CHAIN;
        let chain = if data.contiguous && data.first != 0 {
            flag::NO_FAT_CHAIN
        } else {
            0
        };
        stream.general_secondary_flags = other | flag::ALLOCATION_POSSIBLE | chain;
        stream.first_cluster = data.first.into();
        stream.data_length = data.len.into();
        stream.valid_data_length = valid.min(data.len).into();
        self.seal();
    }

    pub fn set_attribute(&mut self, attribute: u16, on: bool) {
        let attributes = self.file.0.file_attributes.get();
        let attributes = if on {
            attributes | attribute
        } else {
            attributes & !attribute
        };
        self.file.0.file_attributes = attributes.into();
        self.seal();
    }

    /// Returns the other location of a move across sectors, or 0 if no move is in progress: see
    /// [`moving`](crate::moving).
    pub fn pointer(&self) -> u64 {
        pointer(self.bytes())
    }

    /// Sets the pointer that [`pointer`](Self::pointer) returns; 0 clears it.
    pub fn set_pointer(&mut self, pointer: u64) {
        let bytes = pointer.to_le_bytes();
        if let Some(low) = bytes.first_chunk::<7>() {
            self.file.0.reserved2 = *low;
        }
        self.seal();
    }

    pub fn created(&self) -> Stamp {
        let file = &self.file.0;
        Stamp {
            word: file.create_timestamp.get(),
            hundredths: file.create_10ms_increment,
            offset: file.create_utc_offset,
        }
    }

    pub fn modified(&self) -> Stamp {
        let file = &self.file.0;
        Stamp {
            word: file.last_modified_timestamp.get(),
            hundredths: file.last_modified_10ms_increment,
            offset: file.last_modified_utc_offset,
        }
    }

    pub fn accessed(&self) -> Stamp {
        Stamp {
            word: self.file.0.last_accessed_timestamp.get(),
            hundredths: 0,
            offset: self.file.0.last_accessed_utc_offset,
        }
    }

    pub fn set_created(&mut self, time: Stamp) {
        self.file.0.create_timestamp = time.word.into();
        self.file.0.create_10ms_increment = time.hundredths;
        self.file.0.create_utc_offset = time.offset;
        self.seal();
    }

    pub fn set_modified(&mut self, time: Stamp) {
        self.file.0.last_modified_timestamp = time.word.into();
        self.file.0.last_modified_10ms_increment = time.hundredths;
        self.file.0.last_modified_utc_offset = time.offset;
        self.seal();
    }

    pub fn set_accessed(&mut self, time: Stamp) {
        self.file.0.last_accessed_timestamp = time.word.into();
        self.file.0.last_accessed_utc_offset = time.offset;
        self.seal();
    }
}

/// Returns the seven bytes at offset 25 of a file entry (`Reserved2`) as a number. During a rename,
/// forerun stores the other location there.
pub fn pointer(entry: &[u8]) -> u64 {
    let bytes = entry[25..32].iter().rev();
    bytes.fold(0, |number, &byte| number << 8 | u64::from(byte))
}

pub fn secondary_allocation(entry: &[u8]) -> Option<Allocation> {
    let entry = GenericEntry::read_from_prefix(entry).ok()?.0;
    allocation(&entry, entry.general_secondary_flags)
}

pub fn primary_allocation(entry: &[u8]) -> Option<Allocation> {
    let entry = GenericEntry::read_from_prefix(entry).ok()?.0;
    let flags = entry.general_primary_flags.get().to_le_bytes()[0];
    allocation(&entry, flags)
}

fn allocation(entry: &GenericEntry, flags: u8) -> Option<Allocation> {
    let (first, len) = (entry.first_cluster.get(), entry.data_length.get());
    let has = flags & flag::ALLOCATION_POSSIBLE != 0 && first != 0 && len > 0;
    has.then_some(Allocation {
        first,
        len,
        contiguous: flags & flag::NO_FAT_CHAIN != 0,
    })
}
