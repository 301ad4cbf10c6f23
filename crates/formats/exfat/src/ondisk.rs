//! On-disk structures of exFAT, with the specification's field names; section numbers in
//! parentheses. Other modules give them meaning.

use forerun_vfs::on_disk;
use zerocopy::little_endian::{U16, U32, U64};

/// Length of a directory entry in bytes (6).
pub const ENTRY: usize = 32;
/// [`ENTRY`] as `u64`, for offsets.
pub const ENTRY_LEN: u64 = 32;
pub const FIRST_CLUSTER: u32 = 2;
/// `FatEntry` of the last cluster of a chain (4.1.3).
pub const END_OF_CHAIN: u32 = 0xFFFF_FFFF;
/// `FatEntry` of a bad cluster (4.1.3).
pub const BAD_CLUSTER: u32 = 0xFFFF_FFF7;
/// Maximum number of clusters of a volume (3.1.9).
pub const MAX_CLUSTERS: u32 = 0xFFFF_FFF5;
/// Longest directory in bytes (7.6.7).
pub const MAX_DIRECTORY: u64 = 256 << 20;
/// Longest directory in entries.
pub const MAX_SLOTS: u32 = 8 << 20;
/// Longest file name in UTF-16 units (7.6.3).
pub const MAX_NAME: usize = 255;
/// Longest volume label in UTF-16 units (7.3.2).
pub const MAX_LABEL: usize = 11;
/// UTF-16 units per file name entry (7.7.3).
pub const NAME_UNITS: usize = 15;

/// Values of `EntryType` (6.2.1, 7).
pub mod kind {
    /// Marks the end of the directory.
    pub const END: u8 = 0x00;
    pub const IN_USE: u8 = 0x80;
    pub const SECONDARY: u8 = 0x40;
    pub const BENIGN: u8 = 0x20;
    pub const BITMAP: u8 = 0x81;
    pub const UPCASE: u8 = 0x82;
    pub const LABEL: u8 = 0x83;
    pub const FILE: u8 = 0x85;
    pub const GUID: u8 = 0xA0;
    pub const STREAM: u8 = 0xC0;
    pub const NAME: u8 = 0xC1;
    pub const UNUSED: u8 = FILE & !IN_USE;
}

/// `FileAttributes` (7.4.4).
pub mod attribute {
    pub const READ_ONLY: u16 = 0x01;
    pub const HIDDEN: u16 = 0x02;
    pub const SYSTEM: u16 = 0x04;
    pub const DIRECTORY: u16 = 0x10;
    pub const ARCHIVE: u16 = 0x20;
    pub const KNOWN: u16 = READ_ONLY | HIDDEN | SYSTEM | DIRECTORY | ARCHIVE;
}

/// `GeneralSecondaryFlags` and `GeneralPrimaryFlags` (6.3.4, 6.4.2).
pub mod flag {
    pub const ALLOCATION_POSSIBLE: u8 = 0x01;
    pub const NO_FAT_CHAIN: u8 = 0x02;
}

/// `VolumeFlags` (3.1.13).
pub mod volume_flag {
    pub const ACTIVE_FAT: u16 = 0x01;
    pub const VOLUME_DIRTY: u16 = 0x02;
    pub const MEDIA_FAILURE: u16 = 0x04;
    pub const CLEAR_TO_ZERO: u16 = 0x08;
}

on_disk! {
    /// First 512 bytes of the main and the backup boot region (3.1).
    BootSector, 512 {
        jump_boot: [u8; 3],
        file_system_name: [u8; 8],
        must_be_zero: [u8; 53],
        partition_offset: U64,
        volume_length: U64,
        fat_offset: U32,
        fat_length: U32,
        cluster_heap_offset: U32,
        cluster_count: U32,
        first_cluster_of_root_directory: U32,
        volume_serial_number: U32,
        file_system_revision: U16,
        volume_flags: U16,
        bytes_per_sector_shift: u8,
        sectors_per_cluster_shift: u8,
        number_of_fats: u8,
        drive_select: u8,
        percent_in_use: u8,
        reserved: [u8; 7],
        boot_code: [u8; 390],
        boot_signature: U16,
    }
}

on_disk! {
    /// Allocation bitmap directory entry (7.1).
    BitmapEntry, 32 {
        entry_type: u8,
        bitmap_flags: u8,
        reserved: [u8; 18],
        first_cluster: U32,
        data_length: U64,
    }
}

on_disk! {
    /// Up-case table directory entry (7.2).
    UpcaseEntry, 32 {
        entry_type: u8,
        reserved1: [u8; 3],
        table_checksum: U32,
        reserved2: [u8; 12],
        first_cluster: U32,
        data_length: U64,
    }
}

on_disk! {
    /// Volume label directory entry (7.3).
    LabelEntry, 32 {
        entry_type: u8,
        character_count: u8,
        volume_label: [U16; MAX_LABEL],
        reserved: [u8; 8],
    }
}

on_disk! {
    /// Volume GUID directory entry (7.5).
    GuidEntry, 32 {
        entry_type: u8,
        secondary_count: u8,
        set_checksum: U16,
        general_primary_flags: U16,
        volume_guid: [u8; 16],
        reserved: [u8; 10],
    }
}

on_disk! {
    /// File directory entry (7.4).
    FileEntry, 32 {
        entry_type: u8,
        secondary_count: u8,
        set_checksum: U16,
        file_attributes: U16,
        reserved1: U16,
        create_timestamp: U32,
        last_modified_timestamp: U32,
        last_accessed_timestamp: U32,
        create_10ms_increment: u8,
        last_modified_10ms_increment: u8,
        create_utc_offset: u8,
        last_modified_utc_offset: u8,
        last_accessed_utc_offset: u8,
        reserved2: [u8; 7],
    }
}

on_disk! {
    /// Stream extension directory entry (7.6).
    StreamEntry, 32 {
        entry_type: u8,
        general_secondary_flags: u8,
        reserved1: u8,
        name_length: u8,
        name_hash: U16,
        reserved2: U16,
        valid_data_length: U64,
        reserved3: U32,
        first_cluster: U32,
        data_length: U64,
    }
}

on_disk! {
    /// File name directory entry (7.7).
    NameEntry, 32 {
        entry_type: u8,
        general_secondary_flags: u8,
        file_name: [U16; NAME_UNITS],
    }
}

on_disk! {
    /// The common fields of all entries with an allocation (6.3, 6.4). The flags are at the offset
    /// of secondary entries; primary entries have them at offset 4.
    GenericEntry, 32 {
        entry_type: u8,
        general_secondary_flags: u8,
        set_checksum: U16,
        general_primary_flags: U16,
        custom: [u8; 14],
        first_cluster: U32,
        data_length: U64,
    }
}
