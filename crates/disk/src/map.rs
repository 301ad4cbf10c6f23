//! The map of a disk, and a source that reads the disk through its map.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use forerun_io::{Pattern, ReadAt, past_end, u64_from, usize_from};
use forerun_vfs::{Held, Result};

use crate::crc::crc;

/// A range of the disk with one kind of contents.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    range: Range<u64>,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the file, at this offset.
    Stored(u64),
    /// In the file, with a checksum over the whole range.
    Summed { offset: u64, crc: u32 },
    /// These bytes, repeated.
    Fill([u8; 4]),
    /// Missing, although the file should contain it.
    Missing,
}

/// The ranges of a disk in order. Gaps between them read as fill.
#[derive(Clone, Debug)]
pub struct Map {
    runs: Vec<Run>,
    len: u64,
    gap: [u8; 4],
}

impl Map {
    pub const fn new(gap: [u8; 4]) -> Self {
        Self {
            runs: Vec::new(),
            len: 0,
            gap,
        }
    }

    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Makes the disk longer. The added range reads as fill.
    pub fn extend(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Adds a range, which begins at or after the end of the last one. Merges the two if both are
    /// stored and contiguous.
    pub fn add(&mut self, range: Range<u64>, place: Place, held: &mut Held) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        self.extend(range.end);
        if let (Some(last), Place::Stored(offset)) = (self.runs.last_mut(), place)
            && let Place::Stored(before) = last.place
            && last.range.end == range.start
            && before + (last.range.end - last.range.start) == offset
        {
            last.range.end = range.end;
            return Ok(());
        }
        held.add(size_of::<Run>())?;
        self.runs.push(Run { range, place });
        Ok(())
    }

    /// Returns the offset of the first byte at or after `at` that is in the file, or `None` if only
    /// fill follows.
    fn next_stored(&self, at: u64) -> Option<u64> {
        let first = self.runs.partition_point(|run| run.range.end <= at);
        let mut behind = self.runs[first..].iter();
        let run = behind.find(|run| !matches!(run.place, Place::Fill(_)))?;
        Some(run.range.start.max(at))
    }

    /// Visits the parts of a range in order, each with the location of its first byte and the index
    /// of its map entry.
    fn visit<E>(
        &self,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, Place, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = range.start;
        let first = self.runs.partition_point(|run| run.range.end <= at);
        for (index, run) in self.runs.iter().enumerate().skip(first) {
            if at >= range.end || run.range.start >= range.end {
                break;
            }
            if at < run.range.start {
                visit(at..run.range.start, Place::Fill(self.gap), index)?;
                at = run.range.start;
            }
            let end = run.range.end.min(range.end);
            visit(at..end, run.place_at(at), index)?;
            at = end;
        }
        if at < range.end {
            visit(at..range.end, Place::Fill(self.gap), self.runs.len())?;
        }
        Ok(())
    }
}

impl Run {
    fn place_at(&self, at: u64) -> Place {
        let skip = at - self.range.start;
        match self.place {
            Place::Stored(offset) => Place::Stored(offset + skip),
            Place::Summed { offset, crc } => Place::Summed {
                offset: offset + skip,
                crc,
            },
            place => place,
        }
    }
}

/// A source that reads a disk through its map.
pub struct Mapped<S> {
    source: S,
    map: Map,
    /// For each range of the map, whether its checksum was verified.
    sound: Vec<AtomicBool>,
}

/// Reads bytes of the underlying file at an offset.
type ReadStored<'r, S> = dyn Fn(&S, u64, &mut [u8]) -> io::Result<()> + 'r;

impl<S: ReadAt> Mapped<S> {
    pub(crate) fn new(source: S, map: Map) -> Self {
        let sound = map.runs.iter().map(|_| AtomicBool::new(false)).collect();
        Self { source, map, sound }
    }

    /// Returns the offset of the first byte at or after `at` that is in the file, or `None` if only
    /// fill follows.
    pub(crate) fn next_stored(&self, at: u64) -> Option<u64> {
        self.map.next_stored(at)
    }

