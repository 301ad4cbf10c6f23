//! A volume of 40 KiB with all constructions of the format, made with the driver's own encoders.

use forerun_io::u64_from;
use zerocopy::{FromZeros, IntoBytes};

use crate::boot;
use crate::entry_set::{Allocation, EntrySet, checksum};
use crate::ondisk::{
    BitmapEntry, BootSector, END_OF_CHAIN, ENTRY, GuidEntry, LabelEntry, UpcaseEntry, attribute,
    kind,
};
use crate::time::Stamp;
use crate::upcase::{self, Upcase};

/// Bytes of a sector and of a cluster.
pub const SECTOR: usize = 512;
pub const FAT: usize = 24 * SECTOR;
/// Offset of cluster 2.
pub const HEAP: usize = 26 * SECTOR;
pub const CLUSTERS: u32 = 56;
pub const ROOT: u32 = 4;
/// First cluster of the fragmented file.
pub const PIECES: u32 = 6;
/// Cluster of the subdirectory.
pub const DIR: u32 = 9;
/// First cluster of the contiguous file.
pub const WHOLE: u32 = 12;
/// Root slots of the fragmented file, the subdirectory, and the file with vendor entries.
pub const SLOTS: [usize; 3] = [4, 7, 10];

const TIME: Stamp = Stamp {
    word: (46 << 25) | (11 << 21) | (21 << 16) | (15 << 11),
    hundredths: 120,
    offset: 0x84,
};

#[must_use]
pub fn cluster(number: u32) -> usize {
    HEAP + forerun_io::usize_from(u64::from(number) - 2) * SECTOR
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    for (to, byte) in image.iter_mut().skip(at).zip(bytes) {
        *to = *byte;
    }
}

/// Returns an up-case table that maps `a` to `z` only.
fn table() -> Vec<u8> {
    let words = [0xFFFF, 0x61].into_iter().chain(0x41..=0x5A_u16);
    words.flat_map(u16::to_le_bytes).collect()
}

