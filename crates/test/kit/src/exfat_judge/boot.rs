//! The boot regions (sections 3.1 to 3.4 of the specification).

use forerun_io::{ReadAt, usize_from};

use super::{Finding, What, finding, u16_at, u32_at, u64_at};

/// The layout of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a sector.
    pub sector: u64,
    pub cluster: u64,
    pub volume: u64,
    pub fat: u64,
    /// Offset of cluster 2 in bytes.
    pub heap: u64,
    pub clusters: u32,
    /// First cluster of the root directory.
    pub root: u32,
    pub serial: u32,
}

impl Geometry {
    /// Returns the offset of cluster `number`, which must exist.
    pub fn offset(&self, number: u32) -> u64 {
        self.heap + u64::from(number - 2) * self.cluster
    }

    pub fn has(&self, number: u32) -> bool {
        number >= 2 && number - 2 < self.clusters
    }
}

pub(super) struct Boot {
    pub(super) geometry: Geometry,
    pub(super) dirty: bool,
    pub(super) media_failure: bool,
}

pub(super) fn read(device: &dyn ReadAt, findings: &mut Vec<Finding>) -> Result<Boot, Finding> {
    let first = super::read(device, 0, 512, What::Boot)?;
    let shift = first[108];
    if &first[3..11] != b"EXFAT   " || !(9..=12).contains(&shift) {
        return Err(finding(What::Boot, "no exFAT boot sector"));
    }
    let sector = 1_u64 << shift;
    region(device, 0, sector, "main", findings);
    region(device, 12 * sector, sector, "backup", findings);
    fields(&first, findings);
    let flags = u16_at(&first, 106);
    let per_cluster = 1_u64
        .checked_shl(first[109].into())
        .filter(|_| first[109] <= 25 - shift)
        .ok_or_else(|| finding(What::Boot, "clusters of more than 32 MiB"))?;
    let fat_sectors = u64::from(u32_at(&first, 84));
    let geometry = Geometry {
        sector,
        cluster: per_cluster * sector,
        volume: u64_at(&first, 72).saturating_mul(sector),
        fat: u64::from(u32_at(&first, 80)) * sector,
        heap: u64::from(u32_at(&first, 88)) * sector,
        clusters: u32_at(&first, 92),
        root: u32_at(&first, 96),
        serial: u32_at(&first, 100),
    };
    places(&geometry, fat_sectors * sector, device.len(), findings);
    Ok(Boot {
        geometry,
        dirty: flags & 2 != 0,
        media_failure: flags & 4 != 0,
    })
}

fn fields(first: &[u8], findings: &mut Vec<Finding>) {
    let mut expect = |holds: bool, detail: &str| {
        if !holds {
            findings.push(finding(What::Boot, detail));
        }
    };
    expect(first[..3] == [0xEB, 0x76, 0x90], "JumpBoot");
    expect(first[11..64].iter().all(|&byte| byte == 0), "MustBeZero");
    expect(first[105] == 1 && first[104] < 100, "FileSystemRevision");
    expect(first[110] == 1, "NumberOfFats");
    expect(first[510..512] == [0x55, 0xAA], "BootSignature");
}

fn places(geometry: &Geometry, fat_len: u64, device: u64, findings: &mut Vec<Finding>) {
    let mut expect = |holds: bool, detail: String| {
        if !holds {
            findings.push(finding(What::Boot, detail));
        }
    };
    let needed = (u64::from(geometry.clusters) + 2) * 4;
    let end = geometry.heap + u64::from(geometry.clusters).saturating_mul(geometry.cluster);
    expect(geometry.fat >= 24 * geometry.sector, "FatOffset".into());
    expect(
        fat_len >= needed,
        format!("a FAT of {fat_len} bytes for {needed}"),
    );
    expect(
        geometry.heap >= geometry.fat + fat_len,
        "ClusterHeapOffset".into(),
    );
    expect(
        end <= geometry.volume,
        format!("clusters to {end} in {geometry:?}"),
    );
    expect(
        geometry.volume <= device,
        format!("a volume of {} bytes", geometry.volume),
    );
    expect(
        geometry.has(geometry.root),
        format!("root in cluster {}", geometry.root),
    );
}

/// Checks a boot region of twelve sectors: boot sector, eight extended ones, two of parameters, the
/// checksum.
fn region(device: &dyn ReadAt, at: u64, sector: u64, name: &str, findings: &mut Vec<Finding>) {
    let bytes = match super::read(device, at, 12 * sector, What::Boot) {
        Ok(bytes) => bytes,
        Err(error) => return findings.push(error),
    };
    let sector = usize_from(sector);
    let (covered, checksums) = bytes.split_at(11 * sector);
    let mut sum = 0_u32;
    for (index, &byte) in covered.iter().enumerate() {
        if !matches!(index, 106 | 107 | 112) {
            sum = sum.rotate_right(1).wrapping_add(byte.into());
        }
    }
    if checksums
        .chunks_exact(4)
        .any(|stored| u32_at(stored, 0) != sum)
    {
        findings.push(finding(
            What::Boot,
            format!("checksum of the {name} boot region"),
        ));
    }
    for number in 1..=8 {
        if bytes[(number + 1) * sector - 4..(number + 1) * sector] != [0, 0, 0x55, 0xAA] {
            findings.push(finding(
                What::Boot,
                format!("signature of {name} sector {number}"),
            ));
        }
    }
}
