//! A bit set with one bit per cluster of a volume. A repair cannot afford more memory per cluster.

use forerun_io::usize_from;
use forerun_vfs::{Bound, Error, Result};

use crate::chain::Chain;
use crate::ondisk::FIRST_CLUSTER;
use crate::volume::Volume;

/// A set of clusters.
pub struct Bits {
    bytes: Vec<u8>,
    clusters: u32,
}

impl Bits {
    /// Returns an empty set for a volume with `clusters` clusters. Fails with `Limit` if the bitmap
    /// does not fit into memory.
    pub fn new(clusters: u32) -> Result<Self> {
        let len = u64::from(clusters.div_ceil(8));
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(usize_from(len)).is_err() {
            return Err(Error::limit(
                Bound::Other,
                "bytes of the allocation bitmap",
                len,
            ));
        }
        bytes.resize(usize_from(len), 0);
        Ok(Self { bytes, clusters })
    }

    /// Returns the clusters that the allocation bitmap marks used. Clusters of a part that is
    /// missing are not marked.
    pub fn marked(volume: &Volume) -> Result<Self> {
        let mut marked = Self::new(volume.boot.clusters)?;
        volume.read_chain(&volume.bitmap, 0, &mut marked.bytes)?;
        Ok(marked)
    }

    /// Returns whether a cluster is in the set. False for numbers outside of the volume.
    pub fn has(&self, cluster: u32) -> bool {
        place(cluster).is_some_and(|(byte, mask)| {
            let bits = self.bytes.get(byte);
            bits.is_some_and(|bits| bits & mask != 0)
        })
    }

    pub fn set(&mut self, cluster: u32) {
        if let Some((byte, mask)) = place(cluster) {
            self.bytes[byte] |= mask;
        }
    }

    pub fn clear(&mut self, cluster: u32) {
        if let Some((byte, mask)) = place(cluster) {
            self.bytes[byte] &= !mask;
        }
    }

    pub fn set_all(&mut self, chain: &Chain) {
        clusters(chain).for_each(|cluster| self.set(cluster));
    }

    /// Returns a byte with the bits of eight clusters.
    pub fn byte(&self, index: u64) -> u8 {
        self.bytes[usize_from(index)]
    }

    /// Returns all clusters of the volume, in the set or not.
    pub const fn all(&self) -> std::ops::Range<u32> {
        FIRST_CLUSTER..FIRST_CLUSTER + self.clusters
    }
}

/// Returns the clusters of a chain in order.
pub fn clusters(chain: &Chain) -> impl Iterator<Item = u32> {
    let runs = chain.runs().iter();
    runs.flat_map(|run| run.cluster..run.cluster + run.count)
}

fn place(cluster: u32) -> Option<(usize, u8)> {
    let index = cluster.checked_sub(FIRST_CLUSTER)?;
    Some((usize_from((index / 8).into()), 1 << (index % 8)))
}
