//! Stores encoded parts at their final positions, in file order.

use std::collections::HashMap;

use forerun_build::{BuildError, ContentHash, NodeIndex};
use forerun_io::{u32_from, u64_from, usize_from};

use super::cannot;
use super::data::{Body, Data, Extent, ExtentKind, FileData, Packed, PackedInode};
use super::encode::Encoded;
use super::fragments::Collected;
use super::options::ErofsOptions;
use super::pack::{Role, Room};
use super::sink::Sink;
use super::spool::Spool;

pub struct Store<'s, 'k, 'o> {
    block: usize,
    sink: &'s mut Sink<'k, 'o>,
    tails: Spool,
    /// First block of each chunk.
    chunks: Vec<u32>,
    bodies: Vec<Body>,
    current: Current,
    blocks: u64,
    /// First block of each extent that may be shared, by decoded length and hash of the encoded
    /// bytes.
    extents: Option<HashMap<(u64, ContentHash), u32>>,
    shared: bool,
    fragments: Collected,
}

#[derive(Default)]
struct Current {
    start: u32,
    /// Length of the file before the next part.
    len: u64,
    /// `None` while the whole file is stored uncompressed.
    packed: Option<Packed>,
    /// The uncompressed bytes before the next part.
    run: Option<Extent>,
}

impl<'s, 'k, 'o> Store<'s, 'k, 'o> {
    /// `files` is the number of files, an upper bound on the bodies.
    pub fn new(options: &ErofsOptions, files: usize, sink: &'s mut Sink<'k, 'o>) -> Self {
        let packed = options.compression.as_ref();
        let share = packed.is_some_and(|packed| packed.share_extents);
        Self {
            block: options.block(),
            sink,
            tails: Spool::default(),
            chunks: Vec::new(),
            // Reserves memory that is not touched unless used.
            bodies: Vec::with_capacity(files),
            current: Current::default(),
            blocks: 0,
            extents: share.then(HashMap::new),
            shared: false,
            fragments: Collected::default(),
        }
    }

    pub fn add(&mut self, part: Encoded) -> Result<(), BuildError> {
        let (first, last, room) = match part.role {
            Role::Chunk => {
                self.chunks.push(self.here()?);
                return self.blocks(&part.bytes);
            }
            Role::Body { first, last, room } => (first, last, room),
        };
        if first {
            self.current = Current {
                start: self.here()?,
                ..Current::default()
            };
        }
        match part.extents {
            Some(extents) => match part.fragment {
                // The whole file so far is uncompressed: an index would cost more than the fragment
                // saves.
                Some(end) if extents.len() == 1 && self.is_raw() => self.raw(&end, last, room)?,
                fragment => {
                    self.packed(extents, &part.bytes, part.inline)?;
                    self.current.len += part.len;
                    if let Some(fragment) = fragment {
                        self.fragment(&fragment, last)?;
                    }
                }
            },
            None => self.raw(&part.bytes, last, room)?,
        }
        if last {
            let current = std::mem::take(&mut self.current);
            // `raw` has already added an uncompressed body.
            if let Some(mut packed) = current.packed {
                packed.extents.shrink_to_fit();
                self.bodies.push(Body::Packed(packed));
            }
        }
        Ok(())
    }

    pub fn take_fragments(&mut self) -> Collected {
        std::mem::take(&mut self.fragments)
    }

    pub fn last_body(&self) -> usize {
        self.bodies.len() - 1
    }

    pub fn finish(self, files: HashMap<NodeIndex, FileData>, packed: Option<PackedInode>) -> Data {
        Data {
            files,
            packed,
            bodies: self.bodies,
            chunks: self.chunks,
            tails: self.tails,
            blocks: self.blocks,
            shared: self.shared,
        }
    }

    /// Returns the next block to be written.
    fn here(&self) -> Result<u32, BuildError> {
        // Block number `u32::MAX` is reserved: it means no data.
        let block = u32::try_from(self.blocks).ok();
        let block = block.filter(|&block| block < u32::MAX);
        block.ok_or_else(|| cannot(format!("{} blocks of data", self.blocks)))
    }

    /// Stores whole blocks. Pads the last one with zeros.
    fn blocks(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        self.sink.append(bytes)?;
        let rest = bytes.len().next_multiple_of(self.block) - bytes.len();
        if rest > 0 {
            self.sink.append(&vec![0; rest])?;
        }
        self.blocks += u64_from(bytes.len().div_ceil(self.block));
        Ok(())
    }

    /// Returns whether the file so far has stored data, none of it compressed.
    fn is_raw(&self) -> bool {
        self.current.packed.is_none() && self.current.run.is_some()
    }

