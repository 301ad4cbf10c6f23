//! Devices in layers: shared bytes, and the sectors in which a device differs.
//!
//! A crash state differs from the image in some dozens of sectors. Copying the image for each would
//! take milliseconds, so a state is a reference to the bytes, a reference to the layer of durable
//! sectors, and its own layer. The hash of a state is the XOR of the hashes of the sectors that
//! differ from the bytes, so it can be updated per changed sector, in any order.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::{BlockDevice, ReadAt, Unpoisoned, past_end, u64_from, usize_from};

/// The smallest sector of any device, in bytes. It is written whole or not at all.
pub const SECTOR: usize = 512;

/// The bytes of a sector, with their hash.
#[derive(Clone, PartialEq, Eq)]
pub struct Sector {
    pub(super) bytes: Arc<[u8; SECTOR]>,
    pub(super) hash: u128,
}

impl Sector {
    pub fn new(index: u64, bytes: [u8; SECTOR]) -> Self {
        Self {
            hash: hash(index, &bytes),
            bytes: Arc::new(bytes),
        }
    }
}

impl fmt::Debug for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sector({:032x})", self.hash)
    }
}

fn hash(index: u64, bytes: &[u8]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&index.to_le_bytes());
    hasher.update(bytes);
    first_16(hasher.finalize().as_bytes())
}

fn first_16(bytes: &[u8; 32]) -> u128 {
    let (head, _) = bytes.split_at(16);
    u128::from_le_bytes(head.try_into().expect("16 bytes"))
}

pub(super) type Layer = BTreeMap<u64, Sector>;

#[derive(Clone)]
pub struct Snapshot {
    base: Arc<[u8]>,
    base_hash: u128,
    layer: Arc<Layer>,
    hash: u128,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("len", &self.base.len())
            .field("changed_sectors", &self.layer.len())
            .field("hash", &format_args!("{:032x}", self.hash))
            .finish()
    }
}

impl Snapshot {
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        let base: Arc<[u8]> = bytes.into();
        assert_eq!(base.len() % SECTOR, 0, "a device is whole sectors");
        let base_hash = first_16(blake3::hash(&base).as_bytes());
        Self {
            base,
            base_hash,
            layer: Arc::default(),
            hash: base_hash,
        }
    }

    pub fn len(&self) -> u64 {
        u64_from(self.base.len())
    }

    pub fn is_empty(&self) -> bool {
        self.base.is_empty()
    }

    /// Returns a hash, which is equal for equal bytes.
    pub const fn hash(&self) -> u128 {
        self.hash
    }

    /// Returns the bytes from which it was made.
    pub const fn base(&self) -> &Arc<[u8]> {
        &self.base
    }

    /// Iterates in order over the sectors that differ from the original bytes.
    pub fn changed(&self) -> impl Iterator<Item = (u64, &[u8; SECTOR])> {
        self.layer.iter().map(|(&index, at)| (index, &*at.bytes))
    }

    /// Creates a device that starts with these bytes and keeps its changes to itself.
    pub fn device(&self) -> CowDevice {
        CowDevice {
            below: self.clone(),
            upper: Mutex::default(),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.base.to_vec();
        for (index, sector) in self.changed() {
            let start = usize_from(index) * SECTOR;
            bytes[start..start + SECTOR].copy_from_slice(sector);
        }
        bytes
    }

    /// Returns the snapshot with these sectors. Sectors equal to the base are not stored.
    pub(super) fn with(&self, sectors: impl IntoIterator<Item = (u64, Sector)>) -> Self {
        let mut layer = (*self.layer).clone();
        let mut hash = self.hash;
        for (index, sector) in sectors {
            hash ^= self.change(&layer, index, &sector);
            layer.insert(index, sector);
        }
        Self {
            base: Arc::clone(&self.base),
            base_hash: self.base_hash,
            layer: Arc::new(layer),
            hash,
        }
    }

    /// Returns the XOR difference of the device's hash when sector `index` becomes `sector`.
    pub(super) fn hash_change(&self, index: u64, sector: &Sector) -> u128 {
        self.change(&self.layer, index, sector)
    }

    fn change(&self, layer: &Layer, index: u64, sector: &Sector) -> u128 {
        let before = layer.get(&index);
        self.weight(index, before) ^ self.weight(index, Some(sector))
    }

    /// Returns the weight of a sector in the hash: 0 if it equals the base.
    fn weight(&self, index: u64, sector: Option<&Sector>) -> u128 {
        match sector {
            Some(sector) if sector.bytes[..] != self.base_sector(index)[..] => sector.hash,
            _ => 0,
        }
    }

    fn base_sector(&self, index: u64) -> &[u8] {
        let start = usize_from(index) * SECTOR;
        &self.base[start..start + SECTOR]
    }

    pub(super) fn sector(&self, index: u64) -> [u8; SECTOR] {
        match self.layer.get(&index) {
            Some(sector) => *sector.bytes,
            None => self.base_sector(index).try_into().expect("a sector"),
        }
    }
}

impl ReadAt for Snapshot {
    fn len(&self) -> u64 {
        self.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        let start = usize_from(offset);
        out.copy_from_slice(&self.base[start..start + out.len()]);
        patch(&self.layer, offset, out);
        Ok(())
    }
}

/// Overwrites `out`, which starts at `offset`, with the sectors of `layer`.
fn patch(layer: &Layer, offset: u64, out: &mut [u8]) {
    if out.is_empty() || layer.is_empty() {
        return;
    }
    let end = offset + u64_from(out.len());
    let sector_len = u64_from(SECTOR);
    for (&index, sector) in layer.range(offset / sector_len..end.div_ceil(sector_len)) {
        let at = index * sector_len;
        let (from, to) = (at.max(offset), (at + sector_len).min(end));
        let part = usize_from(from - at)..usize_from(to - at);
        out[usize_from(from - offset)..usize_from(to - offset)]
            .copy_from_slice(&sector.bytes[part]);
    }
}

/// A device over a [`Snapshot`], which it does not change.
#[derive(Debug)]
pub struct CowDevice {
    below: Snapshot,
    upper: Mutex<Layer>,
}

impl CowDevice {
    pub fn snapshot(&self) -> Snapshot {
        let upper = self.upper();
        self.below
            .with(upper.iter().map(|(&index, at)| (index, at.clone())))
    }

    fn upper(&self) -> MutexGuard<'_, Layer> {
        self.upper.lock().unpoisoned()
    }
}

impl ReadAt for CowDevice {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.below.read_exact_at(offset, out)?;
        patch(&self.upper(), offset, out);
        Ok(())
    }
}

impl BlockDevice for CowDevice {
    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        past_end(offset, data.len(), self.len())?;
        let mut upper = self.upper();
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let index = at / u64_from(SECTOR);
            let skip = usize_from(at % u64_from(SECTOR));
            let (part, later) = rest.split_at(rest.len().min(SECTOR - skip));
            let mut bytes = match upper.get(&index) {
                Some(sector) => *sector.bytes,
                None => self.below.sector(index),
            };
            bytes[skip..skip + part.len()].copy_from_slice(part);
            upper.insert(index, Sector::new(index, bytes));
            at += u64_from(part.len());
            rest = later;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}
