//! One bit for each cluster of a volume: what is known of all of them must not take more.

use forerun_io::saturating_usize;
use forerun_vfs::{Bound, Error, Result};

use crate::chain::Chain;
use crate::ondisk::FIRST_CLUSTER;

/// A set of clusters.
pub struct Bits {
    bytes: Vec<u8>,
    clusters: u32,
}

impl Bits {
    /// No cluster of a volume that has so many.
    ///
    /// # Errors
    /// `Limit` where memory is shorter than the volume's own bitmap.
    pub fn new(clusters: u32) -> Result<Self> {
        let len = u64::from(clusters.div_ceil(8));
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(saturating_usize(len)).is_err() {
            return Err(Error::limit(
                Bound::Other,
                "bytes of the allocation bitmap",
                len,
            ));
        }
        bytes.resize(saturating_usize(len), 0);
        Ok(Self { bytes, clusters })
    }

    /// Returns whether a cluster is in it; never one that the volume does not have.
    pub fn has(&self, cluster: u32) -> bool {
        let (byte, mask) = place(cluster);
        self.bytes.get(byte).is_some_and(|bits| bits & mask != 0)
    }

    /// Adds a cluster.
    pub fn set(&mut self, cluster: u32) {
        let (byte, mask) = place(cluster);
        if let Some(bits) = self.bytes.get_mut(byte) {
            *bits |= mask;
        }
    }

    /// Takes a cluster out.
    pub fn clear(&mut self, cluster: u32) {
        let (byte, mask) = place(cluster);
        if let Some(bits) = self.bytes.get_mut(byte) {
            *bits &= !mask;
        }
    }

    /// Adds the clusters of a chain.
    pub fn set_all(&mut self, chain: &Chain) {
        clusters(chain).for_each(|cluster| self.set(cluster));
    }

    /// The byte of eight clusters.
    pub fn byte(&self, index: u64) -> u8 {
        let byte = self.bytes.get(saturating_usize(index));
        byte.copied().unwrap_or(0)
    }

    /// All clusters of the volume, in it or not.
    pub const fn all(&self) -> std::ops::Range<u32> {
        FIRST_CLUSTER..FIRST_CLUSTER.saturating_add(self.clusters)
    }
}

/// The clusters of a chain, in its order.
pub fn clusters(chain: &Chain) -> impl Iterator<Item = u32> {
    let runs = chain.runs().iter();
    runs.flat_map(|run| run.cluster..run.cluster.saturating_add(run.count))
}

fn place(cluster: u32) -> (usize, u8) {
    // Cluster 0 and 1 are none: far behind the end.
    let index = cluster.checked_sub(FIRST_CLUSTER).unwrap_or(u32::MAX);
    (saturating_usize((index / 8).into()), 1 << (index % 8))
}
