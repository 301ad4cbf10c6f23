//! The chunks of all files, the members of the compressed archive that store them, and their
//! digests.

use std::ops::{ControlFlow, Range};

use forerun_codec::Codec;
use forerun_io::{BlobId, Limits, u32_from, usize_from};
use forerun_spans::Compression;
use forerun_vfs::{Bound, DecodedLen, EncodedBlock, Error, Padding, Place, Result, Verifier};

use super::digest::{self, Sha};
use super::error::TocCheck;
use crate::node::Node;

#[derive(Clone, Debug)]
pub struct TocPiece {
    pub logical: u64,
    pub len: u64,
    /// Offset of the gzip member or Zstandard frame that stores the chunk.
    pub offset: u64,
    /// Offset in the decoded member.
    pub inner: u64,
    /// End of the frame, if the table states it.
    pub end: Option<u64>,
    /// Digest; `None` for zeros, which are not read.
    pub digest: Option<Sha>,
}

/// The chunks of a file, as a range of all chunks.
pub struct FilePieces(pub Range<usize>);

#[derive(Debug)]
struct TocMember {
    offset: u64,
    len: u32,
    /// Number of bytes to decode: up to the end of the last chunk.
    decoded: DecodedLen,
    /// The chunks of the member, as a range of `Chunks::order`.
    pieces: Range<usize>,
}

pub struct Chunks {
    compression: Compression,
    pieces: Vec<TocPiece>,
    files: Vec<FilePieces>,
    /// Indices of the stored chunks, in the order of the archive.
    order: Vec<usize>,
    members: Vec<TocMember>,
    /// The range of the archive that its creator wants prefetched.
    pub prefetch: Range<u64>,
}

impl Chunks {
    /// Sorts and validates chunks. The data of the archive ends at `data_end`. Chunks that overlap
    /// or end after the data are `Corrupt`.
    pub fn new(
        compression: Compression,
        (pieces, files): (Vec<TocPiece>, Vec<FilePieces>),
        data_end: u64,
        limits: &Limits,
    ) -> Result<Self> {
        let stored = pieces.iter().enumerate();
        let mut order: Vec<usize> = stored
            .filter(|(_, piece)| piece.digest.is_some())
            .map(|(at, _)| at)
            .collect();
        order.sort_unstable_by_key(|&at| pieces.get(at).map(|piece| (piece.offset, piece.inner)));
        let mut chunks = Self {
            compression,
            pieces,
            files,
            order,
            members: Vec::new(),
            prefetch: 0..0,
        };
        chunks.members = chunks.members(data_end, limits)?;
        Ok(chunks)
    }

    /// Sets the prefetch range: everything before the landmark.
    pub fn set_landmark(&mut self, landmark: Option<(u64, u64)>) {
        let end = landmark.and_then(|(offset, inner)| {
            let member = self.member(offset)?;
            // The chunks before the landmark in its own member are wanted too.
            let own = if inner > 0 { u64::from(member.len) } else { 0 };
            Some(offset + own)
        });
        self.prefetch = 0..end.unwrap_or(0);
    }

    pub const fn compression(&self) -> Compression {
        self.compression
    }

    pub fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Visits the locations of the bytes of a file in `range`, until the visitor breaks.
    pub fn map(
        &self,
        node: &Node,
        range: Range<u64>,
        visit: &mut dyn FnMut(Range<u64>, Place) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let range = range.start..range.end.min(node.size);
        let file = self.files.get(usize_from(node.data));
        let pieces = file.and_then(|file| self.pieces.get(file.0.clone()));
        let pieces = pieces.unwrap_or_default();
        let first = pieces.partition_point(|piece| piece.logical + piece.len <= range.start);
        for piece in &pieces[first..] {
            let end = piece.logical + piece.len;
            let part = piece.logical.max(range.start)..end.min(range.end);
            if part.is_empty() {
                break;
            }
            let within = part.start - piece.logical;
            visit(part, self.place(piece, within))?;
        }
        ControlFlow::Continue(())
    }

    fn place(&self, piece: &TocPiece, within: u64) -> Place {
        // Each stored chunk has a member, and none is longer than `Limits::block_len`.
        let Some(member) = self.member(piece.offset).filter(|_| piece.digest.is_some()) else {
            return Place::Zero;
        };
        Place::Encoded {
            block: self.block(member),
            skip: u32_from(piece.inner + within),
        }
    }

    const fn block(&self, member: &TocMember) -> EncodedBlock {
        let codec = match self.compression {
            Compression::Gzip => Codec::Gzip,
            _ => Codec::Zstd,
        };
        EncodedBlock {
            blob: BlobId::IMAGE,
            offset: member.offset,
            len: member.len,
            codec,
            decoded_len: member.decoded,
            padding: Padding::None,
        }
    }

