//! The blocks of an image, read from the disk and decoded: what nothing that reads the image can do without.
//!
//! No messages, no metadata. Of a large file, what is left is to read each block from the disk, what two processors take to
//! decode it, and the two copies that a filesystem in userspace has to make: into the page cache, and from there to the
//! reader.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use forerun_io::{Unpoisoned, u64_from, usize_from};
use forerun_measure::work;
use rustix::fs::{Advice, MemfdFlags, fadvise, memfd_create};
use zstd_safe::{DCtx, find_frame_compressed_size, get_error_name};

use super::work::in_threads;

/// Length of the superblock of SquashFS, which the blocks of the first file follow.
const SUPERBLOCK: usize = 96;
/// The first bytes of each Zstandard frame (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// Bytes of the image that a thread reads with one call.
const READ: usize = 1 << 20;

/// The Zstandard frames of an image on a disk.
pub struct Frames {
    disk: File,
    frames: Vec<Range<usize>>,
    /// Frames, by their numbers, that one call reads.
    reads: Vec<Range<usize>>,
    block_size: usize,
    next: AtomicUsize,
}

impl Frames {
    /// Finds the frames of a SquashFS image with blocks of `block_size` bytes. What lies between them, as blocks that
    /// are not compressed, is left out.
    ///
    /// # Errors
    /// Of the disk.
    pub fn of(path: &Path, block_size: u64) -> Result<Self> {
        let image = fs::read(path).with_context(|| path.display().to_string())?;
        let mut frames = Vec::new();
        let mut at = SUPERBLOCK;
        while let Some(rest) = image.get(at..).filter(|rest| rest.len() >= MAGIC.len()) {
            let is_frame = rest.starts_with(&MAGIC);
            match find_frame_compressed_size(rest) {
                Ok(size) if is_frame => {
                    frames.push(at..at + size);
                    at += size;
                }
                _ => {
                    let next = rest[1..]
                        .windows(MAGIC.len())
                        .position(|four| four == MAGIC);
                    at += 1 + next.unwrap_or(rest.len());
                }
            }
        }
        Ok(Self {
            disk: File::open(path)?,
            reads: in_reads(&frames),
            frames,
            block_size: usize::try_from(block_size)?,
            next: AtomicUsize::new(0),
        })
    }

    /// Decodes the blocks of the only file, of `len` bytes, into a file in memory, and reads that. Returns its length.
    ///
    /// # Errors
    /// Of frames that are not those of the file, and of the disk.
    pub fn pass(&self, len: u64) -> Result<u64> {
        let count = usize::try_from(len)?.div_ceil(self.block_size);
        let file = file_in_memory(len)?;
        let work = || -> Result<u64> {
            let mut decoder = Decoder::new(self)?;
            let mut read = vec![0; self.block_size];
            let mut passed = 0;
            while let Some((number, block)) = decoder.next()?.filter(|(number, _)| *number < count)
            {
                let at = u64_from(number * self.block_size);
                file.write_all_at(block, at)?;
                file.read_exact_at(&mut read[..block.len()], at)?;
                passed += u64_from(block.len());
            }
            Ok(passed)
        };
        let passed: u64 = in_threads(work)?.into_iter().sum();
        ensure!(passed == len, "decoded {passed} bytes, not {len}");
        Ok(passed)
    }

    /// Reads pages of the only file, of `len` bytes, at random places, as [`work::random`] does, and returns what that
    /// returns. The first reader of a block reads it from the disk and decodes it into a file in memory.
    ///
    /// # Errors
    /// As of [`pass`](Self::pass).
    pub fn random(&self, len: u64) -> Result<String> {
        fadvise(&self.disk, 0, None, Advice::Random)?;
        let file = file_in_memory(len)?;
        let is_here: Vec<Mutex<bool>> = self.frames.iter().map(|_| Mutex::default()).collect();
        let free: Mutex<Vec<Decoder<'_>>> = Mutex::default();
        let read = |page: &mut [u8], at: u64| {
            let number = usize_from(at) / self.block_size;
            let is_here = is_here.get(number).ok_or(ErrorKind::UnexpectedEof)?;
            let mut is_here = is_here.lock().unpoisoned();
            if !*is_here {
                let decoder = free.lock().unpoisoned().pop();
                let mut decoder = decoder.map_or_else(|| Decoder::new(self), Ok)?;
                let block = decoder.block(number)?;
                file.write_all_at(block, u64_from(number * self.block_size))?;
                free.lock().unpoisoned().push(decoder);
                *is_here = true;
            }
            drop(is_here);
            file.read_exact_at(page, at)
        };
        work::random(len, work::READS, work::THREADS, &read)
    }
}

/// Groups frames that one call reads.
fn in_reads(frames: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut reads: Vec<Range<usize>> = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        match reads.last_mut() {
            Some(read) if frame.end - frames[read.start].start <= READ => read.end = number + 1,
            _ => reads.push(number..number + 1),
        }
    }
    reads
}

