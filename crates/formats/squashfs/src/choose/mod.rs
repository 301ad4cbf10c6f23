//! Chooses what images do not say, or not rightly: the codec of those before 4.0, of those of vendors, and of
//! LZMA, which has several headers; and the byte order of the headers of metadata blocks in big-endian 4.0.

mod data;

use std::cmp::Ordering;
use std::ops::ControlFlow;

use data::SampleBlock;
use forerun_codec::Codec;
use forerun_io::u64_from;
use forerun_vfs::{ByteOrder, DirCursor, Error, NodeId, OpenWith, Result};

use crate::blocks::Frame;
use crate::image::Image;
use crate::legacy::{candidates, with_headers};
use crate::ondisk::{METADATA_BLOCK, METADATA_STORED};
use crate::superblock::Superblock;
use crate::{dir, variant};

/// Headers of metadata blocks that are looked at, at most: by chance even a few do not fit one another.
const HEADERS: usize = 16;

/// Returns the byte order of the headers of metadata blocks. The one known vendor of big-endian images of 4.0
/// left the headers little-endian. The header of a block leads to the next one, up to the end of the inode
/// table: the order is the one in which more of them fit.
///
/// # Errors
/// `Io`.
pub fn headers(with: &OpenWith, superblock: &Superblock) -> Result<ByteOrder> {
    if superblock.order == ByteOrder::Little || superblock.legacy.is_some() {
        return Ok(superblock.order);
    }
    let [little, big] = [ByteOrder::Little, ByteOrder::Big];
    match fitting(with, superblock, little)?.cmp(&fitting(with, superblock, big)?) {
        Ordering::Greater => return Ok(little),
        Ordering::Less => return Ok(big),
        Ordering::Equal => {}
    }
    // The only header has two equal bytes, or there is damage.
    for headers in [little, big] {
        let superblock = Superblock {
            headers,
            ..superblock.clone()
        };
        if lists_the_root(with, &superblock, superblock.codec)? {
            return Ok(headers);
        }
    }
    Ok(little)
}

/// Returns the number of headers of the inode table that fit one another in this byte order.
fn fitting(with: &OpenWith, superblock: &Superblock, headers: ByteOrder) -> Result<usize> {
    let (mut at, end) = (superblock.inode_table, superblock.directory_table);
    let mut found = 0;
    while found < HEADERS && at < end {
        if end - at <= 2 {
            return Ok(found);
        }
        let mut header = [0; 2];
        read(with, at, &mut header)?;
        let len = headers.u16(header) & !METADATA_STORED;
        at += 2 + u64::from(len);
        if len == 0 || usize::from(len) > METADATA_BLOCK || at > end {
            return Ok(found);
        }
        found += 1;
    }
    Ok(HEADERS)
}

/// Returns the codec of the image. Decodes the metadata block of the root with one candidate after
/// the other, once for the whole image.
///
/// # Errors
/// `Io`.
pub fn codec(with: &OpenWith, superblock: &Superblock, head: &[u8]) -> Result<Codec> {
    let declared = superblock.codec;
    let is_standard = variant::is_standard(head);
    let is_said = superblock.legacy.is_none() && declared != Codec::Lzma;
    if is_standard && is_said {
        return Ok(declared);
    }
    let Some(block) = first_encoded(with, superblock)? else {
        return plain(with, superblock);
    };
    let declared_too = superblock.legacy.is_none().then_some(declared);
    let others = candidates(superblock, &block);
    let all = declared_too.into_iter().chain(others);
    // None fits: the usual one reports the error.
    Ok(fitting_codec(with, superblock, &block, all)?.unwrap_or(declared))
}

/// Returns the LZMA of an image of 4.0 that says gzip and cannot be read so: some vendors put LZMA in gzip's
/// place. Returns nothing for all other images.
///
/// # Errors
/// `Io`.
pub fn undeclared(with: &OpenWith, superblock: &Superblock) -> Result<Option<Codec>> {
    if superblock.legacy.is_some() || superblock.codec != Codec::Zlib {
        return Ok(None);
    }
    let Some(block) = first_encoded(with, superblock)? else {
        return Ok(None);
    };
    fitting_codec(with, superblock, &block, with_headers().into_iter())
}

