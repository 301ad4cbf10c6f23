//! Finds what an image does not declare, or declares wrongly: the codec before 4.0 and in vendors'
//! images, the variant of LZMA, and the byte order of metadata block headers in big-endian 4.0.

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

/// Most metadata block headers examined. Random data fails to form a chain after a few of them.
const HEADERS: usize = 16;

/// Returns the byte order of metadata block headers. The one known vendor of big-endian 4.0 images
/// left these headers little-endian. Each header gives the offset of the next one, up to the end of
/// the inode table: the byte order with the longer valid chain wins.
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
    // The only header has two equal bytes, or the image is damaged.
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

/// Returns the length of the valid chain of headers in the inode table in this byte order, or
/// [`HEADERS`] if it reaches the table's end.
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

/// Returns the codec of the image. If the image does not declare it reliably, tries candidates on
/// the root's metadata block, once for the whole image.
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
    // No candidate fits: reading with the declared codec will report the error.
    Ok(fitting_codec(with, superblock, &block, all)?.unwrap_or(declared))
}

/// Returns the LZMA variant of a 4.0 image that declares gzip but holds LZMA, as some vendors'
/// images do. Returns `None` for all other images.
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

/// Returns the first codec that decodes this metadata block, the root's listing and the data of a
/// file. If there is none, returns the first codec that lists the root.
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
        // Other streams have a checksum or a length, so they do not decode by chance.
        if !matches!(candidate, Codec::LzmaBare(_)) {
            return Ok(Some(candidate));
        }
        // Wrong LZMA properties may decode a short block by chance, but hardly a data block too.
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

/// Returns the first compressed metadata block among those that the root needs.
fn first_encoded(with: &OpenWith, superblock: &Superblock) -> Result<Option<Vec<u8>>> {
    let root = superblock.inode_table.checked_add(superblock.root.block());
    let frame = Frame::of(superblock);
    let mut starts: Vec<u64> = root.into_iter().collect();
    starts.push(superblock.directory_table);
    // The fragment table need not be tried: it is uncompressed only if inodes are too.
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

/// Returns the codec of an image with uncompressed metadata: the first one that decodes the data of
/// a file. If no file data is compressed, the codec does not matter.
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
