//! Files whose contents must be mapped or decoded: disks with a block map, and compressed images.

use std::sync::Arc;

use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Error, Limits, Result};

use crate::{Container, Disk, DiskKind, PROBE_LEN, Volume};

pub struct Expanded {
    pub container: Container,
    pub source: Arc<dyn ReadAt>,
    /// The volumes of a UBI flash; empty for other kinds.
    pub volumes: Vec<Volume>,
}

impl Expanded {
    fn of(disk: Disk, source: &Arc<dyn ReadAt>) -> Self {
        Self {
            container: disk.kind.into(),
            volumes: disk.volumes.clone(),
            source: Arc::new(disk.over(Arc::clone(source))),
        }
    }

    /// Opens the disk at the start of `source`, with the map read from `metadata`. Other bytes may
    /// follow the disk.
    pub fn first(
        metadata: &dyn ReadAt,
        source: &Arc<dyn ReadAt>,
        limits: &Limits,
    ) -> Result<Option<Self>> {
        let disk = Disk::read(metadata, limits)?;
        Ok(disk.map(|disk| Self::of(disk, source)))
    }

    /// Opens the disk that fills `source`. Offsets that users give for such a file refer to the
    /// disk.
    pub fn whole(source: &Arc<dyn ReadAt>, limits: &Limits) -> Result<Option<Self>> {
        let disk = whole(&**source, limits)?;
        Ok(disk.map(|disk| Self::of(disk, source)))
    }

    /// Returns the offset and length of each range where an image may be.
    #[must_use]
    pub fn places(&self) -> Vec<(u64, Option<u64>)> {
        if self.volumes.is_empty() {
            return vec![(0, None)];
        }
        let volumes = self.volumes.iter();
        volumes.map(|it| (it.offset, Some(it.len))).collect()
    }
}

/// Reads the map of the disk that fills `source`.
pub fn whole_map(source: &dyn ReadAt) -> Result<Option<Disk>> {
    whole(source, &Limits::default())
}

/// Returns the length of the disk if the file is a map of one, otherwise the length of the file.
/// Offsets given by users refer to it.
#[must_use]
pub fn disk_len(source: &dyn ReadAt) -> u64 {
    let disk = whole_map(source).ok().flatten();
    disk.map_or_else(|| source.len(), |disk| disk.disk_len())
}

/// Reads the start of a source, which identifies the kind of disk.
pub fn head(source: &dyn ReadAt) -> Result<Vec<u8>> {
    let mut head = vec![0; PROBE_LEN.min(usize_from(source.len()))];
    let read = source.read_exact_at(0, &mut head);
    read.map_err(|error| Error::io(0, head.len(), error))?;
    Ok(head)
}

fn whole(source: &dyn ReadAt, limits: &Limits) -> Result<Option<Disk>> {
    /// Bytes that may follow the disk: less than an erase block, or the padding of a sector.
    const REST: u64 = 16 << 20;
    let disk = Disk::read(source, limits)?;
    Ok(disk.filter(|disk| match disk.kind {
        DiskKind::AndroidSparse => source.len() - disk.stored_len < 4096,
        DiskKind::Ubi => source.len() - disk.stored_len < REST,
    }))
}
