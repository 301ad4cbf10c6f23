//! Reads file contents: maps extents with the driver and decodes them.
//!
//! forerun's engine does the same with readahead and a thread pool, but would double the size of
//! the runtime. Here the kernel reads ahead, several threads serve requests, and decoded blocks are
//! cached for later requests in the same block.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::Arc;

use forerun_io::{BlobId, BlockCache, ReadAt, usize_from};
use forerun_squashfs::Squashfs;
use forerun_vfs::{EncodedBlock, Error, Extent, FileSystem, NodeId, Place, Result};

/// Cache budget for decoded blocks, in bytes.
const DECODED: u64 = 32 << 20;
/// Block size of most images, which determines the layout of the cache.
const TYPICAL: u64 = 128 << 10;
const MAX_BLOCK: u32 = 1 << 20;

pub struct Contents {
    driver: Squashfs,
    source: Arc<dyn ReadAt>,
    decoded: BlockCache<Error>,
}

impl Contents {
    pub fn new(driver: Squashfs, source: Arc<dyn ReadAt>) -> Self {
        Self {
            driver,
            source,
            decoded: BlockCache::new(DECODED, TYPICAL),
        }
    }

    pub const fn driver(&self) -> &Squashfs {
        &self.driver
    }

    /// Appends up to `len` bytes of a file, from `offset`, to `out`; fewer at the end of the file.
    /// After an error `out` contains bytes that must not be used.
    pub fn read(&self, node: NodeId, offset: u64, len: u32, out: &mut Vec<u8>) -> Result<()> {
        let range = offset..offset + u64::from(len);
        let mut at = offset;
        let mut failed = None;
        self.driver.map(node, range.clone(), &mut |extent| {
            let start = extent.logical.start.max(at);
            let end = extent.logical.end.min(range.end);
            if start != at || start >= end {
                return ControlFlow::Break(());
            }
            let skip = start - extent.logical.start;
            match self.append(&extent, skip, end - start, out) {
                Ok(()) => at = end,
                Err(error) => failed = Some(error),
            }
            match failed {
                None if at < range.end => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Appends `len` bytes of an extent, starting `skip` bytes into it.
    fn append(&self, extent: &Extent, skip: u64, len: u64, out: &mut Vec<u8>) -> Result<()> {
        let (before, count) = (out.len(), usize_from(len));
        match &extent.place {
            Place::Zero => out.resize(before + count, 0),
            Place::Stored { blob, offset } => {
                only_image(*blob)?;
                out.resize(before + count, 0);
                let at = offset.checked_add(skip);
                let at =
                    at.ok_or_else(|| Error::io(*offset, count, ErrorKind::UnexpectedEof.into()))?;
                self.read_source(at, &mut out[before..])?;
            }
            Place::Encoded { block, skip: first } => {
                let decoded = self.decoded(block)?;
                let start = usize_from(skip + u64::from(*first));
                let part = decoded.get(start..start + count);
                out.extend_from_slice(part.ok_or_else(|| short(block))?);
            }
            Place::Inline(bytes) => {
                let start = usize_from(skip);
                let part = bytes.get(start..start + count);
                out.extend_from_slice(part.ok_or(Error::NotAFile)?);
            }
        }
        Ok(())
    }

    fn decoded(&self, block: &EncodedBlock) -> Result<Arc<[u8]>> {
        only_image(block.blob)?;
        let load = || self.decode(block);
        Ok(self.decoded.get_or_load(block.key(), load)?.0)
    }

    fn decode(&self, block: &EncodedBlock) -> Result<Arc<[u8]>> {
        let most = block.decoded_len.max();
        if most > MAX_BLOCK || block.len > MAX_BLOCK {
            return Err(short(block));
        }
        let mut stored = vec![0; usize_from(block.len.into())];
        self.read_source(block.offset, &mut stored)?;
        let mut out = vec![0; usize_from(most.into())];
        let len = block.decode(&stored, &mut out);
        let len = len.map_err(|error| damaged(block, &error.to_string()))?;
        let out = out.get(..len).ok_or_else(|| short(block))?;
        Ok(Arc::from(out))
    }

    fn read_source(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let read = self.source.read_exact_at(offset, out);
        read.map_err(|error| Error::io(offset, out.len(), error))
    }
}

/// Refuses extents outside the image, which SquashFS does not have.
fn only_image(blob: BlobId) -> Result<()> {
    match blob {
        BlobId::IMAGE => Ok(()),
        other => Err(Error::Unsupported(format!("blob {}", other.0))),
    }
}

fn short(block: &EncodedBlock) -> Error {
    damaged(block, "the decoded block does not have the expected length")
}

fn damaged(block: &EncodedBlock, reason: &str) -> Error {
    let error = std::io::Error::new(ErrorKind::InvalidData, reason.to_string());
    Error::io(block.offset, usize_from(block.len.into()), error)
}
