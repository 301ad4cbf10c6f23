//! Parts of files, compressed.
//!
//! A part becomes extents one after the other, each filling a physical cluster as far as it goes.
//! What does not get shorter by at least a block stays as it is, block by block; so does a whole
//! part of which nothing is gained.

use forerun_codec::{FillEncoder, Filled};
use forerun_engine::build::BuildError;
use forerun_io::{saturating_usize, u64_from};

use super::cannot;
use super::data::{Extent, ExtentKind};
use super::options::{Compression, ErofsOptions};
use super::pack::{Part, Role, Room};

/// Blocks of a file that one extent covers at most: indexes count them with eleven bits.
const LONGEST: usize = 1024;

/// A part as it is to be stored.
pub struct Encoded {
    pub bytes: Vec<u8>,
    /// Bytes of the file that it holds.
    pub len: u64,
    pub role: Role,
    /// The extents of a compressed part, offsets and blocks counted from its start; none where it is
    /// stored as it is.
    pub extents: Option<Vec<Extent>>,
    /// The last extent, where it goes behind the inode.
    pub inline: Option<Vec<u8>>,
}

pub struct Worker<'o> {
    block: usize,
    compressor: Option<(&'o Compression, FillEncoder)>,
    cluster: Vec<u8>,
}

impl<'o> Worker<'o> {
    pub fn new(options: &'o ErofsOptions) -> Result<Self, BuildError> {
        let compressor = options.compression.as_ref().map(|compression| {
            let encoder = FillEncoder::new(&compression.encoding);
            let encoder = encoder.map_err(|error| cannot(error.to_string()))?;
            Ok((compression, encoder))
        });
        let compressor = compressor.transpose()?;
        let cluster = compressor.as_ref().map_or(0, |(with, _)| with.cluster_size);
        Ok(Self {
            block: options.block(),
            compressor,
            cluster: vec![0; saturating_usize(cluster.into())],
        })
    }

    pub fn encode(&mut self, part: Part) -> Encoded {
        let Part { bytes, role } = part;
        let len = u64_from(bytes.len());
        if let (Role::Body { last, room, .. }, true) = (role, self.compressor.is_some()) {
            let extent = if last { room.extent } else { 0 };
            if bytes.len() > self.block || extent > 0 {
                let packing = self.pack(&bytes, usize::from(extent));
                if packing.cost() < self.flat_cost(bytes.len(), last, room) {
                    return Encoded {
                        bytes: packing.blocks,
                        len,
                        role,
                        extents: Some(packing.extents),
                        inline: packing.inline,
                    };
                }
            }
        }
        Encoded {
            bytes,
            len,
            role,
            extents: None,
            inline: None,
        }
    }

    /// Bytes that a part takes as it is.
    fn flat_cost(&self, len: usize, last: bool, room: Room) -> usize {
        match last && room.tail {
            true => len,
            false => len.next_multiple_of(self.block),
        }
    }

    fn pack(&mut self, bytes: &[u8], inline_room: usize) -> Packing {
        let mut packing = Packing {
            block: self.block,
            len: bytes.len(),
            ..Packing::default()
        };
        if let Some((_, encoder)) = &mut self.compressor {
            encoder.restart();
        }
        let mut at = 0;
        while at < bytes.len() {
            let rest = bytes.get(at..).unwrap_or_default();
            at += match self.extent(rest, at, inline_room) {
                Some((filled, inline)) => {
                    let encoded = self.cluster.get(..filled.produced).unwrap_or_default();
                    packing.compressed(at, encoded, inline);
                    filled.consumed
                }
                None => packing.plain(at, rest, self.cluster.len() / self.block / 4),
            };
        }
        packing
    }

    /// The next extent in the cluster, and whether it goes behind the inode.
    fn extent(&mut self, rest: &[u8], at: usize, inline_room: usize) -> Option<(Filled, bool)> {
        let block = self.block;
        if rest.len() <= block && inline_room == 0 {
            return None;
        }
        let longest = LONGEST * block - at % block;
        let input = rest.get(..longest).unwrap_or(rest);
        let (_, encoder) = self.compressor.as_mut()?;
        let filled = encoder.fill(input, &mut self.cluster)?;
        // Readers skip zeros in front of an extent.
        if self.cluster.first() == Some(&0) {
            return None;
        }
        if filled.consumed == rest.len() && filled.produced <= inline_room {
            return Some((filled, true));
        }
        let ends = filled.consumed == rest.len();
        let filled = match ends && inline_room > 0 && filled.produced > block {
            // Whole blocks, so that what is left can go behind the inode.
            true => {
                let whole = filled.produced - filled.produced % block;
                encoder.fill(input, self.cluster.get_mut(..whole)?)?
            }
            false => filled,
        };
        let stored = filled.produced.next_multiple_of(block);
        (filled.consumed > stored).then_some((filled, false))
    }
}

/// A part as it is compressed.
#[derive(Default)]
struct Packing {
    block: usize,
    len: usize,
    blocks: Vec<u8>,
    extents: Vec<Extent>,
    inline: Option<Vec<u8>>,
}

impl Packing {
    /// Bytes that it takes, with indexes.
    fn cost(&self) -> usize {
        let inline = self.inline.as_ref().map_or(0, Vec::len);
        let indexes = 8 + 4 * self.len.div_ceil(self.block).next_multiple_of(2);
        self.blocks.len() + inline + indexes
    }

    fn compressed(&mut self, at: usize, encoded: &[u8], inline: bool) {
        let stored = encoded.len().next_multiple_of(self.block);
        let extent = self.next(at, ExtentKind::Compressed);
        if inline {
            self.inline = Some(encoded.to_vec());
            self.extents.push(extent);
            return;
        }
        // Zeros first: the end of the extent is the end of its last block.
        self.blocks
            .resize(self.blocks.len() + stored - encoded.len(), 0);
        self.blocks.extend_from_slice(encoded);
        let blocks = count(stored / self.block);
        self.extents.push(Extent { blocks, ..extent });
    }

    /// Stores blocks as they are, and gives how many bytes of the part they hold.
    fn plain(&mut self, at: usize, rest: &[u8], blocks: usize) -> usize {
        let mut stored = 0;
        for bytes in rest.chunks(self.block).take(blocks.max(1)) {
            let extent = self.next(at + stored, ExtentKind::Plain);
            self.extents.push(Extent {
                blocks: 1,
                ..extent
            });
            self.blocks.extend_from_slice(bytes);
            let end = self.blocks.len().next_multiple_of(self.block);
            self.blocks.resize(end, 0);
            stored += bytes.len();
        }
        stored
    }

    fn next(&self, at: usize, kind: ExtentKind) -> Extent {
        Extent {
            at: u64_from(at),
            kind,
            block: count(self.blocks.len() / self.block),
            blocks: 0,
        }
    }
}

fn count(blocks: usize) -> u32 {
    // A part is not that long.
    u32::try_from(blocks).unwrap_or(u32::MAX)
}
