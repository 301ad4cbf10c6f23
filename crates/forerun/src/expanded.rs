//! Files that stand for other bytes: disks whose blocks have an order of their own, and compressed images.

use std::sync::Arc;

use forerun_disk::{Disk, DiskKind, Foreign, PROBE_LEN, Volume};
use forerun_io::{ReadAt, usize_from};
use forerun_vfs::{Error, Limits, Result};

use crate::payload::Container;

/// The bytes that a file stands for.
pub struct Expanded {
    pub container: Container,
    pub source: Arc<dyn ReadAt>,
    /// The volumes of UBI.
    pub volumes: Vec<Volume>,
}

impl Expanded {
    fn of(disk: Disk, source: Arc<dyn ReadAt>) -> Self {
        let container = match disk.kind {
            DiskKind::Ubi => Container::Ubi,
            _ => Container::AndroidSparse,
        };
        Self {
            container,
            volumes: disk.volumes.clone(),
            source: Arc::new(disk.over(source)),
        }
    }

    /// Returns the places where an image may be: offsets and lengths.
    pub fn places(&self) -> Vec<(u64, Option<u64>)> {
        let volumes = self.volumes.iter();
        match self.volumes.is_empty() {
            true => vec![(0, None)],
            false => volumes.map(|it| (it.offset, Some(it.len))).collect(),
        }
    }
}

/// Reads the start of a source, as far as it tells the kind of a disk.
fn head(source: &dyn ReadAt) -> Result<Vec<u8>> {
    let mut head = vec![0; PROBE_LEN.min(usize_from(source.len()))];
    let read = source.read_exact_at(0, &mut head);
    read.map_err(|error| Error::io(0, head.len(), error))?;
    Ok(head)
}

/// Opens the disk that `source`, whose map is read from `metadata`, begins with. Other bytes may follow.
///
/// # Errors
/// Those of [`Disk::read`].
pub fn disk(
    metadata: &dyn ReadAt,
    source: &Arc<dyn ReadAt>,
    limits: &Limits,
) -> Result<Option<Expanded>> {
    let disk = Disk::read(metadata, limits)?;
    Ok(disk.map(|disk| Expanded::of(disk, Arc::clone(source))))
}

/// Opens the disk that all of `source` is. Offsets in such a file are those in the disk.
///
/// # Errors
/// Those of [`Disk::read`]; [`Error::UnknownFormat`] for the disk of a virtual machine.
pub fn whole_disk(source: &Arc<dyn ReadAt>, limits: &Limits) -> Result<Option<Expanded>> {
    let head = head(source)?;
    if let Some(foreign) = Foreign::of(&head) {
        return Err(crate::identify::unknown(
            None,
            &head,
            Some(Container::VirtualDisk(foreign.name())),
            0,
        ));
    }
    let disk = whole(&head, source, limits)?;
    Ok(disk.map(|disk| Expanded::of(disk, Arc::clone(source))))
}

/// Reads the map of the disk that all of `source` is.
///
/// # Errors
/// Those of [`Disk::read`].
pub fn whole_map(source: &dyn ReadAt) -> Result<Option<Disk>> {
    whole(&head(source)?, source, &Limits::default())
}

/// Returns the length in which offsets of a file count: that of the disk, where the file is the map of one, else its own.
pub fn disk_len(source: &dyn ReadAt) -> u64 {
    let disk = whole_map(source).ok().flatten();
    disk.map_or_else(|| source.len(), |disk| disk.disk_len())
}

fn whole(head: &[u8], source: &dyn ReadAt, limits: &Limits) -> Result<Option<Disk>> {
    /// Bytes that may follow: less than an erase block, or what fills a sector.
    const REST: u64 = 16 << 20;
    if DiskKind::of(head).is_none() {
        return Ok(None);
    }
    let disk = Disk::read(source, limits)?;
    Ok(disk.filter(|disk| match disk.kind {
        DiskKind::AndroidSparse => source.len() - disk.stored_len < 4096,
        _ => source.len() - disk.stored_len < REST,
    }))
}

#[cfg(feature = "tar")]
pub use compressed::{decode, image_inside};

#[cfg(feature = "tar")]
mod compressed {
    use forerun_spans::{Compression, IndexOptions};

    use super::{Container, DiskKind, Expanded, PROBE_LEN, ReadAt, Result};
    use crate::identify::{find_format, probe_len};
    use crate::{OpenOptions, payload, spool};

    /// Returns the compression of a file that starts with `head`, if what it decodes to may be an image: a disk, a
    /// container, or of any format but that of archives, whose driver decodes them itself.
    pub fn image_inside(
        source: &dyn ReadAt,
        head: &[u8],
        wanted: Option<&str>,
    ) -> Option<Compression> {
        let compression = Compression::of(head)?;
        if wanted == Some("tar") {
            return None;
        }
        let len = probe_len().max(PROBE_LEN);
        // A stream that is damaged from its start on is reported by the driver of archives.
        let decoded = forerun_spans::head(source, compression, len).ok()?;
        let is_image = match find_format(&decoded, wanted) {
            Some(format) => format.name != "tar" || Compression::of(&decoded).is_some(),
            None => {
                wanted.is_some()
                    || DiskKind::of(&decoded).is_some()
                    || payload::may_contain(&decoded)
            }
        };
        is_image.then_some(compression)
    }

    /// Decodes all of a file.
    ///
    /// # Errors
    /// Those of [`forerun_spans::decode`].
    pub fn decode(
        source: &dyn ReadAt,
        compression: Compression,
        options: &OpenOptions,
    ) -> Result<Expanded> {
        let decode = IndexOptions {
            limits: options.limits.clone(),
            rescue: options.rescue,
            spool: options.spool.clone().or_else(spool::default),
            ..IndexOptions::default()
        };
        Ok(Expanded {
            container: Container::Compressed(compression.name()),
            source: forerun_spans::decode(source, compression, decode)?,
            volumes: Vec::new(),
        })
    }
}
