//! Reads data that the driver itself needs: directories, symlink targets, the metabox.
//!
//! Almost all of it is flat data, which takes one read of the metadata source. Compressed data is
//! decoded here and cached within the driver's memory budget.

use std::ops::{ControlFlow, Range};

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{BlobId, Blobs as _, Bound, EncodedBlock, Error, Extent, Place, Result};

use super::{Image, map};
use crate::error::Check;
use crate::inode::Inode;

/// Reads the bytes of `inode` from `offset` on. They must be inside the file.
pub fn read(image: &Image, inode: &Inode, offset: u64, out: &mut [u8]) -> Result<()> {
    let end = offset + u64_from(out.len());
    if end > inode.size {
        let (what, start) = ("data of an inode", offset);
        let image = inode.size;
        return Err(Check::Outside {
            what,
            start,
            end,
            image,
        }
        .at(Some(inode.node), inode.at.offset));
    }
    let range = offset..end;
    let mut at = offset;
    let mut result = Ok(());
    map::map(image, inode, range.clone(), &mut |extent| match copy(
        image, inode, &extent, &range, at, out,
    ) {
        Ok(next) => {
            at = next;
            if at < range.end {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        }
        Err(error) => {
            result = Err(error);
            ControlFlow::Break(())
        }
    })?;
    result?;
    if at < end {
        return Err(Check::Gap { at }.at(Some(inode.node), inode.at.offset));
    }
    Ok(())
}

/// Reads a 2-byte length and that many bytes. Advances `at` to the next multiple of four.
pub fn record(image: &Image, inode: &Inode, at: &mut u64) -> Result<Vec<u8>> {
    let mut len = [0; 2];
    read(image, inode, *at, &mut len)?;
    // At most 64 KiB.
    let mut bytes = vec![0; usize::from(u16::from_le_bytes(len))];
    let start = *at + 2;
    read(image, inode, start, &mut bytes)?;
    *at = (start + u64_from(bytes.len())).next_multiple_of(4);
    Ok(bytes)
}

/// Copies the overlap of `range` and `extent`, starting at `at`. Returns the end of the copied
/// range.
fn copy(
    image: &Image,
    inode: &Inode,
    extent: &Extent,
    range: &Range<u64>,
    at: u64,
    out: &mut [u8],
) -> Result<u64> {
    let gap = || Check::Gap { at }.at(Some(inode.node), inode.at.offset);
    let next = extent.logical.end.min(range.end);
    if extent.logical.start > at || next <= at {
        return Err(gap());
    }
    let part = usize_from(at - range.start)..usize_from(next - range.start);
    let out = out.get_mut(part).ok_or_else(gap)?;
    let skip = at - extent.logical.start;
    match &extent.place {
        Place::Zero => out.fill(0),
        Place::Stored { blob, offset } => {
            stored(image, *blob, offset + skip, out)?;
        }
        Place::Encoded {
            block,
            skip: before,
        } => {
            let bytes = decoded(image, inode, block)?;
            let start = usize_from(u64::from(*before) + skip);
            let Some(bytes) = bytes.get(start..start + out.len()) else {
                let (skip, decoded) = (*before, bytes.len());
                let check = Check::DecodedShort { skip, decoded };
                return Err(check.at(Some(inode.node), block.offset));
            };
            out.copy_from_slice(bytes);
        }
        Place::Inline(bytes) => {
            let start = usize_from(skip);
            let bytes = bytes.get(start..start + out.len());
            out.copy_from_slice(bytes.ok_or_else(gap)?);
        }
    }
    Ok(next)
}

fn stored(image: &Image, blob: BlobId, offset: u64, out: &mut [u8]) -> Result<()> {
    let failed = |error| Error::io(offset, out.len(), error);
    if blob == BlobId::IMAGE {
        let read = image.source.read_exact_at(offset, out);
        return read.map_err(|error| Error::io(offset, out.len(), error));
    }
    // No known writer puts directories on other devices, so this path is not optimised.
    let source = image.blob(blob)?;
    forerun_io::past_end(offset, out.len(), source.len()).map_err(failed)?;
    let read = source.read_exact_at(offset, out);
    read.map_err(|error| Error::io(offset, out.len(), error))
}

fn decoded(image: &Image, inode: &Inode, block: &EncodedBlock) -> Result<std::sync::Arc<[u8]>> {
    let (bytes, _) = image.decoded.get_or_load(block.key(), || {
        let (len, most) = (block.len, block.decoded_len.max());
        let limit = image.limits.block_len;
        if len.max(most) > limit {
            let what = format!(
                "block of {} bytes at offset {:#x}",
                len.max(most),
                block.offset
            );
            return Err(Error::limit(Bound::Other, what, u64::from(limit)));
        }
        let mut encoded = vec![0; usize_from(u64::from(len))];
        stored(image, block.blob, block.offset, &mut encoded)?;
        let mut out = vec![0; usize_from(u64::from(most))];
        let timer = image.observer.timer();
        let result = block.decode(&encoded, &mut out);
        let done = result.as_ref().copied().unwrap_or(0);
        image
            .observer
            .decode(timer, block.key(), u64_from(done), result.is_ok());
        match result {
            Ok(done) => {
                out.truncate(done);
                Ok(out.into())
            }
            Err(source) => {
                let check = Check::Decode {
                    len,
                    decoded: most,
                    source,
                };
                Err(check.at(Some(inode.node), block.offset))
            }
        }
    })?;
    Ok(bytes)
}
