//! Files of a damaged image, as far as they can be read, and the report of what is lost.

use std::io::{self, Read, Write};
use std::ops::{ControlFlow, Range};

use forerun_engine::Reader;
use forerun_io::{u64_from, usize_from};
use forerun_vfs::{Error, Extent, NodeId, Place};

use crate::ExportError;
use crate::content::CHUNK;

/// Bytes of a file whose extents are asked for at a time.
const WINDOW: u64 = 64 << 20;
/// Finest step to find where a damaged place ends.
const FINEST: u64 = 4096;
/// Steps that may fail one after the other; then the rest of the file is lost. An image can give a file any
/// size.
const FAILURES: u32 = 1 << 16;

/// The fate of one file of a salvage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SalvagedFile {
    /// Path in the output.
    pub path: Vec<u8>,
    /// Bytes of the file, as the image says; nothing if that cannot be read.
    pub size: Option<u64>,
    /// Ranges that cannot be read, in order. They are zeros in the output.
    pub lost: Vec<Range<u64>>,
    pub error: Option<String>,
    /// The file is put together by guess: its bytes are in the image, but it may have begun or ended
    /// elsewhere.
    pub is_guess: bool,
}

/// How much of a file there is.
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
    /// Returns how much of the file there is.
    #[must_use]
    pub fn state(&self) -> Remains {
        match (self.size, self.lost_bytes()) {
            (None, _) => Remains::Lost,
            (Some(_), 0) if self.error.is_none() => Remains::Whole,
            (Some(size), lost) if lost >= size => Remains::Lost,
            _ => Remains::Partial,
        }
    }

    /// Counts the bytes that are lost.
    #[must_use]
    pub fn lost_bytes(&self) -> u64 {
        let lens = self.lost.iter().map(|lost| lost.end - lost.start);
        lens.fold(0, u64::saturating_add)
    }
}

/// The ranges of a file that cannot be read, and the first error.
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

/// Takes bytes of a file, and the place of the first.
type Visit<'v, E> = dyn FnMut(u64, &[u8]) -> Result<(), E> + 'v;

/// Visits what can be read of a file of `size` bytes, in order, but for holes. Returns what cannot.
///
/// # Errors
/// The errors of the visitor.
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
        // The image does not say where this block is.
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

/// Writes a file of a damaged image, of `size` bytes: what can be read of it, and zeros for holes and what
/// cannot. Writes nothing of a file of which nothing can be read. Returns its outcome, under `path`, and the
/// first error.
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
        // Zeros wait for data behind them: there may be none.
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
    /// Steps that failed since the last that did not.
    failures: u32,
}

impl<E> Salvage<'_, '_, E> {
    /// Returns the extents of `range` up to the first damage or gap, and that damage.
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
                // Halved until what is readable before and behind the damage is.
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
