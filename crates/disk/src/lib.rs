//! Disks inside files, partition tables, executables, containers and firmware that hold images, and
//! the search for images in them.
//!
//! [`Disk::read`] reads the map of an Android sparse image or of a UBI flash dump, and
//! [`Disk::over`] shows the disk as a source. The volumes of UBI follow each other on that disk,
//! like partitions. Containers of virtual machines are only recognised ([`Foreign`]).
//! [`partitions`] reads MBR and GPT, [`payload`] finds images after executables and in SIF files,
//! and [`scan`] looks for images of the given formats anywhere in a file.
//!
//! Every field of a map is hostile: each number is checked before it is used, and memory is bounded by
//! [`Limits::walk_bytes`](forerun_vfs::Limits::walk_bytes).

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

/// Bytes from the start of a file that identify its kind.
pub const PROBE_LEN: usize = 68;

/// The kind of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskKind {
    /// An Android sparse image.
    AndroidSparse,
    /// The physical blocks of flash that UBI manages.
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
    /// The kind of container.
    pub kind: DiskKind,
    /// Bytes of the file that the container takes.
    pub stored_len: u64,
    /// The volumes of UBI, by number; empty for other disks.
    pub volumes: Vec<Volume>,
    map: Map,
}

/// A volume of UBI, as a part of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its number, from 0 on.
    pub number: u32,
    pub name: Vec<u8>,
    /// Offset in the disk.
    pub offset: u64,
    pub len: u64,
    /// Whether its data never changes, and has checksums.
    pub is_static: bool,
    /// Whether an update of it was interrupted.
    pub is_torn: bool,
}

impl Disk {
    /// Reads the map of the disk at the start of `source`. Returns `None` for other files.
    ///
    /// # Errors
    /// [`Error::Corrupt`], [`Error::Limit`] for a map that takes too much memory, [`Error::Io`].
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

    /// Returns the disk as a source. `source` is the file that this map was read from.
    #[must_use]
    pub fn over<S: ReadAt>(self, source: S) -> Mapped<S> {
        Mapped::new(source, self.map)
    }
}

fn read(source: &dyn ReadAt, offset: u64, out: &mut [u8]) -> Result<()> {
    let read = source.read_exact_at(offset, out);
    read.map_err(|error| Error::io(offset, out.len(), error))
}
