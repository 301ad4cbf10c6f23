//! On-disk structures of exFAT, with the specification's own names for fields (section numbers in
//! parentheses). Their meaning is in other modules.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a directory entry (6).
pub const ENTRY: usize = 32;
/// The same as [`ENTRY`], for positions.
pub const ENTRY_LEN: u64 = 32;
/// First cluster of the heap (5.1).
pub const FIRST_CLUSTER: u32 = 2;
/// `FatEntry` of the last cluster of a chain (4.1.3).
pub const END_OF_CHAIN: u32 = 0xFFFF_FFFF;
/// `FatEntry` of a bad cluster (4.1.3).
pub const BAD_CLUSTER: u32 = 0xFFFF_FFF7;
/// Most clusters of a volume (3.1.9).
pub const MAX_CLUSTERS: u32 = 0xFFFF_FFF5;
/// Longest directory, in bytes (7.6.7).
pub const MAX_DIRECTORY: u64 = 256 << 20;
/// Longest file name, in UTF-16 units (7.6.3).
pub const MAX_NAME: usize = 255;
/// Longest volume label, in UTF-16 units (7.3.2).
pub const MAX_LABEL: usize = 11;
/// UTF-16 units of one file name entry (7.7.3).
pub const NAME_UNITS: usize = 15;

/// `EntryType` values (6.2.1, 7).
pub mod kind {
    /// End of the directory.
    pub const END: u8 = 0x00;
    /// Bit of entries that are in use.
    pub const IN_USE: u8 = 0x80;
    /// Bit of secondary entries.
    pub const SECONDARY: u8 = 0x40;
    /// Bit of benign entries.
    pub const BENIGN: u8 = 0x20;
    /// Allocation bitmap.
    pub const BITMAP: u8 = 0x81;
    /// Up-case table.
    pub const UPCASE: u8 = 0x82;
    /// Volume label.
    pub const LABEL: u8 = 0x83;
    /// File or directory.
    pub const FILE: u8 = 0x85;
    /// Volume GUID.
    pub const GUID: u8 = 0xA0;
    /// Stream extension.
    pub const STREAM: u8 = 0xC0;
    /// File name.
    pub const NAME: u8 = 0xC1;
    /// A file entry that is not in use any more.
    pub const UNUSED: u8 = FILE & !IN_USE;
}

/// `FileAttributes` (7.4.4).
pub mod attribute {
    /// `ReadOnly`.
    pub const READ_ONLY: u16 = 0x01;
    /// `Hidden`.
    pub const HIDDEN: u16 = 0x02;
    /// `System`.
    pub const SYSTEM: u16 = 0x04;
    /// `Directory`.
    pub const DIRECTORY: u16 = 0x10;
    /// `Archive`.
    pub const ARCHIVE: u16 = 0x20;
    /// All of these.
    pub const KNOWN: u16 = READ_ONLY | HIDDEN | SYSTEM | DIRECTORY | ARCHIVE;
}

/// `GeneralSecondaryFlags` and `GeneralPrimaryFlags` (6.3.4, 6.4.2).
pub mod flag {
    /// `AllocationPossible`.
    pub const ALLOCATION_POSSIBLE: u8 = 0x01;
    /// `NoFatChain`.
    pub const NO_FAT_CHAIN: u8 = 0x02;
}

/// `VolumeFlags` (3.1.13).
pub mod volume_flag {
    /// `ActiveFat`.
    pub const ACTIVE_FAT: u16 = 0x01;
    /// `VolumeDirty`.
    pub const VOLUME_DIRTY: u16 = 0x02;
    /// `MediaFailure`.
    pub const MEDIA_FAILURE: u16 = 0x04;
    /// `ClearToZero`.
    pub const CLEAR_TO_ZERO: u16 = 0x08;
}

