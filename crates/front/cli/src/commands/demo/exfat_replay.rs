//! The writes with which Linux removed a file from an exFAT volume with dirsync, before a patch had each
//! sector written once: for each cluster, the sector of the bitmap that has its bit.
//!
//! The volume is one that the demo has just made: one file in the first cluster of the root directory, in
//! adjacent clusters. docs/formats/exfat.md has the structures.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

const SECTOR: u64 = 512;
/// Bytes of an entry of a directory.
const ENTRY: u64 = 32;
/// Types of entries: an allocation bitmap, a file.
const BITMAP: u8 = 0x81;
const FILE: u8 = 0x85;
/// The bit of a type that says that the entry is in use.
const IN_USE: u8 = 0x80;
/// Entries of a file with a short name: file, stream, name.
const SET: u64 = 3;
/// The byte of the boot sector with the flag VolumeDirty, and the flag.
const FLAGS: u64 = 106;
const VOLUME_DIRTY: u8 = 2;

/// A replay, as far as it came.
pub struct Replay {
    /// Writes that were made.
    pub written: u64,
    /// Writes that it takes.
    pub total: u64,
    /// The time for those that were made.
    pub time: Duration,
}

impl Replay {
    /// Removes the file of the volume at `path`, until patience ends.
    ///
    /// # Errors
    /// The errors of reading and writing; `InvalidData` where the volume is not as the demo makes it.
    pub fn run(path: &Path, patience: Duration) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        file.sync_all()?;
        let places = Places::find(&file)?;
        let mut replay = Self {
            written: 0,
            total: 1 + SET + places.clusters,
            time: Duration::ZERO,
        };
        let start = Instant::now();
        let mut held = Sector::default();
        for change in places.changes() {
            held.write(&file, &change)?;
            replay.written += 1;
            if start.elapsed() >= patience {
                break;
            }
        }
        replay.time = start.elapsed();
        Ok(replay)
    }
}

/// Bits to be set and cleared in a byte of the volume.
struct Change {
    at: u64,
    set: u8,
    clear: u8,
}

/// The sector that was written last.
struct Sector {
    start: Option<u64>,
    bytes: [u8; 512],
}

impl Default for Sector {
    fn default() -> Self {
        Self {
            start: None,
            bytes: [0; 512],
        }
    }
}

impl Sector {
    /// Makes a change durable: by a write of its sector, and a flush.
    fn write(&mut self, file: &File, change: &Change) -> io::Result<()> {
        let start = change.at - change.at % SECTOR;
        if self.start != Some(start) {
            file.read_exact_at(&mut self.bytes, start)?;
            self.start = Some(start);
        }
        let index = usize::try_from(change.at % SECTOR).unwrap_or(0);
        if let Some(byte) = self.bytes.get_mut(index) {
            *byte = (*byte | change.set) & !change.clear;
        }
        file.write_all_at(&self.bytes, start)?;
        file.sync_data()
    }
}

/// Where the volume has what the removal changes.
struct Places {
    /// The entries of the file.
    set: u64,
    /// The bitmap.
    bitmap: u64,
    /// The first cluster of the file, counted from 0.
    first: u64,
    /// Its clusters.
    clusters: u64,
}

impl Places {
    fn find(file: &File) -> io::Result<Self> {
        let mut boot = [0; 512];
        file.read_exact_at(&mut boot, 0)?;
        let heap = u64::from(u32_at(&boot, 88)?) * SECTOR;
        let cluster = SECTOR << byte_at(&boot, 109)?.min(25);
        let place = |number: u32| heap + u64::from(number.saturating_sub(2)) * cluster;
        let root = place(u32_at(&boot, 96)?);
        let mut entries = [0; 4096];
        file.read_exact_at(&mut entries, root)?;
        let (mut bitmap, mut set) = (None, None);
        for (entry, at) in entries.chunks_exact(32).zip((root..).step_by(32)) {
            match byte_at(entry, 0)? {
                BITMAP => bitmap = Some(place(u32_at(entry, 20)?)),
                FILE => set = Some(at),
                _ => {}
            }
        }
        let (Some(bitmap), Some(set)) = (bitmap, set) else {
            return Err(unexpected());
        };
        let mut stream = [0; 32];
        file.read_exact_at(&mut stream, set + ENTRY)?;
        let len = u64::from(u32_at(&stream, 24)?) | u64::from(u32_at(&stream, 28)?) << 32;
        Ok(Self {
            set,
            bitmap,
            first: u64::from(u32_at(&stream, 20)?.saturating_sub(2)),
            clusters: len.div_ceil(cluster),
        })
    }

    /// Returns the changes in the order of the Linux driver.
    fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        let dirty = Change {
            at: FLAGS,
            set: VOLUME_DIRTY,
            clear: 0,
        };
        let entries = (0..SET).map(|n| Change {
            at: self.set + n * ENTRY,
            set: 0,
            clear: IN_USE,
        });
        let bits = (self.first..self.first + self.clusters).map(|bit| Change {
            at: self.bitmap + bit / 8,
            set: 0,
            clear: 1 << (bit % 8),
        });
        std::iter::once(dirty).chain(entries).chain(bits)
    }
}

fn byte_at(bytes: &[u8], at: usize) -> io::Result<u8> {
    bytes.get(at).copied().ok_or_else(unexpected)
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let bytes = bytes.get(at..).and_then(|rest| rest.first_chunk());
    bytes
        .map(|bytes| u32::from_le_bytes(*bytes))
        .ok_or_else(unexpected)
}

fn unexpected() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        "not the volume that the demo has made",
    )
}
