//! Collects the contents of an image: totals by kind, and bins by offset for the picture.

use std::collections::BTreeMap;
use std::ops::Range;

use forerun_vfs::{Region, RegionKind};

use crate::ranges::ByteRanges;

const BINS: u64 = 4096;
const LENGTHS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Structures that the driver names.
    Metadata,
    Data,
    Compressed,
    /// Blocks with tails of several files.
    Fragments,
    Free,
    /// Everything else: padding, and metadata that the driver does not name.
    Other,
}

impl Kind {
    /// In the order of the legend.
    pub const ALL: [Self; 6] = [
        Self::Metadata,
        Self::Data,
        Self::Compressed,
        Self::Fragments,
        Self::Free,
        Self::Other,
    ];

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

/// Bytes of each kind, and bytes shared by several files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bin {
    pub kinds: [u64; Kind::ALL.len()],
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
    pub longest: u64,
    /// Number of runs by length: `lengths[n]` counts those of 2^n to 2^(n+1) - 1 bytes.
    pub lengths: [u64; LENGTHS],
}

#[derive(Clone, Debug)]
pub struct Layout {
    len: u64,
    pub width: u64,
    pub bins: Vec<Bin>,
    pub total: Bin,
    /// Bytes of metadata by the driver's name for it.
    pub named: BTreeMap<&'static str, u64>,
    /// Free runs; `None` if the driver reports none.
    pub free: Option<FreeSpace>,
    covered: ByteRanges,
    shared: ByteRanges,
}

impl Layout {
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

    /// Returns whether the totals are exact. They are approximate if an image has more than a
    /// million separate ranges.
    pub const fn is_exact(&self) -> bool {
        self.covered.is_exact() && self.shared.is_exact()
    }

    pub fn region(&mut self, region: &Region) {
        let range = self.clamp(&region.range);
        let len = range.end - range.start;
        match region.kind {
            RegionKind::Metadata(name) => {
                // Nodes can share metadata, such as blocks of compressed directories; count it
                // once.
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

    /// Adds file data. Returns how many of the bytes were added before. With `may_share` (a format
    /// that packs several files into a block) they do not count as shared.
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

    /// Counts all bytes not added so far as [`Kind::Other`].
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