    /// Collects a fragment, or the next part of one.
    fn fragment(&mut self, bytes: &[u8], last: bool) -> Result<(), BuildError> {
        let Some(packed) = &mut self.current.packed else {
            return Ok(());
        };
        if packed.fragment.is_some() {
            return self.fragments.append(bytes).map(drop);
        }
        let offset = if last {
            self.fragments.add(bytes)?
        } else {
            self.fragments.append(bytes)?
        };
        packed.fragment = Some(offset);
        // A full index can hold the high half of the offset in place of a block number.
        let upper = u32_from(offset >> 32);
        packed.scattered |= upper > 0;
        if let Some(extent) = packed.extents.last_mut() {
            extent.block = upper;
        }
        Ok(())
    }

    fn raw(&mut self, bytes: &[u8], last: bool, room: Room) -> Result<(), BuildError> {
        let block = self.here()?;
        let len = u64_from(bytes.len());
        let at = self.current.len;
        self.current.len += len;
        let extent = Extent {
            at,
            kind: ExtentKind::Run,
            block,
            blocks: u32_from(u64_from(bytes.len().div_ceil(self.block))),
        };
        if let Some(packed) = &mut self.current.packed {
            packed.blocks += extent.blocks;
            packed.extents.push(extent);
            return self.blocks(bytes);
        }
        // Remember the start: the file may become compressed later.
        let run = self.current.run.get_or_insert(Extent {
            blocks: 0,
            ..extent
        });
        run.blocks += extent.blocks;
        if !last {
            return self.blocks(bytes);
        }
        let start = self.current.start;
        let whole = if room.tail {
            bytes.len() - bytes.len() % self.block
        } else {
            bytes.len()
        };
        let (whole, tail) = bytes.split_at_checked(whole).unwrap_or((bytes, &[]));
        self.blocks(whole)?;
        let tail = if tail.is_empty() {
            None
        } else {
            Some(self.tails.append(tail)?)
        };
        self.bodies.push(Body::Flat { start, tail });
        Ok(())
    }

    fn packed(
        &mut self,
        extents: Vec<Extent>,
        bytes: &[u8],
        inline: Option<Vec<u8>>,
    ) -> Result<(), BuildError> {
        let mut packed = match self.current.packed.take() {
            Some(packed) => packed,
            None => Packed {
                blocks: self.current.run.map_or(0, |run| run.blocks),
                extents: self.current.run.into_iter().collect(),
                ..Packed::default()
            },
        };
        let (first, at) = (self.here()?, self.current.len);
        let mut decoded = extents.iter().skip(1).map(|extent| extent.at);
        for extent in &extents {
            let placed = Extent {
                at: at + extent.at,
                block: first + extent.block,
                ..*extent
            };
            if extent.kind == ExtentKind::Fragment && packed.fragment.is_some() {
                continue;
            }
            // The last extent of a part may be longer than its duplicate, so it is not
            // deduplicated.
            let len = decoded.next().map(|end| end - extent.at);
            let placed = self.store_extent(placed, extent, bytes, len, &mut packed)?;
            packed.blocks += placed.blocks;
            packed.extents.push(placed);
        }
        if self.extents.is_none() {
            self.blocks(bytes)?;
        }
        if let Some(inline) = inline {
            packed.inline = Some(self.tails.append(&inline)?);
        }
        self.current.packed = Some(packed);
        Ok(())
    }

    /// If extents are shared, stores the extent's blocks unless equal ones are stored. Returns the
    /// extent with its final block.
    fn store_extent(
        &mut self,
        placed: Extent,
        extent: &Extent,
        bytes: &[u8],
        len: Option<u64>,
        packed: &mut Packed,
    ) -> Result<Extent, BuildError> {
        if self.extents.is_none() || extent.blocks == 0 {
            return Ok(placed);
        }
        let from = usize_from(extent.block.into()) * self.block;
        let stored = usize_from(extent.blocks.into()) * self.block;
        let bytes = &bytes[from..from + stored];
        let key = len.map(|len| (len, *blake3::hash(bytes).as_bytes()));
        let known = self.extents.as_ref();
        let known = known.and_then(|known| known.get(&key?).copied());
        packed.scattered = true;
        if let Some(block) = known {
            self.shared = true;
            return Ok(Extent { block, ..placed });
        }
        let block = self.here()?;
        self.blocks(bytes)?;
        if let (Some(known), Some(key)) = (&mut self.extents, key) {
            known.insert(key, block);
        }
        Ok(Extent { block, ..placed })
    }
}
