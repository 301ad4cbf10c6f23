//! The records of an archive as they are stored.
//!
//! Names are those of PKWARE's `APPNOTE.TXT` 6.3.10, whose sections are cited.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// Local file header signature (4.3.7).
pub const LOCAL: [u8; 4] = *b"PK\x03\x04";
/// Central file header signature (4.3.12).
pub const CENTRAL: [u8; 4] = *b"PK\x01\x02";
/// Zip64 end of central directory signature (4.3.14).
pub const END64: [u8; 4] = *b"PK\x06\x06";
/// Zip64 end of central directory locator signature (4.3.15).
pub const LOCATOR: [u8; 4] = *b"PK\x06\x07";
/// End of central directory signature (4.3.16).
pub const END: [u8; 4] = *b"PK\x05\x06";

/// General purpose bit 0: encrypted (4.4.4).
pub const ENCRYPTED: u16 = 1;
/// General purpose bit 5: compressed patched data.
pub const PATCHED: u16 = 1 << 5;
/// General purpose bit 11: the name is UTF-8.
pub const UTF8: u16 = 1 << 11;
/// General purpose bit 13: fields of the local header are masked, because the directory is
/// encrypted.
pub const MASKED: u16 = 1 << 13;

/// Upper byte of `version made by`: MS-DOS and others with FAT (4.4.2).
pub const HOST_FAT: u8 = 0;
pub const HOST_UNIX: u8 = 3;
/// Upper byte of `version made by`: OS X.
pub const HOST_OS_X: u8 = 19;

/// The value of a 16-bit field whose real value is in the zip64 record.
pub const IN_ZIP64_SHORT: u16 = u16::MAX;
/// The value of a 32-bit field whose real value is in the zip64 record.
pub const IN_ZIP64: u32 = u32::MAX;

/// Local file header, before the name (4.3.7).
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct LocalHeader {
    pub signature: [u8; 4],
    pub version_needed: U16,
    pub flags: U16,
    pub method: U16,
    pub time: U16,
    pub date: U16,
    pub crc: U32,
    pub compressed_size: U32,
    pub size: U32,
    pub name_len: U16,
    pub extra_len: U16,
}

/// Central directory file header, before the name (4.3.12).
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct CentralHeader {
    pub signature: [u8; 4],
    pub version: u8,
    pub host: u8,
    pub version_needed: U16,
    pub flags: U16,
    pub method: U16,
    pub time: U16,
    pub date: U16,
    pub crc: U32,
    pub compressed_size: U32,
    pub size: U32,
    pub name_len: U16,
    pub extra_len: U16,
    pub comment_len: U16,
    pub disk: U16,
    pub internal_attributes: U16,
    pub external_attributes: U32,
    pub offset: U32,
}

/// End of central directory record, before the comment (4.3.16).
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct EndRecord {
    pub signature: [u8; 4],
    pub disk: U16,
    pub directory_disk: U16,
    pub entries_here: U16,
    pub entries: U16,
    pub directory_len: U32,
    pub directory_offset: U32,
    pub comment_len: U16,
}

/// Zip64 end of central directory locator (4.3.15).
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Locator {
    pub signature: [u8; 4],
    pub disk: U32,
    pub offset: U64,
    pub disks: U32,
}

/// Zip64 end of central directory record, before the extensible data (4.3.14).
#[derive(FromBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct End64Record {
    pub signature: [u8; 4],
    pub record_len: U64,
    pub version_made_by: U16,
    pub version_needed: U16,
    pub disk: U32,
    pub directory_disk: U32,
    pub entries_here: U64,
    pub entries: U64,
    pub directory_len: U64,
    pub directory_offset: U64,
}

const _: () = {
    assert!(size_of::<LocalHeader>() == 30);
    assert!(size_of::<CentralHeader>() == 46);
    assert!(size_of::<EndRecord>() == 22);
    assert!(size_of::<Locator>() == 20);
    assert!(size_of::<End64Record>() == 56);
};
