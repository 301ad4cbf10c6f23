//! Chooses the codec of images that do not say, or not rightly, which one they have: those before
//! 4.0, those of vendors, and LZMA, which has several headers.

use std::ops::ControlFlow;

use forerun_codec::Codec;
use forerun_io::u64_from;
use forerun_vfs::{DirCursor, Error, NodeId, OpenWith, Result};

use crate::blocks::Frame;
use crate::image::Image;
use crate::legacy::candidates;
use crate::ondisk::{METADATA_BLOCK, METADATA_STORED};
use crate::superblock::Superblock;
use crate::{dir, variant};

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
        return plain(with, superblock, is_standard);
    };
    let declared_too = superblock.legacy.is_none().then_some(declared);
    let found = candidates(superblock, &block);
    for candidate in declared_too.into_iter().chain(found) {
        let mut out = [0; METADATA_BLOCK];
        let Ok(len @ 1..) = candidate.decode_up_to(&block, &mut out) else {
            continue;
        };
        // A checksum, or a length in the stream, leaves nothing to chance.
        if !matches!(candidate, Codec::LzmaBare(_)) {
            return Ok(candidate);
        }
        // Of wrong properties most fail to decode, and the others do not give a tree.
        if len > 0 && lists_the_root(with, superblock, candidate)? {
            return Ok(candidate);
        }
    }
    // None fits: the usual one reports the error.
    Ok(declared)
}

/// Returns the first metadata block that is encoded, of those that the root needs.
fn first_encoded(with: &OpenWith, superblock: &Superblock) -> Result<Option<Vec<u8>>> {
    let root = superblock
        .inode_table
        .saturating_add(superblock.root.block());
    let frame = Frame::of(superblock);
    let mut starts = vec![root, superblock.directory_table];
    // A block of fragments' places is stored as it is only where inodes are too.
    starts.dedup();
    for start in starts {
        let mut header = [0; 2];
        let body = start.saturating_add(u64_from(frame.len()));
        if body.saturating_add(2) > superblock.bytes_used {
            continue;
        }
        read(with, start, &mut header)?;
        let word = frame.order.u16(header);
        let len = usize::from(word & !METADATA_STORED);
        let end = body.saturating_add(u64_from(len));
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

/// Guesses the codec of an image whose metadata is stored as it is, by the first bytes of data.
fn plain(with: &OpenWith, superblock: &Superblock, is_standard: bool) -> Result<Codec> {
    if superblock.legacy.is_none() {
        return Ok(superblock.codec);
    }
    let mut first = [0; 2];
    let at = superblock.head();
    if at.saturating_add(2) <= superblock.inode_table {
        read(with, at, &mut first)?;
    }
    let likeliest = candidates(superblock, &first).into_iter().next();
    // 0x5d is the usual first byte of LZMA: 3 literal context bits, 2 position bits.
    let is_lzma = first[0] == 0x5d || !is_standard;
    Ok(likeliest.filter(|_| is_lzma).unwrap_or(Codec::Zlib))
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
