//! Converts an extent of an index or of records into extents of the engine.

use std::ops::{ControlFlow, Range};

use forerun_codec::Codec;
use forerun_io::{BlobId, ReadAt, usize_from};
use forerun_vfs::{Bound, DecodedLen, EncodedBlock, Error, Extent, NodeId, Padding, Place};

use super::check::ZmapCheck;
use super::{CompressedInode, Config, Piece, feature};

pub struct Placing<'m> {
    pub meta: &'m dyn ReadAt,
    pub config: &'m Config<'m>,
    pub inode: &'m CompressedInode,
}

/// Where an extent's bytes are stored.
#[derive(Clone, Debug)]
pub enum Source {
    Data(Range<u64>),
    /// In the metadata, after the index.
    Meta(Range<u64>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Uncompressed, from the start of the blocks.
    Plain,
    /// Uncompressed but rotated: each byte is at its offset in the file's block.
    Interlaced,
    /// Compressed; the format's number of the algorithm.
    Id(u8),
}

pub enum Failed {
    Check(ZmapCheck),
    Error(Error),
}

impl Failed {
    pub fn at(self, node: NodeId, offset: u64) -> Error {
        match self {
            Self::Check(check) => check.at(node, offset),
            Self::Error(error) => error,
        }
    }
}

impl From<ZmapCheck> for Failed {
    fn from(check: ZmapCheck) -> Self {
        Self::Check(check)
    }
}

impl Placing<'_> {
    /// Visits the pieces of one extent.
    pub fn give(
        &self,
        logical: Range<u64>,
        source: Source,
        algorithm: Algorithm,
        partial: bool,
        visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Failed> {
        if self.config.as_stored {
            let (Source::Data(at) | Source::Meta(at)) = source;
            return Ok(visit(Piece::Stored { logical, at }));
        }
        match algorithm {
            Algorithm::Plain => self.plain(logical, source, None, visit),
            Algorithm::Interlaced => {
                // Interlaced data starts in the last stored block, at the offset that it has in its
                // block of the file.
                let block = 1 << self.config.block_bits;
                let head = block - logical.start % block;
                self.plain(logical, source, Some(head), visit)
            }
            Algorithm::Id(id) => {
                let place = self.encoded(&logical, source, self.codec(id)?, partial)?;
                Ok(visit(Piece::Extent(Extent { logical, place })))
            }
        }
    }

    /// Visits uncompressed bytes. With `head`, the first `head` bytes are at the end of the stored
    /// bytes, and the rest at the start.
    fn plain(
        &self,
        logical: Range<u64>,
        source: Source,
        head: Option<u64>,
        visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Failed> {
        let (Source::Data(range) | Source::Meta(range)) = &source;
        let len = logical.end - logical.start;
        let stored = range.end - range.start;
        if len > stored {
            return Err(ZmapCheck::Plain { len, stored }.into());
        }
        let head = match (head, &source) {
            (Some(head), Source::Data(_)) if head < stored => head,
            (Some(_) | None, _) => stored,
        };
        let (blob, start) = match &source {
            Source::Data(range) => self.locate(range)?,
            Source::Meta(range) => {
                self.in_meta(range)?;
                if !self.inode.in_image {
                    let place = Place::Inline(self.read(range, len)?.into());
                    return Ok(visit(Piece::Extent(Extent { logical, place })));
                }
                (BlobId::IMAGE, range.start)
            }
        };
        let cut = (logical.start + head).min(logical.end);
        let first = Extent {
            logical: logical.start..cut,
            place: Place::Stored {
                blob,
                offset: start + (stored - head),
            },
        };
        if visit(Piece::Extent(first)).is_break() {
            return Ok(ControlFlow::Break(()));
        }
        if cut == logical.end {
            return Ok(ControlFlow::Continue(()));
        }
        Ok(visit(Piece::Extent(Extent {
            logical: cut..logical.end,
            place: Place::Stored {
                blob,
                offset: start,
            },
        })))
    }

    fn encoded(
        &self,
        logical: &Range<u64>,
        source: Source,
        codec: Codec,
        partial: bool,
    ) -> Result<Place, Failed> {
        let len = logical.end - logical.start;
        let decoded = u32::try_from(len).map_err(|_| ZmapCheck::ExtentLen { len })?;
        let (Source::Data(range) | Source::Meta(range)) = &source;
        let stored = range.end - range.start;
        let stored = u32::try_from(stored).map_err(|_| ZmapCheck::ExtentLen { len: stored })?;
        let padded = codec != Codec::Lz4 || self.config.features & feature::ZERO_PADDING != 0;
        let (blob, offset) = match &source {
            Source::Data(range) => self.locate(range)?,
            Source::Meta(range) => {
                self.in_meta(range)?;
                (BlobId::IMAGE, range.start)
            }
        };
        let block = EncodedBlock {
            blob,
            offset,
            len: stored,
            codec,
            // Without leading zeros, only the decoded length tells where an LZ4 stream ends.
            decoded_len: if partial || !padded {
                DecodedLen::Prefix(decoded)
            } else {
                DecodedLen::Exact(decoded)
            },
            padding: if padded {
                Padding::Leading
            } else {
                Padding::None
            },
        };
        match source {
            Source::Meta(range) if !self.inode.in_image => self.decoded(&block, &range),
            Source::Meta(_) | Source::Data(_) => Ok(Place::Encoded { block, skip: 0 }),
        }
    }

    /// Decodes a tail in the metabox, which only the driver can read.
    fn decoded(&self, block: &EncodedBlock, range: &Range<u64>) -> Result<Place, Failed> {
        let decoded = block.decoded_len.max();
        if decoded > MAX_TAIL {
            let what = format!("inline tail of {decoded} bytes");
            return Err(Failed::Error(Error::limit(
                Bound::Other,
                what,
                u64::from(MAX_TAIL),
            )));
        }
        let stored = self.read(range, u64::from(block.len))?;
        let mut out = vec![0; usize_from(u64::from(decoded))];
        let result = block.decode(&stored, &mut out);
        result.map_err(|source| ZmapCheck::Tail { source })?;
        Ok(Place::Inline(out.into()))
    }

    fn read(&self, range: &Range<u64>, len: u64) -> Result<Vec<u8>, Failed> {
        let mut bytes = vec![0; usize_from(len)];
        let read = self.meta.read_exact_at(range.start, &mut bytes);
        read.map_err(|error| Failed::Error(Error::io(range.start, bytes.len(), error)))?;
        Ok(bytes)
    }

    fn in_meta(&self, range: &Range<u64>) -> Result<(), ZmapCheck> {
        let len = self.meta.len();
        if range.end <= len && range.start < range.end {
            return Ok(());
        }
        let range = range.clone();
        Err(ZmapCheck::TailOutside { range, len })
    }

    /// Resolves a physical range to the blob that holds all of it, and the offset there.
    fn locate(&self, range: &Range<u64>) -> Result<(BlobId, u64), ZmapCheck> {
        let len = range.end - range.start;
        match (self.config.locate)(range.start) {
            Some((blob, offset, most)) if len > 0 && len <= most => Ok((blob, offset)),
            _ => {
                let range = range.clone();
                Err(ZmapCheck::DataOutside { range })
            }
        }
    }

    fn codec(&self, id: u8) -> Result<Codec, Failed> {
        let set = self.config.algorithms;
        if u32::from(set).checked_shr(u32::from(id)).unwrap_or(0) & 1 == 0 {
            return Err(ZmapCheck::Algorithm { id, set }.into());
        }
        Ok(match id {
            0 => Codec::Lz4,
            1 => Codec::MicroLzma,
            2 => Codec::Deflate,
            3 => Codec::Zstd,
            _ => {
                let what = format!("compression algorithm {id}");
                return Err(Failed::Error(Error::Unsupported(what)));
            }
        })
    }
}

/// The longest inline tail that is decoded here: the longest possible extent.
const MAX_TAIL: u32 = 16 << 20;