/// Returns the first of the codecs that decodes this metadata block, the listing of the root and the data of a
/// file; without one, the first that lists the root.
fn fitting_codec(
    with: &OpenWith,
    superblock: &Superblock,
    block: &[u8],
    all: impl Iterator<Item = Codec>,
) -> Result<Option<Codec>> {
    let mut second = None;
    for candidate in all {
        let mut out = [0; METADATA_BLOCK];
        let Ok(1..) = candidate.decode_up_to(block, &mut out) else {
            continue;
        };
        // A checksum, or a length in the stream, leaves nothing to chance.
        if !matches!(candidate, Codec::LzmaBare(_)) {
            return Ok(Some(candidate));
        }
        // Wrong properties may decode a short block, but hardly one of data too.
        if !lists_the_root(with, superblock, candidate)? {
            continue;
        }
        let superblock = Superblock {
            codec: candidate,
            ..superblock.clone()
        };
        let block = SampleBlock::first(with, &superblock)?;
        if block.is_some_and(|block| block.fits(candidate)) {
            return Ok(Some(candidate));
        }
        second = second.or(Some(candidate));
    }
    Ok(second)
}

/// Returns the first metadata block that is encoded, of those that the root needs.
fn first_encoded(with: &OpenWith, superblock: &Superblock) -> Result<Option<Vec<u8>>> {
    let root = superblock.inode_table.checked_add(superblock.root.block());
    let frame = Frame::of(superblock);
    let mut starts: Vec<u64> = root.into_iter().collect();
    starts.push(superblock.directory_table);
    // A block of fragments' places is stored as it is only where inodes are too.
    starts.dedup();
    for start in starts {
        let mut header = [0; 2];
        let body = start.checked_add(u64_from(frame.len()));
        let last = superblock.bytes_used.saturating_sub(2);
        let Some(body) = body.filter(|&body| body <= last) else {
            continue;
        };
        read(with, start, &mut header)?;
        let word = frame.headers.u16(header);
        let len = usize::from(word & !METADATA_STORED);
        let end = body + u64_from(len);
        if word & METADATA_STORED != 0
            || len == 0
            || len > METADATA_BLOCK
            || end > superblock.bytes_used
        {
            continue;
        }
        let mut block = vec![0; len];
        read(with, body, &mut block)?;
        return Ok(Some(block));
    }
    Ok(None)
}

/// Returns the codec of an image whose metadata is stored as it is: the first that decodes the data of a file.
/// Where no file has any, nothing depends on it.
fn plain(with: &OpenWith, superblock: &Superblock) -> Result<Codec> {
    let declared = superblock.codec;
    let others = candidates(superblock, &[]);
    let mut all = std::iter::once(declared).chain(others);
    let block = SampleBlock::first(with, superblock)?;
    let found = block.and_then(|block| all.find(|codec| block.fits(*codec)));
    Ok(found.unwrap_or(declared))
}

/// Returns whether the root can be read and listed with this codec.
fn lists_the_root(with: &OpenWith, superblock: &Superblock, codec: Codec) -> Result<bool> {
    let superblock = Superblock {
        codec,
        ..superblock.clone()
    };
    let root = NodeId(superblock.root.raw());
    let listed = Image::assemble(with.clone(), superblock, &mut Err).and_then(|image| {
        dir::read(&image, root, DirCursor::START, &mut |_| {
            ControlFlow::Continue(())
        })
    });
    match listed {
        Ok(()) => Ok(true),
        Err(error @ Error::Io { .. }) => Err(error),
        Err(_) => Ok(false),
    }
}

fn read(with: &OpenWith, offset: u64, out: &mut [u8]) -> Result<()> {
    let read = with.metadata.read_exact_at(offset, out);
    read.map_err(|error| Error::io(offset, out.len(), error))
}
