//! The assembly of one read from its extents.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Corrupt, Error, Extent, Place, Result};

use super::buffer::Buffer;
use super::moves::Moves;
use super::stored::Use;
use crate::Data;

/// Extents that do not cover a read: a defect of the driver, or of an image that the driver should
/// have refused. Checked here, so that stale bytes of a buffer are never served.
#[derive(Debug, thiserror::Error)]
enum MapError {
    #[error("no extent covers bytes {start}..{end} of the file")]
    Gap { start: u64, end: u64 },
    #[error("the next byte of the file is {at}, but its extent covers {start}..{end}")]
    Behind { start: u64, end: u64, at: u64 },
    #[error("the extent {start}..{end} of the file ends past the largest offset")]
    Beyond { start: u64, end: u64 },
    #[error("an inline extent has {have} bytes instead of {want}")]
    ShortInline { have: usize, want: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    Shared,
    /// No other read wants the blocks, so they are decoded straight into the answer and not cached.
    Own,
}

/// A read in progress, which collects the bytes of its extents in order.
pub struct Assembly<'a> {
    moves: &'a Moves,
    range: Range<u64>,
    blocks: Blocks,
    at: u64,
    target: Target<'a>,
    error: Option<Error>,
}

enum Target<'a> {
    /// No bytes yet: one extent may still serve the whole range without a copy.
    Undecided,
    Whole(Data),
    Buffer(Buffer),
    Slice(&'a mut [u8]),
}

impl<'a> Assembly<'a> {
    pub const fn new(moves: &'a Moves, range: Range<u64>, blocks: Blocks) -> Self {
        let at = range.start;
        Self {
            moves,
            range,
            blocks,
            at,
            target: Target::Undecided,
            error: None,
        }
    }

    /// Creates a read into `out`, which must be as long as `range`.
    pub const fn into_slice(
        moves: &'a Moves,
        range: Range<u64>,
        blocks: Blocks,
        out: &'a mut [u8],
    ) -> Self {
        let at = range.start;
        Self {
            moves,
            range,
            blocks,
            at,
            target: Target::Slice(out),
            error: None,
        }
    }

    /// Adds the bytes of the next extent. Breaks when the read is complete or has failed.
    pub fn add(&mut self, extent: Extent) -> ControlFlow<()> {
        match self.take(&extent) {
            Ok(()) if self.at < self.range.end => ControlFlow::Continue(()),
            Ok(()) => ControlFlow::Break(()),
            Err(error) => {
                self.error = Some(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Returns the bytes; they are empty if the read went into the caller's slice.
    pub fn finish(self) -> Result<Data> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.at < self.range.end {
            return Err(self.corrupt(MapError::Gap {
                start: self.at,
                end: self.range.end,
            }));
        }
        let empty = || self.moves.stored.buffers.take(0);
        let buffer = match self.target {
            Target::Whole(data) => return Ok(data),
            Target::Buffer(buffer) => buffer,
            Target::Undecided | Target::Slice(_) => empty(),
        };
        let len = buffer.len();
        let data = Data::of_buffer(Arc::new(buffer), 0..len);
        data.ok_or_else(|| {
            Error::io(
                self.range.start,
                len,
                std::io::ErrorKind::UnexpectedEof.into(),
            )
        })
    }

    fn take(&mut self, extent: &Extent) -> Result<()> {
        let Range { start, end } = extent.logical;
        let at = self.at;
        if start > at {
            return Err(self.corrupt(MapError::Gap {
                start: at,
                end: start,
            }));
        }
        if end <= at {
            return Err(self.corrupt(MapError::Behind { start, end, at }));
        }
        if !extent.is_addressable() {
            return Err(self.corrupt(MapError::Beyond { start, end }));
        }
        let skip = self.at - start;
        let to = end.min(self.range.end);
        let whole = self.at == self.range.start && to == self.range.end;
        let is_own =
            self.blocks == Blocks::Own && extent.is_whole_block() && skip == 0 && to == end;
        if whole
            && matches!(self.target, Target::Undecided)
            && let Some(data) = self.without_copy(&extent.place, skip, is_own)?
        {
            self.target = Target::Whole(data);
            self.at = to;
            return Ok(());
        }
        let part = usize_from(self.at - self.range.start)..usize_from(to - self.range.start);
        self.fill(&extent.place, skip, part, is_own)?;
        self.at = to;
        Ok(())
    }

    /// Returns the whole range as a slice of one block or segment, if one holds all of it.
    fn without_copy(&self, place: &Place, skip: u64, is_own: bool) -> Result<Option<Data>> {
        let len = self.range.end - self.range.start;
        match place {
            Place::Stored { blob, offset } => {
                let start = offset + skip;
                let range = start..start + len;
                Ok(self.moves.stored.slice(*blob, &range, Use::Serve))
            }
            Place::Encoded { block, .. } if is_own && self.moves.decoded.take(block) => {
                let bytes = self.moves.decoded.once(block, &self.moves.stored)?;
                Ok(Some(bytes))
            }
            Place::Encoded { block, skip: first } => {
                let bytes = self.moves.decoded.get(block, &self.moves.stored)?;
                let from = usize_from(skip + u64::from(*first));
                self.moves.decoded.served(&bytes, len);
                Ok(bytes.into_data().part(from..from + usize_from(len)))
            }
            Place::Inline(bytes) => {
                let from = usize_from(skip);
                Ok(Data::of_block(
                    Arc::clone(bytes),
                    from..from + usize_from(len),
                ))
            }
            Place::Zero => Ok(None),
        }
    }

    fn fill(&mut self, place: &Place, skip: u64, part: Range<usize>, is_own: bool) -> Result<()> {
        if matches!(self.target, Target::Undecided) {
            let len = usize_from(self.range.end - self.range.start);
            self.target = Target::Buffer(self.moves.stored.buffers.take(len));
        }
        let moves = self.moves;
        let out = match &mut self.target {
            Target::Buffer(buffer) => &mut buffer.as_mut()[part],
            Target::Slice(slice) => &mut slice[part],
            Target::Undecided | Target::Whole(_) => &mut [],
        };
        let copy = |from: &[u8], at: u64, out: &mut [u8]| {
            let at = usize_from(at);
            let bytes = from.get(at..at + out.len());
            bytes
                .map(|bytes| out.copy_from_slice(bytes))
                .ok_or(MapError::ShortInline {
                    have: from.len().saturating_sub(at),
                    want: out.len(),
                })
        };
        let copied = match place {
            Place::Zero => {
                out.fill(0);
                Ok(())
            }
            Place::Stored { blob, offset } => {
                return moves.stored.read(*blob, offset + skip, out, Use::Serve);
            }
            Place::Encoded { block, .. } if is_own && moves.decoded.take(block) => {
                return moves.decoded.once_into(block, &moves.stored, out);
            }
            Place::Encoded { block, skip: first } => {
                let bytes = moves.decoded.get(block, &moves.stored)?;
                moves.decoded.served(&bytes, u64_from(out.len()));
                copy(&bytes, skip + u64::from(*first), out)
            }
            Place::Inline(bytes) => copy(bytes, skip, out),
        };
        copied.map_err(|error| self.corrupt(error))
    }

    fn corrupt(&self, error: MapError) -> Error {
        let offset = match error {
            MapError::Gap { start, .. } => start,
            MapError::Behind { .. } | MapError::Beyond { .. } | MapError::ShortInline { .. } => {
                self.at
            }
        };
        Corrupt::new(self.moves.decoded.format(), None, offset, error).into()
    }
}
