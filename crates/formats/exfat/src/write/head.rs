//! Encodes the boot regions, which precede the clusters.

use forerun_io::{u64_from, usize_from};
use zerocopy::{FromZeros, IntoBytes};

use super::geometry::Geometry;
use crate::boot::{REGION_SECTORS, checksum};
use crate::ondisk::BootSector;

/// An x86 jump over the fields (3.1.1).
const JUMP: [u8; 3] = [0xEB, 0x76, 0x90];
/// Boot code that halts, because no machine boots from the image (3.1.19).
const BOOT_CODE: u8 = 0xF4;
/// Revision 1.00.
const REVISION: u16 = 0x0100;
const EXTENDED_SIGNATURE: u32 = 0xAA55_0000;
const CHECKSUM_SECTOR: u64 = 11;

/// Returns the main and the backup boot region.
pub fn regions(geometry: &Geometry, serial: u32) -> Vec<u8> {
    let mut region = region(geometry, serial);
    let sum = checksum(&region).to_le_bytes();
    let words = usize_from(geometry.sector / u64_from(sum.len()));
    region.extend(sum.repeat(words));
    region.repeat(2)
}

/// Returns the first eleven sectors of a boot region.
fn region(geometry: &Geometry, serial: u32) -> Vec<u8> {
    let sector = usize_from(geometry.sector);
    let mut region = boot_sector(geometry, serial).as_bytes().to_vec();
    region.resize(sector, 0);
    for _extended in 1..=8 {
        let end = region.len() + sector;
        region.resize(end - size_of::<u32>(), 0);
        region.extend(EXTENDED_SIGNATURE.to_le_bytes());
    }
    // OEM parameters and the reserved sector stay empty.
    region.resize(usize_from(CHECKSUM_SECTOR) * sector, 0);
    debug_assert_eq!(CHECKSUM_SECTOR + 1, REGION_SECTORS);
    region
}

fn boot_sector(geometry: &Geometry, serial: u32) -> BootSector {
    let sectors = |bytes: u64| bytes / geometry.sector;
    let short = |bytes: u64| u32::try_from(sectors(bytes)).unwrap_or(u32::MAX);
    let shift = |power: u64| u8::try_from(power.trailing_zeros()).unwrap_or(0);
    let percent = geometry.used * 100 / u64::from(geometry.clusters);
    let mut boot = BootSector::new_zeroed();
    boot.jump_boot = JUMP;
    boot.file_system_name = *b"EXFAT   ";
    boot.volume_length = sectors(geometry.volume).into();
    boot.fat_offset = short(geometry.fat).into();
    boot.fat_length = short(geometry.fat_len).into();
    boot.cluster_heap_offset = short(geometry.heap).into();
    boot.cluster_count = geometry.clusters.into();
    boot.first_cluster_of_root_directory = geometry.root().into();
    boot.volume_serial_number = serial.into();
    boot.file_system_revision = REVISION.into();
    boot.bytes_per_sector_shift = shift(geometry.sector);
    boot.sectors_per_cluster_shift = shift(sectors(geometry.cluster));
    boot.number_of_fats = 1;
    boot.drive_select = 0x80;
    boot.percent_in_use = u8::try_from(percent).unwrap_or(100);
    boot.boot_code = [BOOT_CODE; 390];
    boot.boot_signature = 0xAA55.into();
    boot
}
