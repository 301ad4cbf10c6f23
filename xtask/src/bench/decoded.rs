//! The blocks of an image, decoded from memory: what nothing that reads the image can do without.
//!
//! No disk, no messages, no metadata. Of a large file, what is left is what two processors take to decode each block, and
//! the two copies that a filesystem in userspace has to make: into the page cache, and from there to the reader.

use std::cell::RefCell;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use forerun_io::u64_from;
use rustix::fs::{MemfdFlags, memfd_create};
use zstd_safe::{DCtx, find_frame_compressed_size};

/// As many as a mount uses on the machines that the bars are for.
const THREADS: usize = 2;
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

/// A block that was decoded.
struct Decoded<'b> {
    number: usize,
    bytes: &'b [u8],
}

thread_local! {
    static BLOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
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

    /// Decodes the next block that no thread has taken. Returns its length; `None` after the last.
    pub fn decode_next(&self, context: &mut DCtx<'_>) -> Result<Option<usize>> {
        let visit = |decoded: &Decoded<'_>| Ok(decoded.bytes.len());
        self.next(context, usize::MAX, visit)
    }

    /// Decodes the next of the first `count` blocks, and passes it to `visit`.
    fn next<T>(
        &self,
        context: &mut DCtx<'_>,
        count: usize,
        visit: impl FnOnce(&Decoded<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(frame) = self.frames.get(number).filter(|_| number < count) else {
            return Ok(None);
        };
        BLOCK.with_borrow_mut(|block| {
            block.resize(self.block_size, 0);
            let len = context
                .decompress(block.as_mut_slice(), &self.image[frame.clone()])
                .map_err(|code| {
                    let error = zstd_safe::get_error_name(code);
                    anyhow!("the frame at {}: {error}", frame.start)
                })?;
            let bytes = &block[..len];
            visit(&Decoded { number, bytes }).map(Some)
        })
    }

    /// Decodes the blocks of the only file, of `len` bytes, into a file in memory, and reads that. Returns its length.
    pub fn pass(&self, len: u64) -> Result<u64> {
        let count = usize::try_from(len)?.div_ceil(self.block_size);
        let file = File::from(memfd_create("decoded", MemfdFlags::CLOEXEC)?);
        file.set_len(len)?;
        let work = || -> Result<u64> {
            let mut context = decoder()?;
            let mut read = vec![0; self.block_size];
            let mut passed = 0;
            while let Some(len) = self.next(&mut context, count, |Decoded { number, bytes }| {
                let at = u64_from(number * self.block_size);
                file.write_all_at(bytes, at)?;
                file.read_exact_at(&mut read[..bytes.len()], at)?;
                Ok(u64_from(bytes.len()))
            })? {
                passed += len;
            }
            Ok(passed)
        };
        let passed = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_fold(0, |sum, thread| {
                let ended = thread.join();
                let ended =
                    ended.unwrap_or_else(|_| Err(anyhow!("a thread that decodes panicked")));
                ended.map(|passed| sum + passed)
            })
        })?;
        ensure!(passed == len, "decoded {passed} bytes, not {len}");
        Ok(passed)
    }
}

/// Creates the state of a decoder.
pub fn decoder() -> Result<DCtx<'static>> {
    DCtx::try_create().context("no memory for a decoder")
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
        let (frames, mut context) = (frames(), decoder().unwrap());
        let mut lengths = Vec::new();
        while let Some(len) = frames.decode_next(&mut context).unwrap() {
            lengths.push(len);
        }
        assert_eq!(lengths, [4096, 4096, 4096, 5, 100]);
    }
}
