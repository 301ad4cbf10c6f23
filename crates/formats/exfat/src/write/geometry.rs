//! The geometry of a new volume: the offsets of its parts, and its length.

use forerun_build::BuildError;

use super::plan::Plan;
use super::{ExfatOptions, cannot};
use crate::boot::REGION_SECTORS;
use crate::ondisk::{FIRST_CLUSTER, MAX_CLUSTERS};

/// Smallest volume of the format in bytes (3.1.5).
const SMALLEST: u64 = 1 << 20;
/// Longest volume for each default cluster size, and that size.
const DEFAULTS: [(u64, u64); 3] = [
    (256 << 20, 4 << 10),
    (32 << 30, 32 << 10),
    (u64::MAX, 128 << 10),
];
/// Smallest volume whose FAT and clusters are aligned to [`LARGE_ALIGN`].
const LARGE: u64 = 64 << 20;
const LARGE_ALIGN: u64 = 1 << 20;
const SMALL_ALIGN: u64 = 4 << 10;

/// Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub sector: u64,
    pub cluster: u64,
    pub volume: u64,
    pub fat: u64,
    pub fat_len: u64,
    pub heap: u64,
    pub clusters: u32,
    /// Clusters of the bitmap, which are the first of the heap.
    pub bitmap_clusters: u64,
    /// Clusters of the up-case table, which follows the bitmap.
    pub upcase_clusters: u64,
    pub used: u64,
}

impl Geometry {
    pub fn new(options: &ExfatOptions, plan: &Plan, upcase: u64) -> Result<Self, BuildError> {
        if let Some(cluster) = options.cluster_size {
            return Self::with_cluster(options, plan, upcase, cluster.into());
        }
        let least = u64::from(options.sector_size);
        let [smaller @ .., (_, last)] = &DEFAULTS;
        for &(largest, cluster) in smaller {
            if options.size.is_some_and(|size| size > largest) {
                continue;
            }
            let geometry = Self::with_cluster(options, plan, upcase, cluster.max(least));
            let fits = geometry.as_ref().is_ok_and(|at| at.volume <= largest);
            if fits || options.size.is_some() {
                return geometry;
            }
        }
        Self::with_cluster(options, plan, upcase, (*last).max(least))
    }

    fn with_cluster(
        options: &ExfatOptions,
        plan: &Plan,
        upcase: u64,
        cluster: u64,
    ) -> Result<Self, BuildError> {
        let fixed = upcase.div_ceil(cluster);
        let all = plan.all_clusters(cluster).ok_or_else(too_long)?;
        let fixed = fixed.checked_add(all).ok_or_else(too_long)?;
        let geometry = match options.size {
            Some(size) => Self::of_length(options, cluster, size)?,
            None => {
                let free = options.free.div_ceil(cluster);
                let wanted = fixed.checked_add(free).ok_or_else(too_long)?;
                Self::for_clusters(options, cluster, wanted)?
            }
        };
        let used = fixed.checked_add(geometry.bitmap_clusters);
        let used = used.ok_or_else(too_long)?;
        if used > u64::from(geometry.clusters) {
            let wanted = Self::for_clusters(options, cluster, fixed)?.volume;
            let volume = geometry.volume;
            return Err(cannot(format!(
                "its contents take {wanted} bytes, but the volume gets {volume}"
            )));
        }
        Ok(Self {
            upcase_clusters: upcase.div_ceil(cluster),
            used,
            ..geometry
        })
    }

    /// Returns a volume with `wanted` clusters besides the bitmap, or a few more.
    fn for_clusters(options: &ExfatOptions, cluster: u64, wanted: u64) -> Result<Self, BuildError> {
        let mut clusters = wanted;
        // The bitmap has bits for its own clusters.
        loop {
            let bitmap = clusters.div_ceil(8).div_ceil(cluster);
            let all = wanted.checked_add(bitmap).ok_or_else(too_long)?;
            if all <= clusters {
                break;
            }
            clusters = all;
        }
        if clusters > u64::from(MAX_CLUSTERS) {
            return Err(too_long());
        }
        let bytes = clusters.checked_mul(cluster).ok_or_else(too_long)?;
        let align = align(options, cluster, bytes);
        let heap = heap_at(options, align, clusters);
        let volume = heap.checked_add(bytes).ok_or_else(too_long)?;
        if volume < SMALLEST {
            return Self::of_length(options, cluster, SMALLEST);
        }
        Self::at(options, cluster, volume, align, clusters)
    }

