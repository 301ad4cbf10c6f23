//! The pieces of all files, the members of the compressed archive that hold them, and their digests.

use std::ops::{ControlFlow, Range};

use forerun_codec::Codec;
use forerun_io::{BlobId, Limits, u32_from, usize_from};
use forerun_spans::Compression;
use forerun_vfs::{Bound, DecodedLen, EncodedBlock, Error, Padding, Place, Result, Verifier};

use super::digest::{self, Sha};
use super::error::TocCheck;
use crate::node::Node;

/// A piece of a file: a chunk, in the words of the specifications.
#[derive(Clone, Debug)]
pub struct TocPiece {
    /// Offset in the file.
    pub logical: u64,
    pub len: u64,
    /// Offset of the member that holds it: of gzip, or a frame of Zstandard.
    pub offset: u64,
    /// Offset in what the member decodes to.
    pub inner: u64,
    /// End of the frame, where the table says it.
    pub end: Option<u64>,
    /// Digest; none for zeros, which are not read.
    pub digest: Option<Sha>,
}

/// The pieces of a file, as a range of all pieces.
pub struct FilePieces(pub Range<usize>);

/// A member of gzip or a frame of Zstandard.
#[derive(Debug)]
struct TocMember {
    offset: u64,
    len: u32,
    /// Bytes to decode: to the end of the last piece.
    decoded: DecodedLen,
    /// Its pieces, as a range of the order.
    pieces: Range<usize>,
}

/// The pieces of an archive.
pub struct Chunks {
    compression: Compression,
    pieces: Vec<TocPiece>,
    files: Vec<FilePieces>,
    /// The stored pieces by their place.
    order: Vec<usize>,
    members: Vec<TocMember>,
    /// The part of the archive that its maker wants read ahead.
    pub prefetch: Range<u64>,
}

impl Chunks {
    /// Puts pieces in order. The data of the archive ends at `data_end`.
    ///
    /// # Errors
    /// `Corrupt` for pieces that overlap, or end behind the data; `Limit`.
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

    /// Sets what is to be read ahead: all before the landmark.
    pub fn set_landmark(&mut self, landmark: Option<(u64, u64)>) {
        let end = landmark.and_then(|(offset, inner)| {
            let member = self.member(offset)?;
            // What is before it in its own member is wanted too.
            let own = if inner > 0 { u64::from(member.len) } else { 0 };
            Some(offset + own)
        });
        self.prefetch = 0..end.unwrap_or(0);
    }

    pub const fn compression(&self) -> Compression {
        self.compression
    }

    /// Returns the number of pieces.
    pub fn count(&self) -> usize {
        self.pieces.len()
    }

    /// Visits the places of the bytes of a file in `range`, until the visitor breaks.
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
        // Each stored piece has a member, and none is longer than `Limits::block_len`.
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

    /// Returns the blocks of all members.
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

    /// Groups the pieces by the members that hold them.
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

    /// Returns the piece at a place of the order.
    fn piece(&self, place: usize) -> Option<&TocPiece> {
        self.pieces.get(*self.order.get(place)?)
    }

    /// Makes a member of the pieces at these places of the order, which begin at one offset. The next member begins
    /// at `next`.
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
            // Bounded where the piece was added.
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
            // Headers of other members of the archive follow the pieces, and need not be read.
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
    /// Compares what a member decodes to with the digests of its pieces.
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

/// Returns the most bytes that are stored for `decoded` bytes: 9 bits for each with the codes of gzip that no encoder does
/// worse than, and a header with names. Zstandard takes less.
const fn longest(decoded: u64) -> u64 {
    const HEADER: u64 = 64 << 10;
    decoded + decoded / 8 + HEADER
}