/// Makes a file of `len` bytes in memory.
fn file_in_memory(len: u64) -> io::Result<File> {
    let file = File::from(memfd_create("decoded", MemfdFlags::CLOEXEC)?);
    file.set_len(len)?;
    Ok(file)
}

/// A thread's share of the decoding.
pub struct Decoder<'f> {
    frames: &'f Frames,
    context: DCtx<'static>,
    /// Bytes of the last read.
    encoded: Vec<u8>,
    /// Their place in the image.
    at: usize,
    /// The frames among them, by their numbers, that are not decoded yet.
    left: Range<usize>,
    block: Vec<u8>,
}

impl<'f> Decoder<'f> {
    /// Creates a decoder of frames that no other has taken.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfMemory`].
    pub fn new(frames: &'f Frames) -> io::Result<Self> {
        Ok(Self {
            frames,
            context: DCtx::try_create().ok_or(ErrorKind::OutOfMemory)?,
            encoded: Vec::new(),
            at: 0,
            left: 0..0,
            block: vec![0; frames.block_size],
        })
    }

    /// Decodes the next frame. Returns its number and its bytes; `None` after the last.
    ///
    /// # Errors
    /// Of the disk, and of a frame that cannot be decoded.
    pub fn next(&mut self) -> io::Result<Option<(usize, &[u8])>> {
        if self.left.is_empty() {
            let number = self.frames.next.fetch_add(1, Ordering::Relaxed);
            let Some(read) = self.frames.reads.get(number) else {
                return Ok(None);
            };
            self.read(read.clone())?;
        }
        match self.left.next() {
            Some(number) => Ok(Some((number, self.decode(number)?))),
            None => Ok(None),
        }
    }

    /// Reads a frame and decodes it.
    fn block(&mut self, number: usize) -> io::Result<&[u8]> {
        self.read(number..number + 1)?;
        self.decode(number)
    }

    fn read(&mut self, read: Range<usize>) -> io::Result<()> {
        let frames = self.frames.frames.get(read.clone()).unwrap_or_default();
        let (Some(first), Some(last)) = (frames.first(), frames.last()) else {
            return Err(ErrorKind::UnexpectedEof.into());
        };
        self.at = first.start;
        self.encoded.resize(last.end - first.start, 0);
        let disk = &self.frames.disk;
        disk.read_exact_at(&mut self.encoded, u64_from(self.at))?;
        self.left = read;
        Ok(())
    }

    /// Decodes a frame of what was read last.
    fn decode(&mut self, number: usize) -> io::Result<&[u8]> {
        let frame = &self.frames.frames[number];
        let encoded = &self.encoded[frame.start - self.at..frame.end - self.at];
        let decoded = self.context.decompress(self.block.as_mut_slice(), encoded);
        let len = decoded.map_err(|code| {
            let error = get_error_name(code);
            io::Error::other(format!("the frame at {}: {error}", frame.start))
        })?;
        Ok(&self.block[..len])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_frames_are_found_and_decoded() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        let mut bytes = vec![0; SUPERBLOCK];
        let block = |byte: u8, len: usize| {
            let mut out = vec![0; 1000];
            let size = zstd_safe::compress(out.as_mut_slice(), &vec![byte; len], 3).unwrap();
            out.truncate(size);
            out
        };
        for number in 0..3 {
            bytes.extend(block(number, 4096));
        }
        bytes.extend(block(3, 5));
        // A block that is not compressed, and the metadata.
        bytes.extend([9; 500]);
        bytes.extend(block(4, 100));
        fs::write(&image, bytes).unwrap();
        let frames = || Frames::of(&image, 4096).unwrap();
        assert_eq!(frames().pass(3 * 4096 + 5).unwrap(), 3 * 4096 + 5);
        assert!(frames().pass(3 * 4096).is_ok());
        let short = frames().pass(3 * 4096 + 6).unwrap_err();
        assert_eq!(short.to_string(), "decoded 12293 bytes, not 12294");
        let decoded = |page: &mut [u8], at: u64| {
            page.fill(u8::try_from(at / 4096).map_err(io::Error::other)?);
            Ok(())
        };
        let expected = work::random(3 * 4096 + 5, work::READS, work::THREADS, &decoded).unwrap();
        assert_eq!(frames().random(3 * 4096 + 5).unwrap(), expected);
        // The last of six frames, which are fewer than the blocks of the file.
        assert!(frames().random(10 * 4096).is_err());
        let frames = frames();
        let mut decoder = Decoder::new(&frames).unwrap();
        let mut lengths = Vec::new();
        while let Some((_, block)) = decoder.next().unwrap() {
            lengths.push(block.len());
        }
        assert_eq!(lengths, [4096, 4096, 4096, 5, 100]);
    }
}
