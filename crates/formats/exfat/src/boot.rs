//! The boot regions: the geometry of the volume, and the offsets of its parts.
//!
//! The main and the backup region have twelve sectors each: boot sector, eight extended boot
//! sectors, OEM parameters, a reserved sector, checksum. This module parses bytes and reads
//! nothing.

use forerun_vfs::{Error, Result};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::ondisk::{BootSector, FIRST_CLUSTER, MAX_CLUSTERS, volume_flag};

pub const REGION_SECTORS: u64 = 12;
pub const FLAGS_AT: usize = 106;
pub const PERCENT_AT: usize = 112;
/// `PercentInUse` if the value is unknown.
pub const PERCENT_UNKNOWN: u8 = 0xFF;

/// A checked boot sector. Offsets and lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    pub partition_offset: u64,
    /// `VolumeLength`, or up to the last cluster if the field cannot be true.
    pub volume_len: u64,
    /// `VolumeLength` in sectors.
    pub declared_len: u64,
    pub fat_offset: u64,
    pub fat_len: u64,
    pub heap_offset: u64,
    pub clusters: u32,
    pub root: u32,
    pub serial: u32,
    pub revision: u16,
    pub flags: u16,
    pub sector_bits: u8,
    pub cluster_bits: u8,
    pub fats: u8,
    pub percent: u8,
}

pub fn probe(head: &[u8]) -> bool {
    head.get(3..11) == Some(b"EXFAT   ") && head.get(510..512) == Some(&[0x55, 0xAA])
}

impl Boot {
    /// Parses and checks the boot sector at `offset` of an image.
    pub fn parse(bytes: &[u8], offset: u64) -> Result<Self> {
        let fail = |check: Check| Err(check.at(None, offset));
        let Ok((raw, _)) = BootSector::read_from_prefix(bytes) else {
            let len = forerun_io::u64_from(bytes.len());
            return fail(Check::ShortBoot { len, need: 512 });
        };
        if &raw.file_system_name != b"EXFAT   " {
            return Err(Error::UnknownFormat {
                expected: Some("exfat".into()),
                found: "no EXFAT in the boot sector".into(),
            });
        }
        if raw.boot_signature.get() != 0xAA55 {
            let found = raw.boot_signature.get();
            return fail(Check::BootSignature { found });
        }
        if raw.must_be_zero != [0; 53] {
            return fail(Check::MustBeZero);
        }
        let sector_bits = raw.bytes_per_sector_shift;
        if !(9..=12).contains(&sector_bits) {
            return fail(Check::SectorSize { bits: sector_bits });
        }
        let bits = u32::from(sector_bits) + u32::from(raw.sectors_per_cluster_shift);
        let Ok(cluster_bits) = u8::try_from(bits.min(26)) else {
            return fail(Check::ClusterSize { bits });
        };
        if cluster_bits > 25 {
            return fail(Check::ClusterSize { bits });
        }
        let fats = raw.number_of_fats;
        if !(1..=2).contains(&fats) {
            return fail(Check::FatCount { count: fats });
        }
        regions(&raw, cluster_bits).or_else(fail)
    }

    pub const fn cluster_size(&self) -> u64 {
        1 << self.cluster_bits
    }

    pub const fn sector_size(&self) -> u64 {
        1 << self.sector_bits
    }

    /// Returns the number of directory entries in a sector.
    pub const fn slots_per_sector(&self) -> u32 {
        1 << (self.sector_bits - 5)
    }

    pub const fn region_len(&self) -> u64 {
        REGION_SECTORS << self.sector_bits
    }

    pub const fn has_cluster(&self, cluster: u32) -> bool {
        cluster >= FIRST_CLUSTER && cluster - FIRST_CLUSTER < self.clusters
    }

    /// Returns the offset of a cluster. The cluster must be on the volume.
    pub fn cluster_at(&self, cluster: u32) -> u64 {
        let index = u64::from(cluster - FIRST_CLUSTER);
        self.heap_offset + (index << self.cluster_bits)
    }

    pub fn cluster_of(&self, offset: u64) -> Option<u32> {
        let index = offset.checked_sub(self.heap_offset)? >> self.cluster_bits;
        let cluster = u32::try_from(index).ok()?.checked_add(FIRST_CLUSTER)?;
        self.has_cluster(cluster).then_some(cluster)
    }

    /// Returns the revision as text if this driver does not know it: it may have another layout.
    pub fn unknown_revision(&self) -> Option<String> {
        let (major, minor) = (self.revision >> 8, self.revision & 0xFF);
        (major != 1).then(|| format!("exFAT revision {major}.{minor:02}"))
    }

    /// Returns whether the second FAT is active. Without a second one the flag means nothing.
    pub const fn is_second_active(&self) -> bool {
        self.fats > 1 && self.flags & volume_flag::ACTIVE_FAT != 0
    }

    pub const fn active_fat(&self) -> u64 {
        if self.is_second_active() {
            self.fat_offset + self.fat_len
        } else {
            self.fat_offset
        }
    }