    /// Verifies the checksum of a range of the map, once.
    fn verify(&self, index: usize) -> io::Result<()> {
        let (Some(run), Some(sound)) = (self.map.runs.get(index), self.sound.get(index)) else {
            return Ok(());
        };
        let Place::Summed {
            offset,
            crc: stored,
        } = run.place
        else {
            return Ok(());
        };
        if sound.load(Ordering::Relaxed) {
            return Ok(());
        }
        // A range with a checksum is at most an erase block of 16 MiB.
        let mut bytes = vec![0; usize_from(run.range.end - run.range.start)];
        self.source.read_exact_at(offset, &mut bytes)?;
        let found = crc(&bytes);
        if found != stored {
            return Err(invalid(format!(
                "the block at {offset:#x} has the CRC-32 {found:#010x} instead of {stored:#010x}"
            )));
        }
        sound.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn read(&self, offset: u64, out: &mut [u8], read: &ReadStored<S>) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        let range = offset..offset + u64_from(out.len());
        let mut rest = out;
        self.map.visit(range, &mut |part, place, index| {
            let len = usize_from(part.end - part.start);
            let (bytes, behind) = std::mem::take(&mut rest).split_at_mut(len);
            rest = behind;
            match place {
                Place::Stored(offset) => read(&self.source, offset, bytes),
                Place::Summed { offset, .. } => {
                    self.verify(index)?;
                    read(&self.source, offset, bytes)
                }
                Place::Fill(pattern) => {
                    // Ranges begin at multiples of the pattern's length.
                    let mut pattern = pattern.into_iter().cycle().skip(phase(part.start));
                    bytes.fill_with(|| pattern.next().unwrap_or(0));
                    Ok(())
                }
                Place::Missing => Err(invalid(format!(
                    "the block of the disk at {:#x} is not in the file",
                    part.start
                ))),
            }
        })
    }

    /// Visits the file ranges that store a range of the disk.
    fn visit_stored(&self, range: Range<u64>, visit: &mut dyn FnMut(Range<u64>)) {
        let range = range.start..range.end.min(self.len());
        if range.is_empty() {
            return;
        }
        let _infallible = self.map.visit(range, &mut |part, place, _| {
            if let Place::Stored(offset) | Place::Summed { offset, .. } = place {
                visit(offset..offset + (part.end - part.start));
            }
            Ok::<(), io::Error>(())
        });
    }
}

/// Returns the position within a fill pattern of the byte at `offset`.
fn phase(offset: u64) -> usize {
    usize_from(offset % 4)
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

impl<S: ReadAt> ReadAt for Mapped<S> {
    fn len(&self) -> u64 {
        self.map.len
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read(offset, out, &|source, at, bytes| {
            source.read_exact_at(at, bytes)
        })
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        self.read(offset, out, &|source, at, bytes| {
            source.read_ahead_at(at, bytes, pattern)
        })
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        let mut takes = false;
        self.visit_stored(range, &mut |part| takes |= self.source.will_need(part));
        takes
    }

    fn done_with(&self, range: Range<u64>) {
        self.visit_stored(range, &mut |part| self.source.done_with(part));
    }

    fn distrust(&self, range: Range<u64>) {
        self.visit_stored(range, &mut |part| self.source.distrust(part));
    }

    fn is_slow(&self) -> bool {
        self.source.is_slow()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use forerun_io::MemorySource;
    use forerun_vfs::Limits;

    use super::*;

    #[test]
    fn parts_are_merged_and_gaps_are_filled() {
        let mut held = Held::new(&Limits::default());
        let mut map = Map::new([0xff; 4]);
        for (range, place) in [
            (0..4, Place::Stored(8)),
            (4..8, Place::Stored(12)),
            (8..12, Place::Fill(*b"abcd")),
            (16..20, Place::Stored(0)),
            (20..20, Place::Missing),
        ] {
            map.add(range, place, &mut held).unwrap();
        }
        map.extend(22);
        assert_eq!(map.runs.len(), 3);
        let disk = Mapped::new(MemorySource::new((0..16).collect::<Vec<u8>>()), map);
        let mut all = vec![0; 22];
        disk.read_exact_at(0, &mut all).unwrap();
        let expected =
            b"\x08\x09\x0a\x0b\x0c\x0d\x0e\x0fabcd\xff\xff\xff\xff\0\x01\x02\x03\xff\xff";
        assert_eq!(all, expected);
        for start in 0..22 {
            for end in start..=22 {
                let mut part = vec![0; end - start];
                disk.read_exact_at(u64_from(start), &mut part).unwrap();
                assert_eq!(part, expected[start..end]);
            }
        }
        assert!(disk.read_exact_at(20, &mut [0; 3]).is_err());
    }
}
