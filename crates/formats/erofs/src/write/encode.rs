//! Compresses parts of files.
//!
//! A part becomes consecutive extents, each of which fills a physical cluster as far as possible.
//! Data that does not shrink by at least a block is stored uncompressed, block by block; so is a
//! whole part without any gain.

use forerun_build::BuildError;
use forerun_codec::{FillEncoder, Filled};
use forerun_io::{u32_from, u64_from, usize_from};

use super::cannot;
use super::data::{Extent, ExtentKind};
use super::options::{Compression, ErofsOptions, Fragments};
use super::pack::{Part, Role, Room};

/// Most blocks of a file in one extent: index entries count them in eleven bits.
const LONGEST: usize = 1024;

pub struct Encoded {
    pub bytes: Vec<u8>,
    /// Length in the file.
    pub len: u64,
    pub role: Role,
    /// The extents of a compressed part, with offsets and blocks relative to the part. `None` if
    /// the part is stored uncompressed.
    pub extents: Option<Vec<Extent>>,
    /// The last extent, if it becomes an inline tail.
    pub inline: Option<Vec<u8>>,
    /// The bytes of the last extent, if it becomes a fragment.
    pub fragment: Option<Vec<u8>>,
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
            Ok::<_, BuildError>((compression, encoder))
        });
        let compressor = compressor.transpose()?;
        let cluster = compressor.as_ref().map_or(0, |(with, _)| with.cluster_size);
        Ok(Self {
            block: options.block(),
            compressor,
            cluster: vec![0; usize_from(cluster.into())],
        })
    }

    pub fn encode(&mut self, part: Part) -> Encoded {
        let Part { bytes, role } = part;
        let len = u64_from(bytes.len());
        let as_is = Encoded {
            bytes,
            len,
            role,
            extents: None,
            inline: None,
            fragment: None,
        };
        let (Role::Body { last, room, .. }, true) = (role, self.compressor.is_some()) else {
            return as_is;
        };
        if room.fragments == Fragments::All {
            return Encoded {
                extents: Some(vec![FRAGMENT]),
                fragment: Some(as_is.bytes),
                bytes: Vec::new(),
                ..as_is
            };
        }
        let ends = Ends {
            inline: if last { room.extent.into() } else { 0 },
            fragment: last && room.fragments == Fragments::Tails,
        };
        if as_is.bytes.len() > self.block || ends.somewhere() {
            let packing = self.pack(&as_is.bytes, ends);
            if packing.cost() < self.flat_cost(as_is.bytes.len(), last, room) {
                return Encoded {
                    bytes: packing.blocks,
                    extents: Some(packing.extents),
                    inline: packing.inline,
                    fragment: packing.fragment,
                    ..as_is
                };
            }
        }
        as_is
    }

    fn flat_cost(&self, len: usize, last: bool, room: Room) -> usize {
        if last && room.tail {
            len
        } else {
            len.next_multiple_of(self.block)
        }
    }

    fn pack(&mut self, bytes: &[u8], ends: Ends) -> PartInProgress {
        let mut packing = PartInProgress {
            block: self.block,
            len: bytes.len(),
            ..PartInProgress::default()
        };
        if let Some((_, encoder)) = &mut self.compressor {
            encoder.restart();
        }
        let mut at = 0;
        while at < bytes.len() {
            let rest = bytes.get(at..).unwrap_or_default();
            at += match self.extent(rest, at, ends) {
                Some((filled, End::Fragment)) => {
                    packing.fragment(at, rest, filled.produced);
                    filled.consumed
                }
                Some((filled, end)) => {
                    let encoded = self.cluster.get(..filled.produced).unwrap_or_default();
                    packing.compressed(at, encoded, end == End::Inline);
                    filled.consumed
                }
                None => packing.plain(at, rest, self.cluster.len() / self.block / 4),
            };
        }
        packing
    }

    /// Encodes the next extent into the cluster, and chooses where to store it.
    fn extent(&mut self, rest: &[u8], at: usize, ends: Ends) -> Option<(Filled, End)> {
        let block = self.block;
        if rest.len() <= block && !ends.somewhere() {
            return None;
        }
        let longest = LONGEST * block - at % block;
        let input = rest.get(..longest).unwrap_or(rest);
        let (_, encoder) = self.compressor.as_mut()?;
        let filled = encoder.fill(input, &mut self.cluster);
        if let Some(fragment) = filled_fragment(rest, filled, block).filter(|_| ends.fragment) {
            return Some((fragment, End::Fragment));
        }
        let filled = filled?;
        // Readers skip leading zeros of a block, so the encoded bytes must not start with one.
        if self.cluster.first() == Some(&0) {
            return None;
        }
        let is_last = filled.consumed == rest.len();
        if is_last && filled.produced <= ends.inline {
            return Some((filled, End::Inline));
        }
        let filled = match is_last && ends.inline > 0 && filled.produced > block {
            // Fill whole blocks, so that the rest can become the inline tail.
            true => {
                let whole = filled.produced - filled.produced % block;
                encoder.fill(input, self.cluster.get_mut(..whole)?)?
            }
            false => filled,
        };
        let stored = filled.produced.next_multiple_of(block);
        (filled.consumed > stored).then_some((filled, End::Blocks))
    }
}