    /// Returns a volume of length `len`, rounded down to sectors.
    fn of_length(options: &ExfatOptions, cluster: u64, len: u64) -> Result<Self, BuildError> {
        let sector = u64::from(options.sector_size);
        let volume = len / sector * sector;
        if volume < SMALLEST {
            return Err(cannot(format!(
                "a volume of {len} bytes; at least {SMALLEST} are needed"
            )));
        }
        let align = align(options, cluster, volume);
        if volume / cluster > u64::from(MAX_CLUSTERS) {
            return Err(too_long());
        }
        let fitting = |heap: u64| volume.saturating_sub(heap) / cluster;
        // The longest FAT covers clusters in the whole volume. A shorter FAT is used if it
        // suffices.
        let longest = heap_at(options, align, volume / cluster);
        let clusters = fitting(longest);
        let shorter = heap_at(options, align, clusters);
        if heap_at(options, align, fitting(shorter)) == shorter {
            Self::at(options, cluster, volume, align, fitting(shorter))
        } else {
            Self::at(options, cluster, volume, align, clusters).map(|at| Self {
                heap: longest,
                ..at
            })
        }
    }

    fn at(
        options: &ExfatOptions,
        cluster: u64,
        volume: u64,
        align: u64,
        clusters: u64,
    ) -> Result<Self, BuildError> {
        let sector = u64::from(options.sector_size);
        let heap = heap_at(options, align, clusters);
        let clusters = u32::try_from(clusters).map_err(|_| too_long())?;
        if clusters == 0 {
            return Err(cannot(format!(
                "a volume of {volume} bytes has no cluster of {cluster}"
            )));
        }
        if heap / sector > u64::from(u32::MAX) {
            return Err(too_long());
        }
        Ok(Self {
            sector,
            cluster,
            volume,
            fat: fat_at(options, align),
            fat_len: fat_len(sector, clusters.into()),
            heap,
            clusters,
            bitmap_clusters: u64::from(clusters).div_ceil(8).div_ceil(cluster),
            upcase_clusters: 0,
            used: 0,
        })
    }

    pub fn offset(&self, cluster: u32) -> u64 {
        self.heap + u64::from(cluster - FIRST_CLUSTER) * self.cluster
    }

    /// Returns the number of the cluster with index `index` in the heap.
    pub fn number(index: u64) -> u32 {
        // The heap has no more clusters than fit.
        FIRST_CLUSTER + u32::try_from(index).unwrap_or(u32::MAX)
    }

    pub fn root(&self) -> u32 {
        Self::number(self.bitmap_clusters + self.upcase_clusters)
    }
}

fn align(options: &ExfatOptions, cluster: u64, volume: u64) -> u64 {
    match options.align {
        Some(align) => align.into(),
        None if volume >= LARGE => LARGE_ALIGN.max(cluster),
        None => SMALL_ALIGN.max(cluster),
    }
}

fn fat_at(options: &ExfatOptions, align: u64) -> u64 {
    let boot = 2 * REGION_SECTORS * u64::from(options.sector_size);
    boot.next_multiple_of(align)
}

fn fat_len(sector: u64, clusters: u64) -> u64 {
    ((clusters + 2) * 4).next_multiple_of(sector)
}

fn heap_at(options: &ExfatOptions, align: u64, clusters: u64) -> u64 {
    let fat_len = fat_len(options.sector_size.into(), clusters);
    (fat_at(options, align) + fat_len).next_multiple_of(align)
}

fn too_long() -> BuildError {
    cannot(format!(
        "more than {MAX_CLUSTERS} clusters; use larger clusters"
    ))
}
