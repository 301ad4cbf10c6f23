//! A source or device, with the locks that protect it.

use std::fs::File;
use std::io;
use std::ops::Range;

use forerun_io::{BlockDevice, Pattern, ReadAt};

/// Keeps files locked for as long as `inner` is in use.
#[derive(Debug)]
pub struct Held<T> {
    inner: T,
    _locked: Vec<File>,
}

impl<T> Held<T> {
    /// Keeps `locked` open for as long as `inner` is in use.
    pub const fn new(inner: T, locked: Vec<File>) -> Self {
        let _locked = locked;
        Self { inner, _locked }
    }
}

impl<T: ReadAt> ReadAt for Held<T> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.inner.read_exact_at(offset, out)
    }

    fn read_ahead_at(&self, offset: u64, out: &mut [u8], pattern: Pattern) -> io::Result<()> {
        self.inner.read_ahead_at(offset, out, pattern)
    }

    fn will_need(&self, range: Range<u64>) -> bool {
        self.inner.will_need(range)
    }

    fn done_with(&self, range: Range<u64>) {
        self.inner.done_with(range);
    }

    fn is_slow(&self) -> bool {
        self.inner.is_slow()
    }
}

impl<T: BlockDevice> BlockDevice for Held<T> {
    fn sector_size(&self) -> u32 {
        self.inner.sector_size()
    }

    fn write_all_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inner.write_all_at(offset, data)
    }

    fn write_zeros(&self, range: Range<u64>) -> io::Result<bool> {
        self.inner.write_zeros(range)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn discard(&self, range: Range<u64>) -> io::Result<bool> {
        self.inner.discard(range)
    }
}
