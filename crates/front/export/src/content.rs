//! Splits a file into ranges of data, in lengths suitable for reading.
//!
//! Holes are ranges that the image does not store. A range that no extent covers counts as data:
//! reading it returns the error.

use std::ops::{ControlFlow, Range};

use forerun_engine::Reader;
use forerun_vfs::{Extent, NodeId, Place, Result};

/// Maximum length of a read or write, in bytes.
pub const CHUNK: u64 = 1 << 20;
/// Length of the range whose extents are requested at once.
const WINDOW: u64 = 64 << 20;

#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    pub range: Range<u64>,
    /// The extent that contains the whole range, if a single one does.
    pub extent: Option<Extent>,
}

/// Visits the data of a file of `size` bytes in order, in ranges of at most [`CHUNK`] bytes that
/// cross no boundary of an encoded block, so that reading them copies nothing.
///
/// # Errors
/// The errors of the visitor and of [`FileSystem::map`](forerun_vfs::FileSystem::map).
pub fn visit_data<E>(
    reader: &Reader,
    node: NodeId,
    size: u64,
    visit: &mut dyn FnMut(&Piece) -> Result<(), E>,
) -> Result<(), E>
where
    E: From<forerun_vfs::Error>,
{
    let (mut at, mut window) = (0, WINDOW);
    while at < size {
        let end = at + window.min(size - at);
        let pieces = pieces(reader, node, at..end)?;
        // Cross a long hole in growing steps.
        window = if pieces.is_empty() {
            window.saturating_mul(2)
        } else {
            WINDOW
        };
        for piece in &pieces {
            visit(piece)?;
        }
        at = end;
    }
    Ok(())
}

fn pieces(reader: &Reader, node: NodeId, range: Range<u64>) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut at = range.start;
    reader.fs().map(node, range.clone(), &mut |extent| {
        let end = extent.logical.end.min(range.end);
        if end <= at {
            return ControlFlow::Continue(());
        }
        // An uncovered range counts as data; reading it reports the error.
        let start = extent.logical.start.clamp(at, end);
        push(&mut pieces, at..start, None, true);
        match extent.place {
            Place::Zero => {}
            Place::Stored { .. } => push(&mut pieces, start..end, Some(extent), true),
            Place::Encoded { .. } | Place::Inline(_) => {
                push(&mut pieces, start..end, Some(extent), false);
            }
        }
        at = end;
        if at < range.end {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    push(&mut pieces, at..range.end, None, true);
    Ok(pieces)
}

/// Adds a range. Merges it with the previous one if both are uncompressed, and splits it at
/// `CHUNK`.
fn push(pieces: &mut Vec<Piece>, mut range: Range<u64>, extent: Option<Extent>, merge: bool) {
    if merge
        && let Some(last) = pieces.last_mut()
        && last.range.end == range.start
        && last.range.end - last.range.start < CHUNK
        && range.start < range.end
    {
        let end = range.end.min(last.range.start + CHUNK);
        last.range.end = end;
        last.extent = None;
        range.start = end;
    }
    while range.start < range.end {
        let end = range.start + CHUNK.min(range.end - range.start);
        pieces.push(Piece {
            range: range.start..end,
            extent: extent.clone(),
        });
        range.start = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_merged_and_cut() {
        let mut pieces = Vec::new();
        let mut add = |range: Range<u64>, merge| {
            let extent = Extent {
                logical: range.clone(),
                place: Place::Zero,
            };
            push(&mut pieces, range, Some(extent), merge);
        };
        add(0..10, true);
        add(10..CHUNK + 5, true);
        add(CHUNK + 5..CHUNK + 6, false);
        add(CHUNK + 9..CHUNK + 9, true);
        add(CHUNK + 9..CHUNK + 12, true);
        let holds = |piece: &Piece| {
            let extent = piece.extent.as_ref();
            extent.map(|extent| extent.logical.clone())
        };
        let found: Vec<_> = pieces.iter().map(|p| (p.range.clone(), holds(p))).collect();
        assert_eq!(
            found,
            [
                (0..CHUNK, None),
                (CHUNK..CHUNK + 5, Some(10..CHUNK + 5)),
                (CHUNK + 5..CHUNK + 6, Some(CHUNK + 5..CHUNK + 6)),
                (CHUNK + 9..CHUNK + 12, Some(CHUNK + 9..CHUNK + 12)),
            ]
        );
    }
}