    pub const fn clusters_for(&self, len: u64) -> u64 {
        len.div_ceil(1 << self.cluster_bits)
    }

    /// Returns the end of the last cluster.
    pub fn heap_end(&self) -> u64 {
        self.heap_offset + self.heap_len()
    }

    /// Sets the length to the end of the last cluster if the field says more than a source has that
    /// holds all clusters. Linux reads such volumes.
    pub fn fit(&mut self, source_len: u64) {
        if self.volume_len > source_len && self.heap_end() <= source_len {
            self.volume_len = self.heap_end();
        }
    }

    /// Returns what is wrong if `VolumeLength` was not used, see [`fit`](Self::fit).
    pub fn length_check(&self, source_len: u64) -> Option<Check> {
        (self.declared_len != self.volume_len >> self.sector_bits).then(|| Check::BootField {
            what: "VolumeLength",
            found: self.declared_len,
            low: self.heap_end() >> self.sector_bits,
            high: source_len >> self.sector_bits,
        })
    }

    pub fn heap_len(&self) -> u64 {
        u64::from(self.clusters) << self.cluster_bits
    }
}

/// Checks the offsets and lengths of the volume's regions, for [`Boot::parse`].
fn regions(raw: &BootSector, cluster_bits: u8) -> Result<Boot, Check> {
    let sector_bits = raw.bytes_per_sector_shift;
    let clusters = raw.cluster_count.get();
    let (fat, fat_len) = (raw.fat_offset.get(), raw.fat_length.get());
    let heap = raw.cluster_heap_offset.get();
    let volume = raw.volume_length.get();
    let (fats, root) = (
        raw.number_of_fats,
        raw.first_cluster_of_root_directory.get(),
    );
    let within = |what: &'static str, found: u64, low: u64, high: u64| match found {
        found if (low..=high).contains(&found) => Ok(()),
        _ => Err(Check::BootField {
            what,
            found,
            low,
            high,
        }),
    };
    within("ClusterCount", clusters.into(), 1, MAX_CLUSTERS.into())?;
    let need = ((u64::from(clusters) + 2) * 4).div_ceil(1 << sector_bits);
    within("FatLength", fat_len.into(), need, u32::MAX.into())?;
    within("FatOffset", fat.into(), 24, u32::MAX.into())?;
    let fats_end = u64::from(fat) + u64::from(fat_len) * u64::from(fats);
    let heap_sectors = u64::from(clusters) << (cluster_bits - sector_bits);
    within("ClusterHeapOffset", heap.into(), fats_end, u32::MAX.into())?;
    let heap_end = u64::from(heap) + heap_sectors;
    // Linux does not read the field. Offsets of bytes must fit 64 bits with space to spare.
    let sectors = if (heap_end..u64::MAX >> 16).contains(&volume) {
        volume
    } else {
        heap_end
    };
    let last = u64::from(clusters) + 1;
    within("FirstClusterOfRootDirectory", root.into(), 2, last)?;
    Ok(Boot {
        partition_offset: raw.partition_offset.get(),
        volume_len: sectors << sector_bits,
        declared_len: volume,
        fat_offset: u64::from(fat) << sector_bits,
        fat_len: u64::from(fat_len) << sector_bits,
        heap_offset: u64::from(heap) << sector_bits,
        clusters,
        root,
        serial: raw.volume_serial_number.get(),
        revision: raw.file_system_revision.get(),
        flags: raw.volume_flags.get(),
        sector_bits,
        cluster_bits,
        fats,
        percent: raw.percent_in_use,
    })
}

/// Returns the checksum of the first eleven sectors of a boot region (3.4), without the fields that
/// change while the volume is in use.
pub fn checksum(sectors: &[u8]) -> u32 {
    let changing = [FLAGS_AT, FLAGS_AT + 1, PERCENT_AT];
    let bytes = sectors.iter().enumerate();
    bytes
        .filter(|(index, _)| !changing.contains(index))
        .fold(0_u32, |sum, (_, &byte)| {
            sum.rotate_right(1).wrapping_add(u32::from(byte))
        })
}

/// Compares the checksums in the last sector of `region` with the checksum of the other eleven
/// sectors.
pub fn verify(region: &[u8], sector_size: usize) -> Result<(), Check> {
    let (sectors, sum) = region
        .split_at_checked(sector_size * 11)
        .unwrap_or_default();
    let actual = checksum(sectors);
    for word in sum.chunks_exact(4) {
        let found = word.try_into().map_or(0, u32::from_le_bytes);
        if found != actual {
            return Err(Check::BootChecksum { found, actual });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_is_not_summed() {
        let mut region = vec![7_u8; 512 * 12];
        let sum = checksum(&region[..512 * 11]);
        for word in region[512 * 11..].chunks_exact_mut(4) {
            word.copy_from_slice(&sum.to_le_bytes());
        }
        assert_eq!(verify(&region, 512), Ok(()));
        region[106] = 2;
        region[107] = 1;
        region[112] = 99;
        assert_eq!(verify(&region, 512), Ok(()));
        region[105] = 0;
        assert!(verify(&region, 512).is_err());
    }
}