    /// Returns all members as blocks.
    #[cfg(feature = "fuzzing")]
    pub fn blocks(&self) -> impl Iterator<Item = EncodedBlock> {
        self.members.iter().map(|member| self.block(member))
    }

    fn member(&self, offset: u64) -> Option<&TocMember> {
        let found = self
            .members
            .binary_search_by_key(&offset, |member| member.offset);
        self.members.get(found.ok()?)
    }

    /// Groups the chunks by member.
    fn members(&self, data_end: u64, limits: &Limits) -> Result<Vec<TocMember>> {
        let mut members: Vec<TocMember> = Vec::new();
        let mut start = 0;
        while let Some(first) = self.piece(start) {
            let len = self.order[start..]
                .iter()
                .take_while(|&&at| self.pieces[at].offset == first.offset)
                .count();
            let end = start + len;
            let next = self.piece(end).map(|piece| piece.offset);
            members.push(self.group(start..end, next, data_end, limits)?);
            start = end;
        }
        Ok(members)
    }

    /// Returns the chunk at a position of the order.
    fn piece(&self, place: usize) -> Option<&TocPiece> {
        self.pieces.get(*self.order.get(place)?)
    }

    /// Returns the member of the chunks at these positions of the order, which share one offset.
    /// The next member begins at `next`.
    fn group(
        &self,
        places: Range<usize>,
        next: Option<u64>,
        data_end: u64,
        limits: &Limits,
    ) -> Result<TocMember> {
        let (mut offset, mut stored_end, mut decoded) = (0, None, 0_u64);
        for (number, piece) in places.clone().filter_map(|at| self.piece(at)).enumerate() {
            offset = piece.offset;
            if number > 0 && piece.inner < decoded {
                let (first, second) = (offset, offset);
                return Err(TocCheck::Overlap { first, second }.at(offset));
            }
            // Bounded when the chunk was added.
            decoded = piece.inner + piece.len;
            stored_end = piece.end;
        }
        let end = stored_end.or(next).unwrap_or(data_end);
        if let Some(second) = next.filter(|&next| next < end) {
            let first = offset;
            return Err(TocCheck::Overlap { first, second }.at(offset));
        }
        if end > data_end || end <= offset {
            let limit = data_end;
            let end = end.max(offset);
            return Err(TocCheck::Behind { end, limit }.at(offset));
        }
        let decoded_len = u32_from(decoded);
        let (len, decoded) = match stored_end {
            Some(_) => (end - offset, DecodedLen::Exact(decoded_len)),
            // Headers of other archive members follow the chunks, and need not be decoded.
            None => (
                (end - offset).min(longest(decoded)),
                DecodedLen::Prefix(decoded_len),
            ),
        };
        let most = u64::from(limits.block_len);
        if len > most {
            let what = format!("piece at {offset:#x} of the archive, in bytes,");
            return Err(Error::limit(Bound::Other, what, most));
        }
        Ok(TocMember {
            offset,
            len: u32_from(len),
            decoded,
            pieces: places,
        })
    }
}

impl Verifier for Chunks {
    /// Compares a decoded member with the digests of its chunks.
    fn verify(&self, block: &EncodedBlock, decoded: &[u8]) -> Result<()> {
        let member = self.member(block.offset);
        let member = member.filter(|member| self.block(member) == *block);
        let member = member.ok_or_else(|| TocCheck::Unknown.at(block.offset))?;
        let order = &self.order[member.pieces.clone()];
        for piece in order.iter().map(|&at| &self.pieces[at]) {
            let start = usize_from(piece.inner);
            let end = start + usize_from(piece.len);
            let bytes = decoded.get(start..end).unwrap_or_default();
            let found = digest::of(bytes);
            if Some(found) != piece.digest {
                let check = TocCheck::Piece {
                    start: piece.inner,
                    len: piece.len,
                    expected: digest::hex(&piece.digest.unwrap_or_default()),
                    found: digest::hex(&found),
                };
                return Err(check.at(block.offset));
            }
        }
        Ok(())
    }

    fn proves(&self, place: &Place) -> bool {
        matches!(place, Place::Encoded { .. })
    }
}

/// Returns the largest stored size of `decoded` bytes: 9 bits per byte, the worst case of any gzip
/// encoder, and a header with names. Zstandard needs less.
const fn longest(decoded: u64) -> u64 {
    const HEADER: u64 = 64 << 10;
    decoded + decoded / 8 + HEADER
}
