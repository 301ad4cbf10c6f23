//! The blocks of an image, decoded from memory: what nothing that reads the image can do without.
//!
//! No disk, no messages, no metadata. Of a large file, what is left is what two processors take to decode each block, and
//! the two copies that a filesystem in userspace has to make: into the page cache, and from there to the reader.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use forerun_io::u64_from;
use rustix::fs::{MemfdFlags, memfd_create};
use zstd_safe::{DCtx, find_frame_compressed_size};

use super::work::in_threads;

/// Length of the superblock of SquashFS, which the blocks of the first file follow.
const SUPERBLOCK: usize = 96;
/// The first bytes of each Zstandard frame (RFC 8878, section 3.1.1).
const MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

/// The Zstandard frames of an image, which is in memory whole.
pub struct Frames {
    image: Vec<u8>,
    frames: Vec<Range<usize>>,
    block_size: usize,
    next: AtomicUsize,
}

impl Frames {
    /// Finds the frames of a SquashFS image with blocks of `block_size` bytes. What lies between them, as blocks that
    /// are not compressed, is left out.
    pub fn read(image: &Path, block_size: u64) -> Result<Self> {
        let image = fs::read(image).with_context(|| image.display().to_string())?;
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
            image,
            frames,
            block_size: usize::try_from(block_size)?,
            next: AtomicUsize::new(0),
        })
    }

    /// Decodes the blocks of the only file, of `len` bytes, into a file in memory, and reads that. Returns its length.
    pub fn pass(&self, len: u64) -> Result<u64> {
        let count = usize::try_from(len)?.div_ceil(self.block_size);
        let file = File::from(memfd_create("decoded", MemfdFlags::CLOEXEC)?);
        file.set_len(len)?;
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
}

/// A thread's share of the decoding.
pub struct Decoder<'f> {
    frames: &'f Frames,
    context: DCtx<'static>,
    block: Vec<u8>,
}

impl<'f> Decoder<'f> {
    /// Creates a decoder of frames that no other has taken.
    pub fn new(frames: &'f Frames) -> Result<Self> {
        Ok(Self {
            frames,
            context: DCtx::try_create().context("no memory for a decoder")?,
            block: vec![0; frames.block_size],
        })
    }

    /// Decodes the next frame. Returns its number and its bytes; `None` after the last.
    pub fn next(&mut self) -> Result<Option<(usize, &[u8])>> {
        let number = self.frames.next.fetch_add(1, Ordering::Relaxed);
        let Some(frame) = self.frames.frames.get(number) else {
            return Ok(None);
        };
        let encoded = &self.frames.image[frame.clone()];
        let decoded = self.context.decompress(self.block.as_mut_slice(), encoded);
        let len = decoded.map_err(|code| {
            let error = zstd_safe::get_error_name(code);
            anyhow!("the frame at {}: {error}", frame.start)
        })?;
        Ok(Some((number, &self.block[..len])))
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
        let frames = || Frames::read(&image, 4096).unwrap();
        assert_eq!(frames().pass(3 * 4096 + 5).unwrap(), 3 * 4096 + 5);
        assert!(frames().pass(3 * 4096).is_ok());
        let short = frames().pass(3 * 4096 + 6).unwrap_err();
        assert_eq!(short.to_string(), "decoded 12293 bytes, not 12294");
        let frames = frames();
        let mut decoder = Decoder::new(&frames).unwrap();
        let mut lengths = Vec::new();
        while let Some((_, block)) = decoder.next().unwrap() {
            lengths.push(block.len());
        }
        assert_eq!(lengths, [4096, 4096, 4096, 5, 100]);
    }
}
