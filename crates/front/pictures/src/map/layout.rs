//! The contents of each part of an image: sums by kind, and by place for the picture.

use std::collections::BTreeMap;
use std::ops::Range;

use forerun_vfs::{Region, RegionKind};

use crate::ranges::ByteRanges;

/// Bins of the picture.
const BINS: u64 = 4096;
/// Classes of length of free runs.
const LENGTHS: usize = 64;

/// A kind of contents of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Structures of the format that its driver names.
    Metadata,
    /// Contents of files, as they are.
    Data,
    /// Contents of files, compressed.
    Compressed,
    /// Blocks that hold pieces of several files.
    Fragments,
    /// Room for new files.
    Free,
    /// The rest: padding, and metadata that the driver does not name.
    Other,
}

impl Kind {
    /// All kinds, in the order of the legend.
    pub const ALL: [Self; 6] = [
        Self::Metadata,
        Self::Data,
        Self::Compressed,
        Self::Fragments,
        Self::Free,
        Self::Other,
    ];

    /// Returns the name in JSON and in pages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Metadata => "metadata",
            Self::Data => "data",
            Self::Compressed => "compressed",
            Self::Fragments => "fragments",
            Self::Free => "free",
            Self::Other => "other",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Metadata => 0,
            Self::Data => 1,
            Self::Compressed => 2,
            Self::Fragments => 3,
            Self::Free => 4,
            Self::Other => 5,
        }
    }
}

/// Bytes of each kind, and of what several files share.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bin {
    pub kinds: [u64; Kind::ALL.len()],
    /// Bytes that several files have in common.
    pub shared: u64,
}

