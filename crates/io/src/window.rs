//! A part of a source as a source of its own, for images inside other files.

use std::io;
use std::ops::Range;

use crate::{BlockDevice, Pattern, ReadAt, past_end};

#[derive(Debug)]
pub struct Window<S> {
    inner: S,
    range: Range<u64>,
}

impl<S: ReadAt> Window<S> {
    /// Creates a window on the part of `inner` that starts at `offset` and is `size` bytes long, or
    /// reaches to the end of `inner`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if the part does not lie inside `inner`.
    pub fn new(inner: S, offset: u64, size: Option<u64>) -> io::Result<Self> {
        let len = inner.len();
        let end = match size {
            Some(size) => offset.checked_add(size),
            None => Some(len),
        };
        match end {
            Some(end) if end <= len && offset <= end => Ok(Self {
                inner,
                range: offset..end,
            }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "offset {offset} and size {size:?} do not lie inside the {len} bytes of the source"
                ),
            )),
        }
    }
}

impl<S: ReadAt> ReadAt for Window<S> {
    fn len(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        self.inner.read_exact_at(self.range.start + offset, out)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        past_end(offset, out.len(), self.len())?;
        let offset = self.range.start + offset;
        self.inner.read_ahead_at(offset, out, pattern)
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        let end = range.end.min(self.len());
        range.start < end
            && self
                .inner
                .will_need(self.range.start + range.start..self.range.start + end)
    }

    fn done_with(&self, range: Range<u64>) {
        let end = range.end.min(self.len());
        if range.start < end {
            let base = self.range.start;
            self.inner.done_with(base + range.start..base + end);
        }
    }

    fn distrust(&self, range: Range<u64>) {
        let end = range.end.min(self.len());
        if range.start < end {
            let base = self.range.start;
            self.inner.distrust(base + range.start..base + end);
        }
    }

    fn is_slow(&self) -> bool {
        self.inner.is_slow()
    }
}

impl<D: BlockDevice> BlockDevice for Window<D> {
    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        past_end(offset, data.len(), self.len())?;
        self.inner.write_all_at(self.range.start + offset, data)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<bool> {
        match self.inside(&range) {
            Some(range) => self.inner.write_zeros(range),
            None => Ok(false),
        }
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: Range<u64>) -> io::Result<bool> {
        match self.inside(&range) {
            Some(range) => self.inner.discard(range),
            None => Ok(false),
        }
    }
}

impl<S: ReadAt> Window<S> {
    /// Converts a range of the window to one of `inner`. Returns `None` if it reaches past the
    /// window.
    fn inside(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let fits = range.end <= self.len();
        fits.then(|| self.range.start + range.start..self.range.start + range.end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{MemoryDevice, MemorySource};

    #[test]
    fn reads_are_relative_and_bounded() {
        let whole = MemorySource::new((0..100).collect::<Vec<u8>>());
        let part = Window::new(whole, 10, Some(5)).unwrap();
        assert_eq!(part.len(), 5);
        let mut out = [0; 5];
        part.read_exact_at(0, &mut out).unwrap();
        assert_eq!(out, [10, 11, 12, 13, 14]);
        let past = part.read_exact_at(1, &mut out).unwrap_err();
        assert_eq!(past.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn writes_stay_inside() {
        let whole = Arc::new(MemoryDevice::new(vec![0; 100]));
        let part = Window::new(Arc::clone(&whole), 10, Some(5)).unwrap();
        part.write_all_at(1, &[1; 4]).unwrap();
        assert!(part.write_all_at(2, &[2; 4]).is_err());
        assert!(!part.discard(3..6).unwrap());
        let bytes = whole.to_vec();
        assert_eq!(bytes[10..16], [0, 1, 1, 1, 1, 0]);
    }

    #[test]
    fn a_part_outside_is_refused() {
        for (offset, size) in [
            (0, Some(101)),
            (101, None),
            (u64::MAX, Some(2)),
            (90, Some(11)),
        ] {
            let whole = MemorySource::new(vec![0; 100]);
            let error = Window::new(whole, offset, size).unwrap_err();
            assert_eq!(
                error.kind(),
                io::ErrorKind::InvalidInput,
                "{offset} {size:?}"
            );
        }
    }
}