/// Returns the end of a file as a fragment if that saves at least an eighth of a block.
fn filled_fragment(rest: &[u8], filled: Option<Filled>, block: usize) -> Option<Filled> {
    let whole = Filled {
        consumed: rest.len(),
        produced: rest.len(),
    };
    let filled = match filled {
        Some(filled) if filled.consumed == rest.len() => filled,
        Some(_) | None if rest.len() < block => whole,
        Some(_) | None => return None,
    };
    let wasted = filled.produced.next_multiple_of(block) - filled.produced;
    (wasted >= block / 8).then_some(filled)
}

/// An extent in the packed inode, at the start of a part.
const FRAGMENT: Extent = Extent {
    at: 0,
    kind: ExtentKind::Fragment,
    block: 0,
    blocks: 0,
};

/// Where the end of a file may be stored other than in blocks.
#[derive(Clone, Copy)]
struct Ends {
    /// Most bytes of an inline tail.
    inline: usize,
    fragment: bool,
}

impl Ends {
    const fn somewhere(self) -> bool {
        self.inline > 0 || self.fragment
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Blocks,
    Inline,
    Fragment,
}

#[derive(Default)]
struct PartInProgress {
    block: usize,
    len: usize,
    blocks: Vec<u8>,
    extents: Vec<Extent>,
    inline: Option<Vec<u8>>,
    fragment: Option<Vec<u8>>,
    /// Estimated cost of the fragment in bytes.
    fragment_cost: usize,
}

impl PartInProgress {
    /// Returns the cost of the part in bytes, with its index.
    fn cost(&self) -> usize {
        let inline = self.inline.as_ref().map_or(0, Vec::len);
        let indexes = match self.extents.as_slice() {
            [only] if only.kind == ExtentKind::Fragment => 0,
            _ => 4 * self.len.div_ceil(self.block).next_multiple_of(2),
        };
        self.blocks.len() + inline + self.fragment_cost + 8 + indexes
    }

    /// Records a fragment. `cost` is its compressed length on its own.
    fn fragment(&mut self, at: usize, bytes: &[u8], cost: usize) {
        let at = u64_from(at);
        self.extents.push(Extent { at, ..FRAGMENT });
        self.fragment = Some(bytes.to_vec());
        // Compressible data costs less when it is compressed with other data.
        self.fragment_cost = if cost < bytes.len() { cost / 2 } else { cost };
    }

    fn compressed(&mut self, at: usize, encoded: &[u8], inline: bool) {
        let stored = encoded.len().next_multiple_of(self.block);
        let extent = self.next(at, ExtentKind::Compressed);
        if inline {
            self.inline = Some(encoded.to_vec());
            self.extents.push(extent);
            return;
        }
        // Pad at the front: the stream ends with its last block.
        self.blocks
            .resize(self.blocks.len() + stored - encoded.len(), 0);
        self.blocks.extend_from_slice(encoded);
        let blocks = count(stored / self.block);
        self.extents.push(Extent { blocks, ..extent });
    }

    /// Stores uncompressed blocks. Returns their length in the part.
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
    // Parts have far fewer blocks than 2^32.
    u32_from(u64_from(blocks))
}
