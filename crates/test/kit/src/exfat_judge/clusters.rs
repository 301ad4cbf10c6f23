//! The FAT, and the owner of each cluster (sections 4.1 and 7.1.5).

use forerun_io::{ReadAt, u64_from, usize_from};

use super::{Finding, Geometry, What, finding, read, u32_at};

/// Findings of one kind that are printed; the rest are counted.
const SHOWN: usize = 8;

pub(super) struct OwnedClusters<'a> {
    device: &'a dyn ReadAt,
    pub(super) geometry: Geometry,
    fat: Vec<u8>,
    /// Whether a cluster has an owner, from cluster 2 on.
    owned: Vec<bool>,
    /// Chains that continue after their last cluster: the owner, its number of clusters, and the
    /// FAT entry that follows.
    longer: Vec<(String, u64, u32)>,
}

/// How many clusters an owner should have.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// As many as the chain has.
    Chain,
    /// This many, in a FAT chain.
    Fat(u64),
    /// This many, contiguous.
    Contiguous(u64),
}

impl<'a> OwnedClusters<'a> {
    pub(super) fn read(
        device: &'a dyn ReadAt,
        geometry: &Geometry,
        findings: &mut Vec<Finding>,
    ) -> Result<Self, Finding> {
        let fat = read(
            device,
            geometry.fat,
            (u64::from(geometry.clusters) + 2) * 4,
            What::FatHead,
        )?;
        if u32_at(&fat, 0) != 0xFFFF_FFF8 || u32_at(&fat, 4) != 0xFFFF_FFFF {
            findings.push(finding(What::FatHead, format!("{:02x?}", &fat[..8])));
        }
        Ok(Self {
            device,
            geometry: *geometry,
            fat,
            owned: vec![false; usize_from(geometry.clusters.into())],
            longer: Vec::new(),
        })
    }

    /// Assigns clusters to `owner`. Damage is added to `findings`; the clusters before it are
    /// returned.
    pub(super) fn take(
        &mut self,
        first: u32,
        wanted: Wanted,
        owner: &str,
        findings: &mut Vec<Finding>,
    ) -> Vec<u32> {
        let mut clusters = Vec::new();
        let count = match wanted {
            Wanted::Chain => u64::from(self.geometry.clusters),
            Wanted::Fat(count) | Wanted::Contiguous(count) => count,
        };
        let mut next = first;
        let mut complain = |what, detail: String| {
            findings.push(finding(what, format!("{owner}: {detail}")));
        };
        while u64_from(clusters.len()) < count {
            if !self.geometry.has(next) {
                let at = clusters.len();
                complain(What::Chain, format!("cluster {at} of {count} is {next:#x}"));
                return clusters;
            }
            let index = usize_from(u64::from(next - 2));
            if std::mem::replace(&mut self.owned[index], true) {
                complain(What::CrossLink, format!("cluster {next} has another owner"));
                return clusters;
            }
            clusters.push(next);
            next = match wanted {
                Wanted::Contiguous(_) => next + 1,
                Wanted::Chain | Wanted::Fat(_) => self.next(next),
            };
            if next == END && matches!(wanted, Wanted::Chain) {
                return clusters;
            }
        }
        if matches!(wanted, Wanted::Fat(_)) && next != END {
            self.longer.push((owner.to_owned(), count, next));
        }
        clusters
    }

    fn next(&self, number: u32) -> u32 {
        u32_at(&self.fat, usize_from(u64::from(number)) * 4)
    }

    /// Reads the first `len` bytes of these clusters.
    pub(super) fn bytes(&self, clusters: &[u32], len: u64) -> Result<Vec<u8>, Finding> {
        let mut bytes = Vec::new();
        for &number in clusters {
            let rest = len - u64_from(bytes.len());
            let part = rest.min(self.geometry.cluster);
            let offset = self.geometry.offset(number);
            bytes.extend(read(self.device, offset, part, What::Directory)?);
        }
        Ok(bytes)
    }

    /// Returns whether a chain passes only through marked clusters without an owner, and ends.
    fn is_spare(&self, first: u32, bitmap: &[u8]) -> bool {
        let mut next = first;
        for _ in 0..self.owned.len() {
            if !self.geometry.has(next) {
                break;
            }
            let index = usize_from(u64::from(next - 2));
            if self.owned[index] || !is_marked(bitmap, index) {
                return false;
            }
            next = self.next(next);
        }
        next == END
    }

    /// Compares the bitmap with the owners of the clusters, and records the differences.
    pub(super) fn compare(&self, bitmap: &[u8], findings: &mut Vec<Finding>) {
        let mut free = Vec::new();
        let mut leaked = Vec::new();
        for (index, &owned) in self.owned.iter().enumerate() {
            match (owned, is_marked(bitmap, index)) {
                (true, false) => free.push(index + 2),
                (false, true) => leaked.push(index + 2),
                _ => {}
            }
        }
        for (owner, count, next) in &self.longer {
            let what = if self.is_spare(*next, bitmap) {
                What::LongChain
            } else {
                What::Chain
            };
            let detail = format!("{owner}: goes on with {next:#x} after {count} clusters");
            findings.push(finding(what, detail));
        }
        for (what, found) in [(What::UsedButFree, free), (What::Leak, leaked)] {
            for number in found.iter().take(SHOWN) {
                findings.push(finding(what, format!("cluster {number}")));
            }
            if found.len() > SHOWN {
                let more = found.len() - SHOWN;
                findings.push(finding(what, format!("and {more} clusters more")));
            }
        }
    }
}

fn is_marked(bitmap: &[u8], index: usize) -> bool {
    let byte = bitmap.get(index / 8).copied().unwrap_or(0);
    byte >> (index % 8) & 1 == 1
}

const END: u32 = 0xFFFF_FFFF;
