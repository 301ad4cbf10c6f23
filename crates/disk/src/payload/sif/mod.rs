//! SIF, the Singularity Image Format: a header, a table of descriptors, and the objects that they
//! describe.
//!
//! The reader uses the partitions, and the index and blobs of a container image (OCI-SIF). All
//! numbers are little-endian, and nothing is padded.

mod write;

use std::collections::HashMap;

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Bound, Error, Result};

use super::error::Check;
use super::{HEAD, Payload, corrupt, read};
use crate::Container;

pub use write::{NewSif, ZERO_TIME, architectures};

/// Follows the launch script of 32 bytes.
const MAGIC: &[u8; 10] = b"SIF_MAGIC\0";
const MAGIC_AT: usize = 32;
const VERSION_AT: usize = 42;
const VERSION: &[u8; 3] = b"01\0";
/// Offset of the architecture of the primary partition.
const ARCH_AT: usize = 45;
/// The architecture in a file without a primary partition.
const NO_ARCH: &[u8; 3] = b"00\0";
/// Length of the header.
const HEADER: usize = 128;
/// Length of a descriptor.
const DESCRIPTOR: usize = 585;
/// Descriptors per read.
const STEP: u64 = 64;
/// Maximum number of descriptors of a file. Tools create files with space for 48.
const MAX_DESCRIPTORS: u64 = 65_536;

/// Type of a partition's descriptor.
const PARTITION: u32 = 0x4004;
/// Type of the descriptor of a container image's index.
const ROOT_INDEX: u32 = 0x400A;
/// Type of the descriptor of a container image's blob.
const BLOB: u32 = 0x400B;
/// Type of the partition with the root filesystem.
const PRIMARY_SYSTEM: u32 = 2;
/// Type of a partition with changes of the root filesystem.
const OVERLAY: u32 = 4;
/// Offset of the descriptor's fields for its kind of object.
const EXTRA: usize = 201;
/// Length of a digest: the name of SHA-256 and the digits.
const DIGEST: usize = 71;

/// Checks only the magic number.
#[must_use]
pub fn is_sif(head: &[u8]) -> bool {
    head.get(MAGIC_AT..)
        .is_some_and(|rest| rest.starts_with(MAGIC))
}

/// Returns whether a file that starts with `head` is a SIF file without a primary partition, as
/// those with a container image are.
#[must_use]
pub fn may_hold_layers(head: &[u8]) -> bool {
    is_sif(head)
        && head
            .get(ARCH_AT..)
            .is_some_and(|rest| rest.starts_with(NO_ARCH))
}

/// The objects of a SIF file.
#[derive(Clone, Debug)]
pub struct Sif {
    len: u64,
    partitions: Vec<Partition>,
    index: Option<Place>,
    blobs: HashMap<String, Place>,
}

/// An object of a SIF file, and the offset of its descriptor. The object may lie outside of the
/// file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    offset: u64,
    size: u64,
    descriptor: u64,
}

/// A partition with changes of the root filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SifOverlay {
    /// Number of the object.
    pub id: u32,
    pub offset: u64,
    pub size: u64,
}

impl Sif {
    /// Reads the descriptors. Returns `None` for other files.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged file, [`Error::Unsupported`] for another version,
    /// [`Error::Io`].
    pub fn read(file: &dyn ReadAt) -> Result<Option<Self>> {
        let head = read(file, 0, HEAD.min(usize_from(file.len())))?;
        if is_sif(&head) {
            Self::parse(file, &head).map(Some)
        } else {
            Ok(None)
        }
    }

    pub(super) fn parse(file: &dyn ReadAt, head: &[u8]) -> Result<Self> {
        let len = file.len();
        let table = DescriptorTable::parse(head, len)?;
        let mut sif = Self {
            len,
            partitions: Vec::new(),
            index: None,
            blobs: HashMap::new(),
        };
        let mut at = 0;
        while at < table.count {
            let count = STEP.min(table.count - at);
            // No overflow: the table lies inside the file.
            let offset = table.offset + at * u64_from(DESCRIPTOR);
            let bytes = read(file, offset, usize_from(count) * DESCRIPTOR)?;
            for (bytes, index) in bytes.chunks_exact(DESCRIPTOR).zip(at..) {
                sif.add(bytes, table.offset + index * u64_from(DESCRIPTOR))?;
            }
            at += count;
        }
        Ok(sif)
    }