impl Bin {
    fn sum(&self) -> u64 {
        self.kinds.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    fn add(&mut self, kind: Option<Kind>, bytes: u64) {
        let sum = match kind {
            Some(kind) => self.kinds.get_mut(kind.index()),
            None => Some(&mut self.shared),
        };
        if let Some(sum) = sum {
            *sum = sum.saturating_add(bytes);
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct FreeSpace {
    pub runs: u64,
    /// Bytes of the longest one.
    pub longest: u64,
    /// Number of runs by length: of at least 1, 2, 4, 8 ... bytes.
    pub lengths: [u64; LENGTHS],
}

/// The layout of an image.
#[derive(Clone, Debug)]
pub struct Layout {
    len: u64,
    /// Bytes of a bin.
    pub width: u64,
    pub bins: Vec<Bin>,
    pub total: Bin,
    /// Bytes of metadata, by the names that the driver has for it.
    pub named: BTreeMap<&'static str, u64>,
    /// Free runs, if the driver names any.
    pub free: Option<FreeSpace>,
    covered: ByteRanges,
    shared: ByteRanges,
}

impl Layout {
    /// Creates the layout of an image of `len` bytes of which nothing is known.
    pub fn new(len: u64) -> Self {
        let width = len.div_ceil(BINS).max(1);
        let count = forerun_io::usize_from(len.div_ceil(width));
        Self {
            len,
            width,
            bins: vec![Bin::default(); count],
            total: Bin::default(),
            named: BTreeMap::new(),
            free: None,
            covered: ByteRanges::default(),
            shared: ByteRanges::default(),
        }
    }

    /// Returns whether the sums are exact. Where an image has more than a million parts that do not touch,
    /// they are not.
    pub const fn is_exact(&self) -> bool {
        self.covered.is_exact() && self.shared.is_exact()
    }

    /// Adds a region that the driver names.
    pub fn region(&mut self, region: &Region) {
        let range = self.clamp(&region.range);
        let len = range.end - range.start;
        match region.kind {
            RegionKind::Metadata(name) => {
                // Nodes share some, as blocks of compressed directories.
                let again = self.add(Kind::Metadata, range, false);
                let sum = self.named.entry(name).or_default();
                *sum = sum.saturating_add(len.saturating_sub(again));
            }
            RegionKind::Free => {
                let free = self.free.get_or_insert(FreeSpace {
                    runs: 0,
                    longest: 0,
                    lengths: [0; LENGTHS],
                });
                free.runs += 1;
                free.longest = free.longest.max(len);
                let log = usize::try_from(len.checked_ilog2().unwrap_or(0)).unwrap_or(0);
                if let Some(count) = free.lengths.get_mut(log) {
                    *count += 1;
                }
                self.add(Kind::Free, range, false);
            }
        }
    }

    /// Adds contents of a file. Returns how many of the bytes another part of a file has as well. With
    /// `may_share` that is how the format stores pieces of files, and not shown as shared.
    pub fn data(&mut self, kind: Kind, range: &Range<u64>, may_share: bool) -> u64 {
        let range = self.clamp(range);
        self.add(kind, range, !may_share)
    }

    fn clamp(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start.min(self.len);
        start..range.end.clamp(start, self.len)
    }

    fn add(&mut self, kind: Kind, range: Range<u64>, shows_shared: bool) -> u64 {
        let (bins, width, total) = (&mut self.bins, self.width, &mut self.total);
        let (mut at, mut seen) = (range.start, Vec::new());
        let again = self.covered.insert(range.clone(), &mut |new| {
            if shows_shared && at < new.start {
                seen.push(at..new.start);
            }
            at = new.end;
            total.add(Some(kind), new.end - new.start);
            put(bins, width, Some(kind), new);
        });
        if shows_shared && at < range.end {
            seen.push(at..range.end);
        }
        for range in seen {
            self.shared.insert(range, &mut |new| {
                total.add(None, new.end - new.start);
                put(bins, width, None, new);
            });
        }
        again
    }

    /// Counts what nothing was said about as [`Kind::Other`].
    pub fn finish(&mut self) {
        let mut start = 0_u64;
        for bin in &mut self.bins {
            let width = self.width.min(self.len - start);
            bin.add(Some(Kind::Other), width.saturating_sub(bin.sum()));
            start = start.saturating_add(self.width).min(self.len);
        }
        let rest = self.len.saturating_sub(self.total.sum());
        self.total.add(Some(Kind::Other), rest);
    }
}

fn put(bins: &mut [Bin], width: u64, kind: Option<Kind>, range: Range<u64>) {
    let mut at = range.start;
    while at < range.end {
        let index = at / width;
        let end = (index + 1).saturating_mul(width).min(range.end);
        if let Some(bin) = bins.get_mut(forerun_io::usize_from(index)) {
            bin.add(kind, end - at);
        }
        at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_kind() {
        let mut layout = Layout::new(100_000);
        layout.region(&Region::metadata("head", 0..96));
        layout.region(&Region {
            range: 90_000..200_000,
            kind: RegionKind::Free,
        });
        assert_eq!(layout.data(Kind::Data, &(96..1000), false), 0);
        assert_eq!(layout.data(Kind::Compressed, &(500..1500), false), 500);
        assert_eq!(layout.data(Kind::Fragments, &(2000..3000), true), 0);
        assert_eq!(layout.data(Kind::Fragments, &(2000..3000), true), 1000);
        layout.data(Kind::Data, &(u64::MAX - 5..u64::MAX), false);
        layout.finish();
        let expected = [96, 904, 500, 1000, 10_000, 87_500];
        assert_eq!((layout.total.kinds, layout.total.shared), (expected, 500));
        let mut sum = Bin::default();
        for bin in &layout.bins {
            for (sum, n) in sum.kinds.iter_mut().zip(bin.kinds) {
                *sum += n;
            }
            sum.shared += bin.shared;
        }
        assert_eq!((sum.kinds, sum.shared), (expected, 500));
        assert_eq!(layout.free.unwrap().longest, 10_000);
        assert!(layout.is_exact());
    }

    #[test]
    fn absurd_lengths() {
        for len in [0, 1, 4096, 4097, u64::MAX] {
            let mut layout = Layout::new(len);
            layout.data(Kind::Data, &(0..u64::MAX), false);
            layout.data(Kind::Data, &(0..u64::MAX), false);
            layout.finish();
            assert_eq!(layout.total.sum(), len);
            assert_eq!(layout.total.shared, len);
            assert!(layout.bins.len() <= 4096);
        }
    }
}
