//! Salvages files of a damaged image and reports what is lost.

use std::io::{self, Read, Write};
use std::ops::{ControlFlow, Range};

use forerun_engine::Reader;
use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Error, Extent, NodeId, Place};

use crate::ExportError;
use crate::content::CHUNK;

/// Length of the range whose extents are requested at once.
const WINDOW: u64 = 64 << 20;
/// Smallest step for finding the end of a damaged range.
const FINEST: u64 = 4096;
/// Maximum consecutive failed steps; then the rest of the file is lost. Without this limit a file
/// of absurd size would take forever.
const FAILURES: u32 = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedFile {
    /// Path in the output.
    pub path: Vec<u8>,
    /// File size according to the image; `None` if it cannot be read.
    pub size: Option<u64>,
    /// Unreadable ranges, in order. They are zeros in the output.
    pub lost: Vec<Range<u64>>,
    pub error: Option<String>,
    /// The file was reconstructed by guessing: its bytes are in the image, but its original
    /// beginning or end may differ.
    pub is_guess: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remains {
    Whole,
    Partial,
    Lost,
}

impl Remains {
    /// Returns a short stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Partial => "partial",
            Self::Lost => "lost",
        }
    }
}

impl SalvagedFile {
    #[must_use]
    pub fn state(&self) -> Remains {
        match (self.size, self.lost_bytes()) {
            (None, _) => Remains::Lost,
            (Some(_), 0) if self.error.is_none() => Remains::Whole,
            (Some(size), lost) if lost >= size => Remains::Lost,
            _ => Remains::Partial,
        }
    }

    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        let lens = self.lost.iter().map(|lost| lost.end - lost.start);
        lens.fold(0, u64::saturating_add)
    }
}

#[derive(Debug, Default)]
pub struct Damage {
    pub lost: Vec<Range<u64>>,
    pub error: Option<Error>,
}

impl Damage {
    fn add(&mut self, range: Range<u64>, error: Error) {
        self.error.get_or_insert(error);
        match self.lost.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.lost.push(range),
        }
    }
}

/// Called with an offset and the bytes there.
type Visit<'v, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'v;

/// Visits the readable data of a file of `size` bytes in order, without holes. Returns the
/// unreadable ranges. Fails only if the visitor does.
pub fn visit_readable<E>(
    reader: &Reader,
    node: NodeId,
    size: u64,
    visit: &mut Visit<'_, E>,
) -> Result<Damage, E> {
    let step = u64::from(reader.fs().volume().block_size).clamp(FINEST, CHUNK);
    let mut salvage = Salvage {
        reader,
        node,
        visit,
        damage: Damage::default(),
        failures: 0,
    };
    let (mut at, mut window) = (0, WINDOW);
    while at < size {
        let end = at + window.min(size - at);
        let (extents, error) = salvage.extents(at..end);
        window = if extents.iter().all(|extent| extent.place == Place::Zero) {
            window.saturating_mul(2)
        } else {
            WINDOW
        };
        for extent in &extents {
            salvage.extent(
                at.max(extent.logical.start)..end.min(extent.logical.end),
                extent,
            )?;
        }
        at = extents
            .last()
            .map_or(at, |last| last.logical.end.min(end).max(at));
        if at >= end {
            continue;
        }
        // No extent covers this block.
        let next = at + (step - at % step).min(size - at);
        let next = if salvage.failures >= FAILURES {
            size
        } else {
            next
        };
        salvage.lose(at..next, error.unwrap_or(Error::NotFound));
        at = next;
        window = WINDOW;
    }
    Ok(salvage.damage)
}

/// Writes the readable data of a damaged file of `size` bytes, with zeros for holes and unreadable
/// ranges. Writes nothing if no data is readable. Returns the outcome, under `path`, and the first
/// read error.
///
/// # Errors
/// [`ExportError::Output`].
pub fn write_readable(
    reader: &Reader,
    (path, node): (&[u8], NodeId),
    size: u64,
    out: &mut dyn Write,
) -> Result<(SalvagedFile, Option<Error>), ExportError> {
    let zeros = |out: &mut dyn Write, len| io::copy(&mut io::repeat(0).take(len), out);
    let mut at = 0;
    let damage = visit_readable(reader, node, size, &mut |start, data| {
        // Zeros are written only before data, so that a file without data stays unwritten.
        zeros(out, start - at)?;
        at = start + u64_from(data.len());
        out.write_all(data)
    });
    let damage = damage.map_err(ExportError::Output)?;
    let outcome = SalvagedFile {
        path: path.to_vec(),
        size: Some(size),
        lost: damage.lost,
        error: damage.error.as_ref().map(Error::to_string),
        is_guess: reader.fs().is_guess(node),
    };
    if outcome.state() != Remains::Lost {
        zeros(out, size - at).map_err(ExportError::Output)?;
    }
    Ok((outcome, damage.error))
}

struct Salvage<'s, 'v, E> {
    reader: &'s Reader,
    node: NodeId,
    visit: &'s mut Visit<'v, E>,
    damage: Damage,
    failures: u32,
}

impl<E> Salvage<'_, '_, E> {
    /// Returns the extents of `range` up to the first error or uncovered offset, and the error.
    fn extents(&self, range: Range<u64>) -> (Vec<Extent>, Option<Error>) {
        let (mut extents, mut at) = (Vec::new(), range.start);
        let mapped = self
            .reader
            .fs()
            .map(self.node, range.clone(), &mut |extent| {
                if extent.logical.start > at || extent.logical.end <= at {
                    return ControlFlow::Break(());
                }
                at = extent.logical.end;
                extents.push(extent);
                if at < range.end {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            });
        (extents, mapped.err())
    }

    fn lose(&mut self, range: Range<u64>, error: Error) {
        self.failures += 1;
        self.damage.add(range, error);
    }

    fn extent(&mut self, range: Range<u64>, extent: &Extent) -> Result<(), E> {
        if extent.place == Place::Zero {
            return Ok(());
        }
        let is_stored = matches!(extent.place, Place::Stored { .. });
        let (mut at, mut chunk) = (range.start, CHUNK);
        while at < range.end {
            let end = at + chunk.min(range.end - at);
            match self.reader.read(self.node, at, usize_from(end - at)) {
                Ok(data) if !data.is_empty() => {
                    (self.visit)(at, &data)?;
                    at += u64_from(data.len());
                    chunk = CHUNK;
                    self.failures = 0;
                }
                // Halve the range to separate readable from damaged data.
                Err(_) if is_stored && chunk > FINEST && self.failures < FAILURES => chunk /= 2,
                failed => {
                    let all = !is_stored || self.failures >= FAILURES;
                    let end = if all { range.end } else { end };
                    self.lose(at..end, failed.err().unwrap_or(Error::NotFound));
                    at = end;
                }
            }
        }
        Ok(())
    }
}
