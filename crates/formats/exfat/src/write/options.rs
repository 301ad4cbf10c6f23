use forerun_build::BuildError;

use super::cannot;
use crate::name;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExfatOptions {
    /// Length of the volume in bytes. The default is the length that the tree needs, and
    /// [`free`](Self::free).
    pub size: Option<u64>,
    /// Free bytes to add if no length is given.
    pub free: u64,
    /// Cluster size in bytes: a power of two from a sector to 32 MiB. The default is 4 KiB for
    /// volumes up to 256 MiB, 32 KiB up to 32 GiB, 128 KiB above.
    pub cluster_size: Option<u32>,
    /// Sector size in bytes: a power of two from 512 to 4096.
    pub sector_size: u32,
    /// Alignment of the FAT and of the clusters in bytes: a power of two. The default is 1 MiB for
    /// volumes of 64 MiB and more, and a cluster or 4 KiB for smaller ones.
    pub align: Option<u32>,
    /// Volume label, at most 11 UTF-16 units.
    pub label: Vec<u8>,
    /// Serial number. The default derives from names, lengths and times.
    pub serial: Option<u32>,
    /// Volume GUID. There is none by default.
    pub guid: Option<[u8; 16]>,
    /// Allow names that end with dots. Linux finds them only with a mount option.
    pub keep_last_dots: bool,
    /// Exclude zeros at the end of files from `ValidDataLength`, so that they need not be written.
    /// Linux before 6.8 shows such files without these zeros.
    pub sparse_tails: bool,
}

impl Default for ExfatOptions {
    fn default() -> Self {
        Self {
            size: None,
            free: 0,
            cluster_size: None,
            sector_size: 512,
            align: None,
            label: Vec::new(),
            serial: None,
            guid: None,
            keep_last_dots: false,
            sparse_tails: false,
        }
    }
}

impl ExfatOptions {
    /// Checks the options without regard to a tree. The error names the option and its range.
    pub fn validate(&self) -> Result<(), BuildError> {
        let power = |value: u32, low: u32, high: u32| {
            value.is_power_of_two() && (low..=high).contains(&value)
        };
        if !power(self.sector_size, 512, 4096) {
            let found = self.sector_size;
            return Err(cannot(format!(
                "sectors of {found} bytes; 512, 1024, 2048 and 4096 are possible"
            )));
        }
        if let Some(found) = self.cluster_size
            && !power(found, self.sector_size, 32 << 20)
        {
            let low = self.sector_size;
            return Err(cannot(format!(
                "clusters of {found} bytes; powers of two from a sector of {low} bytes to 32 MiB are \
                 possible"
            )));
        }
        if let Some(found) = self.align
            && !power(found, self.sector_size, 1 << 30)
        {
            return Err(cannot(format!(
                "an alignment to {found} bytes; powers of two from a sector to 1 GiB are possible"
            )));
        }
        name::for_label(&self.label).map_err(|error| cannot(format!("volume label: {error}")))?;
        Ok(())
    }
}