/// First 512 bytes of the main and of the backup boot region (3.1).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BootSector {
    pub jump_boot: [u8; 3],
    pub file_system_name: [u8; 8],
    pub must_be_zero: [u8; 53],
    pub partition_offset: U64,
    pub volume_length: U64,
    pub fat_offset: U32,
    pub fat_length: U32,
    pub cluster_heap_offset: U32,
    pub cluster_count: U32,
    pub first_cluster_of_root_directory: U32,
    pub volume_serial_number: U32,
    pub file_system_revision: U16,
    pub volume_flags: U16,
    pub bytes_per_sector_shift: u8,
    pub sectors_per_cluster_shift: u8,
    pub number_of_fats: u8,
    pub drive_select: u8,
    pub percent_in_use: u8,
    pub reserved: [u8; 7],
    pub boot_code: [u8; 390],
    pub boot_signature: U16,
}
const _: () = assert!(size_of::<BootSector>() == 512);

/// Allocation bitmap directory entry (7.1).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct BitmapEntry {
    pub entry_type: u8,
    pub bitmap_flags: u8,
    pub reserved: [u8; 18],
    pub first_cluster: U32,
    pub data_length: U64,
}
const _: () = assert!(size_of::<BitmapEntry>() == ENTRY);

/// Up-case table directory entry (7.2).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct UpcaseEntry {
    pub entry_type: u8,
    pub reserved1: [u8; 3],
    pub table_checksum: U32,
    pub reserved2: [u8; 12],
    pub first_cluster: U32,
    pub data_length: U64,
}
const _: () = assert!(size_of::<UpcaseEntry>() == ENTRY);

/// Volume label directory entry (7.3).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct LabelEntry {
    pub entry_type: u8,
    pub character_count: u8,
    pub volume_label: [U16; MAX_LABEL],
    pub reserved: [u8; 8],
}
const _: () = assert!(size_of::<LabelEntry>() == ENTRY);

/// Volume GUID directory entry (7.5).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GuidEntry {
    pub entry_type: u8,
    pub secondary_count: u8,
    pub set_checksum: U16,
    pub general_primary_flags: U16,
    pub volume_guid: [u8; 16],
    pub reserved: [u8; 10],
}
const _: () = assert!(size_of::<GuidEntry>() == ENTRY);

/// File directory entry (7.4).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FileEntry {
    pub entry_type: u8,
    pub secondary_count: u8,
    pub set_checksum: U16,
    pub file_attributes: U16,
    pub reserved1: U16,
    pub create_timestamp: U32,
    pub last_modified_timestamp: U32,
    pub last_accessed_timestamp: U32,
    pub create_10ms_increment: u8,
    pub last_modified_10ms_increment: u8,
    pub create_utc_offset: u8,
    pub last_modified_utc_offset: u8,
    pub last_accessed_utc_offset: u8,
    pub reserved2: [u8; 7],
}
const _: () = assert!(size_of::<FileEntry>() == ENTRY);

/// Stream extension directory entry (7.6).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct StreamEntry {
    pub entry_type: u8,
    pub general_secondary_flags: u8,
    pub reserved1: u8,
    pub name_length: u8,
    pub name_hash: U16,
    pub reserved2: U16,
    pub valid_data_length: U64,
    pub reserved3: U32,
    pub first_cluster: U32,
    pub data_length: U64,
}
const _: () = assert!(size_of::<StreamEntry>() == ENTRY);

/// File name directory entry (7.7).
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct NameEntry {
    pub entry_type: u8,
    pub general_secondary_flags: u8,
    pub file_name: [U16; NAME_UNITS],
}
const _: () = assert!(size_of::<NameEntry>() == ENTRY);

/// The fields that every entry with an allocation has in common (6.3, 6.4). The byte of flags is
/// that of secondary entries; primary ones have theirs at offset 4.
#[derive(Clone, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct GenericEntry {
    pub entry_type: u8,
    pub general_secondary_flags: u8,
    pub set_checksum: U16,
    pub general_primary_flags: U16,
    pub custom: [u8; 14],
    pub first_cluster: U32,
    pub data_length: U64,
}
const _: () = assert!(size_of::<GenericEntry>() == ENTRY);