    /// Adds the object of a descriptor, if the reader uses its kind.
    fn add(&mut self, bytes: &[u8], descriptor: u64) -> Result<()> {
        let is_used = bytes.get(4).is_some_and(|&used| used != 0);
        if !is_used {
            return Ok(());
        }
        let place = Place {
            offset: word(bytes, 17),
            size: word(bytes, 25),
            descriptor,
        };
        match half(bytes, 0) {
            PARTITION => self.partitions.push(Partition {
                place,
                id: half(bytes, 5),
                group: half(bytes, 9),
                filesystem: half(bytes, EXTRA),
                kind: half(bytes, EXTRA + 4),
            }),
            ROOT_INDEX if self.index.is_some() => {
                return Err(corrupt("SIF", descriptor, Check::SifIndexes));
            }
            ROOT_INDEX => self.index = Some(place),
            BLOB => {
                let digest = bytes.get(EXTRA..EXTRA + DIGEST).unwrap_or_default();
                // Blobs are looked up by digest, so one with another kind of digest is never used.
                if let Ok(digest) = std::str::from_utf8(digest) {
                    // Of two blobs with one digest, the first counts.
                    self.blobs.entry(digest.to_string()).or_insert(place);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether the file contains a container image.
    #[must_use]
    pub const fn is_container_image(&self) -> bool {
        self.index.is_some()
    }

    /// Returns offset and size of the index of the container image. Fails with [`Error::Corrupt`]
    /// if it lies outside of the file.
    pub fn index(&self) -> Result<Option<(u64, u64)>> {
        let place = self.index.as_ref();
        place.map(|place| self.part("the index", place)).transpose()
    }

    /// Returns offset and size of the blob of the container image that has this digest
    /// (`sha256:...`) according to its descriptor.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if it lies outside of the file.
    pub fn blob(&self, digest: &str) -> Result<Option<(u64, u64)>> {
        let place = self.blobs.get(digest);
        place.map(|place| self.part("the blob", place)).transpose()
    }

    fn part(&self, what: &'static str, place: &Place) -> Result<(u64, u64)> {
        inside(what, place.offset, place.size, self.len, place.descriptor)?;
        Ok((place.offset, place.size))
    }

    /// Returns the partition that holds the root filesystem: the one marked as primary, or the only
    /// one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for one outside of the file, [`Error::Unsupported`] if there is none, or
    /// more than one.
    pub fn root(&self) -> Result<Payload> {
        self.root_partition()?.payload(self.len)
    }

    fn root_partition(&self) -> Result<&Partition> {
        let primary: Vec<_> = self
            .partitions
            .iter()
            .filter(|it| it.is_primary())
            .collect();
        let (found, what) = if primary.is_empty() {
            let all = self.partitions.iter().collect();
            (all, "partitions and no primary one")
        } else {
            (primary, "primary system partitions")
        };
        match *found {
            [only] => Ok(only),
            [] if self.is_container_image() => Err(Error::Unsupported(
                "a container image in a SIF file that is no file of its own".to_string(),
            )),
            [] => Err(Error::Unsupported(
                "a SIF file without a partition".to_string(),
            )),
            [..] => {
                let count = found.len();
                Err(Error::Unsupported(format!(
                    "a SIF file with {count} {what}: an offset tells which is meant"
                )))
            }
        }
    }

    /// Returns the partitions with changes of the root filesystem, the lowest first: the first in
    /// the file is the uppermost, as for Singularity. Those of another group of objects belong to
    /// other partitions.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for one outside of the file, and the errors of [`root`](Self::root).
    pub fn overlays(&self) -> Result<Vec<SifOverlay>> {
        let root = self.root_partition()?;
        let overlays = self.partitions.iter().rev().filter(|it| {
            let belongs = root.group_number() == 0 || it.group_number() == root.group_number();
            it.kind == OVERLAY && belongs && *it != root
        });
        let overlays = overlays.map(|it| {
            let (offset, size) = self.part("the overlay partition", &it.place)?;
            let id = it.id;
            Ok(SifOverlay { id, offset, size })
        });
        overlays.collect()
    }
}

/// The location of the descriptors, inside the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DescriptorTable {
    offset: u64,
    count: u64,
}

impl DescriptorTable {
    fn parse(head: &[u8], len: u64) -> Result<Self> {
        let Some(head) = head.get(..HEADER) else {
            let need = u64_from(HEADER);
            return Err(corrupt("SIF", 0, Check::Short { len, need }));
        };
        let version = &head[VERSION_AT..];
        if !version.starts_with(VERSION) {
            let version = version[..2].escape_ascii();
            return Err(Error::Unsupported(format!(
                "a SIF file of version {version}; this reads 01"
            )));
        }
        let (count, offset, size) = (word(head, 88), word(head, 96), word(head, 104));
        if count > MAX_DESCRIPTORS {
            return Err(Error::limit(
                Bound::Other,
                "descriptors of the SIF file",
                MAX_DESCRIPTORS,
            ));
        }
        let need = count * u64_from(DESCRIPTOR);
        if need > size {
            return Err(corrupt("SIF", 88, Check::SifRoom { count, need, size }));
        }
        inside("the table of descriptors", offset, size, len, 96)?;
        Ok(Self { offset, count })
    }
}

/// A partition from its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Partition {
    place: Place,
    id: u32,
    group: u32,
    filesystem: u32,
    kind: u32,
}

impl Partition {
    const fn is_primary(&self) -> bool {
        self.kind == PRIMARY_SYSTEM
    }

    /// Returns the number of the partition's group. The upper four bits mark group numbers.
    const fn group_number(&self) -> u32 {
        self.group & 0x0fff_ffff
    }

    fn payload(&self, len: u64) -> Result<Payload> {
        let Place {
            offset,
            size,
            descriptor,
        } = self.place;
        inside("the partition", offset, size, len, descriptor)?;
        if size == 0 {
            return Err(corrupt("SIF", descriptor, Check::SifEmpty));
        }
        let refuse = |what: &str| {
            Err(Error::Unsupported(format!(
                "a SIF file whose partition is {what}"
            )))
        };
        match self.filesystem {
            // SquashFS, or raw, which means any format.
            1 | 4 => Ok(Payload {
                container: Container::Sif,
                offset,
                size: Some(size),
            }),
            2 => refuse("ext3"),
            3 => refuse("an archive of an immutable object"),
            5 => refuse("an encrypted SquashFS image"),
            other => refuse(&format!("of filesystem type {other}")),
        }
    }
}

fn inside(what: &'static str, offset: u64, size: u64, len: u64, at: u64) -> Result<()> {
    // Numbers are signed in the format. Negative ones exceed every file length.
    match offset.checked_add(size) {
        Some(end) if end <= len => Ok(()),
        _ => {
            let check = Check::Outside {
                what,
                offset,
                size,
                len,
            };
            Err(corrupt("SIF", at, check))
        }
    }
}

/// Reads a 64-bit number; 0 if bytes are missing, which callers exclude.
fn word(bytes: &[u8], at: usize) -> u64 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
