//! Finds the codec from file data, for images with uncompressed metadata.

use std::ops::ControlFlow;

use forerun_codec::Codec;
use forerun_vfs::{
    DecodedLen, DirCursor, EncodedBlock, Error, FileType, NodeId, OpenWith, Place, Result,
};

use super::read;
use crate::image::Image;
use crate::superblock::Superblock;
use crate::{dir, map};

/// Directory entries examined to find a file with a compressed block.
const ENTRIES: usize = 1024;
/// Blocks examined in each file.
const BLOCKS: u64 = 64;

/// A compressed block of a file, to try codecs on.
pub struct SampleBlock {
    stored: Vec<u8>,
    len: usize,
    /// Whether `len` is the exact decoded length, not only an upper bound.
    is_exact: bool,
}

impl SampleBlock {
    /// Reads a compressed block of a file, preferably one with an exactly known decoded length.
    /// Returns `None` if it finds no compressed block.
    ///
    /// # Errors
    /// `Io`.
    pub fn first(with: &OpenWith, superblock: &Superblock) -> Result<Option<Self>> {
        let Some(block) = passing_over_damage(first_encoded(with, superblock))?.flatten() else {
            return Ok(None);
        };
        let (DecodedLen::Exact(len) | DecodedLen::AtMost(len) | DecodedLen::Prefix(len)) =
            block.decoded_len;
        // The map checks that neither is longer than a block.
        let mut stored = vec![0; usize::try_from(block.len).unwrap_or_default()];
        read(with, block.offset, &mut stored)?;
        Ok(Some(Self {
            stored,
            len: usize::try_from(len).unwrap_or_default(),
            is_exact: matches!(block.decoded_len, DecodedLen::Exact(_)),
        }))
    }

    pub fn fits(&self, codec: Codec) -> bool {
        match codec.decode_up_to(&self.stored, &mut vec![0; self.len]) {
            Ok(found) if self.is_exact => found == self.len,
            Ok(found) => found > 0,
            Err(_) => false,
        }
    }
}

/// Finds a compressed block of a file, preferably one with an exactly known decoded length.
fn first_encoded(with: &OpenWith, superblock: &Superblock) -> Result<Option<EncodedBlock>> {
    let image = Image::assemble(with.clone(), superblock.clone(), &mut Err)?;
    let mut dirs = vec![NodeId(image.superblock.root.raw())];
    let mut fragment = None;
    let mut left = ENTRIES;
    while let Some(node) = dirs.pop() {
        let mut files = Vec::new();
        let listed = dir::read(&image, node, DirCursor::START, &mut |entry| {
            match entry.kind {
                FileType::Directory => dirs.push(entry.node),
                FileType::Regular => files.push(entry.node),
                _ => {}
            }
            left -= 1;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        passing_over_damage(listed)?;
        for file in files {
            match passing_over_damage(encoded(&image, file))?.flatten() {
                Some(block) if matches!(block.decoded_len, DecodedLen::Exact(_)) => {
                    return Ok(Some(block));
                }
                found => fragment = fragment.or(found),
            }
        }
        if left == 0 {
            break;
        }
    }
    Ok(fragment)
}

fn encoded(image: &Image, node: NodeId) -> Result<Option<EncodedBlock>> {
    let file = image.file(node)?;
    if file.size == 0 {
        return Ok(None);
    }
    let (mut found, mut left) = (None, BLOCKS);
    map::map(image, node, &file, 0..file.size, &mut |extent| {
        left -= 1;
        if let Place::Encoded { block, .. } = extent.place {
            found = Some(block);
        }
        if found.is_some() || left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(found)
}

/// Turns an error for damage into `None`: reading that node reports the damage.
fn passing_over_damage<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(error @ Error::Io { .. }) => Err(error),
        Err(_) => Ok(None),
    }
}