fn name(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

/// Corrects the checksums of both boot regions.
pub fn seal(image: &mut [u8]) {
    for start in [0, 12 * SECTOR] {
        let sum = boot::checksum(image.get(start..start + 11 * SECTOR).unwrap_or_default());
        let sums = sum.to_le_bytes().repeat(SECTOR / 4);
        put(image, start + 11 * SECTOR, &sums);
    }
}

#[must_use]
pub fn image() -> Vec<u8> {
    let len = cluster(CLUSTERS + 2);
    let mut image = vec![0; len];
    for start in [0, 12 * SECTOR] {
        put(&mut image, start, boot_sector(len).as_bytes());
        for sector in 1..9 {
            put(&mut image, start + sector * SECTOR + 510, &[0x55, 0xAA]);
        }
    }
    let fat = |image: &mut Vec<u8>, cluster: u32, next: u32| {
        let at = FAT + forerun_io::usize_from(cluster.into()) * 4;
        put(image, at, &next.to_le_bytes());
    };
    fat(&mut image, 0, 0xFFFF_FFF8);
    for single in [1, 2, 3, 5, 10] {
        fat(&mut image, single, END_OF_CHAIN);
    }
    fat(&mut image, ROOT, 5);
    fat(&mut image, PIECES, 8);
    fat(&mut image, 8, 7);
    fat(&mut image, 7, END_OF_CHAIN);
    for used in (2..=10).chain(WHOLE..WHOLE + 3) {
        let byte = cluster(2) + forerun_io::usize_from((u64::from(used) - 2) / 8);
        if let Some(byte) = image.get_mut(byte) {
            *byte |= 1 << ((used - 2) % 8);
        }
    }
    put(&mut image, cluster(3), &table());
    put(&mut image, cluster(ROOT), &root());
    put(&mut image, cluster(DIR), inner().bytes());
    seal(&mut image);
    image
}

fn boot_sector(len: usize) -> BootSector {
    let mut sector = BootSector::new_zeroed();
    sector.jump_boot = [0xEB, 0x76, 0x90];
    sector.file_system_name = *b"EXFAT   ";
    sector.volume_length = (u64_from(len) / 512).into();
    sector.fat_offset = 24.into();
    sector.fat_length = 1.into();
    sector.cluster_heap_offset = 26.into();
    sector.cluster_count = CLUSTERS.into();
    sector.first_cluster_of_root_directory = ROOT.into();
    sector.volume_serial_number = 0x1234_5678.into();
    sector.file_system_revision = 0x0100.into();
    sector.bytes_per_sector_shift = 9;
    sector.number_of_fats = 1;
    sector.drive_select = 0x80;
    sector.percent_in_use = boot::PERCENT_UNKNOWN;
    sector.boot_signature = 0xAA55.into();
    sector
}

fn root() -> Vec<u8> {
    let upcase = Upcase::ascii();
    let mut label = LabelEntry::new_zeroed();
    label.entry_type = kind::LABEL;
    label.character_count = 4;
    for (to, unit) in label.volume_label.iter_mut().zip(name("fuzz")) {
        to.set(unit);
    }
    let mut bitmap = BitmapEntry::new_zeroed();
    bitmap.entry_type = kind::BITMAP;
    bitmap.first_cluster = 2.into();
    bitmap.data_length = 7.into();
    let mut table_entry = UpcaseEntry::new_zeroed();
    table_entry.entry_type = kind::UPCASE;
    table_entry.table_checksum = upcase::checksum(&table()).into();
    table_entry.first_cluster = 3.into();
    table_entry.data_length = u64_from(table().len()).into();
    let mut guid = GuidEntry::new_zeroed();
    guid.entry_type = kind::GUID;
    guid.volume_guid = *b"0123456789abcdef";
    let sum = checksum(guid.as_bytes());
    guid.set_checksum = sum.into();
    let mut root = Vec::new();
    root.extend(label.as_bytes());
    root.extend(bitmap.as_bytes());
    root.extend(table_entry.as_bytes());
    root.extend(guid.as_bytes());
    let mut pieces = EntrySet::new(&name("pieces"), attribute::ARCHIVE, TIME, &upcase);
    pieces.set_data(at(PIECES, 1400, false), 1000);
    root.extend(pieces.bytes());
    let mut dir = EntrySet::new(&name("dir"), attribute::DIRECTORY, TIME, &upcase);
    dir.set_data(at(DIR, 512, true), 512);
    root.extend(dir.bytes());
    // An entry of unknown type with a cluster, which the driver keeps with its file.
    let mut bytes = EntrySet::new(&name("vendor"), attribute::READ_ONLY, TIME, &upcase)
        .bytes()
        .to_vec();
    let mut own = [0; ENTRY];
    for (to, byte) in own.iter_mut().zip([0xE1, 1]) {
        *to = byte;
    }
    put(&mut own, 20, &10_u32.to_le_bytes());
    put(&mut own, 24, &100_u64.to_le_bytes());
    bytes.extend(own);
    put(&mut bytes, 1, &[3]);
    let sum = checksum(&bytes);
    put(&mut bytes, 2, &sum.to_le_bytes());
    root.extend(bytes);
    // This set crosses a cluster border, after an unused slot.
    root.extend([[0x05; ENTRY]; 1].concat());
    let mut far = EntrySet::new(
        &name("far away and long"),
        attribute::ARCHIVE,
        TIME,
        &upcase,
    );
    far.set_data(Allocation::default(), 0);
    root.extend(far.bytes());
    root
}

fn inner() -> EntrySet {
    let mut whole = EntrySet::new(&name("whole"), attribute::ARCHIVE, TIME, &Upcase::ascii());
    whole.set_data(at(WHOLE, 1500, true), 1500);
    whole
}

const fn at(first: u32, len: u64, contiguous: bool) -> Allocation {
    Allocation {
        first,
        len,
        contiguous,
    }
}
