//! Guesses files from data that no inode refers to: consecutive full blocks up to the first shorter
//! one.

use std::ops::{ControlFlow, Range};

use forerun_codec::Codec;
use forerun_vfs::{BlobId, DecodedLen, EncodedBlock, Extent, Padding, Place};

use super::search::FoundBlock;

/// Blocks that may be a file, or several small files that share a fragment block.
#[derive(Debug, Default)]
pub struct Carved {
    /// Each block with its offset in the file.
    blocks: Vec<(u64, FoundBlock)>,
    pub size: u64,
}

impl Carved {
    pub fn offset(&self) -> u64 {
        self.blocks.first().map_or(0, |(_, block)| block.offset)
    }

    /// Returns whether no block decodes: it may be damage or uncompressed data.
    pub fn is_raw(&self) -> bool {
        self.blocks.iter().all(|(_, block)| block.is_raw)
    }

    fn push(&mut self, block: FoundBlock) {
        self.blocks.push((self.size, block));
        self.size += block.decoded;
    }

    pub fn map(
        &self,
        codec: Codec,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) {
        let first = self
            .blocks
            .partition_point(|&(at, block)| at + block.decoded <= range.start);
        for &(start, block) in self.blocks.iter().skip(first) {
            if start >= range.end {
                return;
            }
            let place = match (
                block.is_raw,
                u32::try_from(block.decoded),
                u32::try_from(block.stored),
            ) {
                (false, Ok(decoded), Ok(stored)) => Place::Encoded {
                    block: EncodedBlock {
                        blob: BlobId::IMAGE,
                        offset: block.offset,
                        len: stored,
                        codec,
                        decoded_len: DecodedLen::Exact(decoded),
                        padding: Padding::None,
                    },
                    skip: 0,
                },
                _ => Place::Stored {
                    blob: BlobId::IMAGE,
                    offset: block.offset,
                },
            };
            let logical = start..start + block.decoded;
            if visit(Extent { logical, place }).is_break() {
                return;
            }
        }
    }
}

/// Groups blocks, which must be in image order, into files.
pub fn carve(blocks: &[FoundBlock], block_size: u32) -> Vec<Carved> {
    let block_size = u64::from(block_size);
    let mut files = Vec::new();
    let mut open = Carved::default();
    let mut end = 0;
    for block in blocks {
        if block.offset != end {
            close(&mut open, &mut files);
        }
        open.push(*block);
        end = block.end();
        if !block.decoded.is_multiple_of(block_size) {
            close(&mut open, &mut files);
        }
    }
    close(&mut open, &mut files);
    files
}

fn close(open: &mut Carved, files: &mut Vec<Carved>) {
    let done = std::mem::take(open);
    if done.size > 0 {
        files.push(done);
    }
}
