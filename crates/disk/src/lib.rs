//! Disks inside files, partition tables, executables, containers and firmware that contain images,
//! and the search for images in them.
//!
//! [`Disk::read`] reads the map of an Android sparse image or of a UBI flash dump, and
//! [`Disk::over`] reads the disk through the map. UBI volumes follow each other on that disk, like
//! partitions. Disks of virtual machines are only recognised ([`Foreign`]). [`partitions`] reads
//! MBR and GPT, [`payload`] finds images after executables and in SIF files, and [`scan`] searches
//! for images anywhere in a file.
//!
//! Every field of a map may be hostile: each number is checked before it is used, and
//! [`Limits::walk_bytes`](forerun_vfs::Limits::walk_bytes) bounds the memory.

mod container;
mod crc;
mod error;
mod expanded;
mod foreign;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod known;
mod map;
pub mod partitions;
pub mod payload;
pub mod scan;
mod sparse;
#[cfg(test)]
mod tests;
mod ubi;

use forerun_io::ReadAt;
use forerun_vfs::{Error, Limits, Result};

pub use container::Container;
pub use expanded::{Expanded, disk_len};
pub use foreign::Foreign;
pub use map::Mapped;

use map::Map;

/// Bytes at the start of a file that identify its kind.
pub const PROBE_LEN: usize = 68;

/// The kind of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskKind {
    AndroidSparse,
    /// Physical flash blocks that UBI manages.
    Ubi,
}

impl DiskKind {
    /// Returns the kind of a file that starts with `head`.
    #[must_use]
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            _ if sparse::is_header(head) => Some(Self::AndroidSparse),
            _ if ubi::is_header(head) => Some(Self::Ubi),
            _ => None,
        }
    }
}

impl From<DiskKind> for Container {
    fn from(kind: DiskKind) -> Self {
        match kind {
            DiskKind::AndroidSparse => Self::AndroidSparse,
            DiskKind::Ubi => Self::Ubi,
        }
    }
}

/// The map of a disk.
#[derive(Clone, Debug)]
pub struct Disk {
    pub kind: DiskKind,
    /// Length of the container in bytes of the file.
    pub stored_len: u64,
    /// The UBI volumes by number; empty for other disks.
    pub volumes: Vec<Volume>,
    map: Map,
}

/// A UBI volume, as a range of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Number, from 0.
    pub number: u32,
    pub name: Vec<u8>,
    /// Offset in the disk.
    pub offset: u64,
    pub len: u64,
    /// Its data never changes, and has checksums.
    pub is_static: bool,
    /// An update of the volume was interrupted.
    pub is_torn: bool,
}

impl Disk {
    /// Reads the map of the disk at the start of `source`. Returns `None` for other files.
    pub fn read(source: &dyn ReadAt, limits: &Limits) -> Result<Option<Self>> {
        let head = expanded::head(source)?;
        match DiskKind::of(&head) {
            Some(DiskKind::AndroidSparse) => sparse::open(source, limits).map(Some),
            Some(DiskKind::Ubi) => ubi::open(source, limits).map(Some),
            None => Ok(None),
        }
    }

    /// Returns the length of the disk in bytes.
    #[must_use]
    pub const fn disk_len(&self) -> u64 {
        self.map.len()
    }

    /// Returns the disk as a source. `source` is the file that this map came from.
    #[must_use]
    pub fn over<S: ReadAt>(self, source: S) -> Mapped<S> {
        Mapped::new(source, self.map)
    }
}

fn read(source: &dyn ReadAt, offset: u64, out: &mut [u8]) -> Result<()> {
    let read = source.read_exact_at(offset, out);
    read.map_err(|error| Error::io(offset, out.len(), error))
}
