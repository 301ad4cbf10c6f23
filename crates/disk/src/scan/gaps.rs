//! Ranges between findings: padding, and unknown ranges with their entropy.

use std::ops::Range;

use forerun_io::{u64_from, usize_from};

use super::piece::Piece;
use super::{ScanFinding, ScanKind};

/// Shortest run of equal bytes that counts as separate padding.
const LEAST_PADDING: u64 = 4096;
/// Number of gaps after which padding inside of other bytes is no longer separated.
const MOST_SPLIT: usize = 16_384;
/// Bytes that are counted at once.
const CHUNK: usize = 4096;

/// The bytes that [`Gaps`] has yet to process.
#[derive(Clone, Copy)]
pub enum Unread<'p> {
    Piece(&'p Piece<'p>),
    /// This byte, again and again: fill that a disk does not store.
    Fill(u8),
}

/// The bytes that belong to no finding. Each is read once, in order.
#[derive(Default)]
pub struct Gaps {
    /// Everything before this offset is processed.
    pub done: u64,
    /// Ranges of findings that end after `done`.
    covered: Vec<Range<u64>>,
    /// The gap that ends at `done`.
    open: Option<Stretch>,
    pub found: Vec<ScanFinding>,
}

impl Gaps {
    /// Records that a finding explains a range.
    pub fn cover(&mut self, range: Range<u64>) {
        if range.end > self.done {
            self.covered.push(range);
        }
    }

    /// Processes the unexplained bytes before `end`.
    pub fn advance(&mut self, bytes: Unread<'_>, end: u64) {
        self.covered.sort_by_key(|range| range.start);
        let mut at = self.done;
        let covered = std::mem::take(&mut self.covered);
        for range in covered.iter().take_while(|range| range.start < end) {
            if range.start > at {
                self.gap(bytes, at..range.start);
            }
            if range.end > at {
                self.close(at.max(range.start));
                at = range.end;
            }
        }
        if at < end {
            self.gap(bytes, at..end);
        }
        self.done = at.max(end);
        self.covered = covered;
        let done = self.done;
        self.covered.retain(|range| range.end > done);
    }

    /// Ends the last gap.
    pub fn finish(&mut self) {
        self.close(self.done);
    }

    fn gap(&mut self, bytes: Unread<'_>, range: Range<u64>) {
        let may_split = self.found.len() < MOST_SPLIT;
        let start = range.start;
        let open = self.open.get_or_insert_with(|| Stretch::new(start));
        let piece = match bytes {
            Unread::Piece(piece) => piece,
            Unread::Fill(byte) => return open.pad(byte, range.end - start),
        };
        let bytes = piece.from(start);
        let mut bytes = bytes.get(..usize_from(range.end - start)).unwrap_or(bytes);
        while !bytes.is_empty() {
            let equal = match open.padding {
                (byte, 1..) => bytes.iter().take_while(|&&it| it == byte).count(),
                _ => 0,
            };
            open.padding.1 += u64_from(equal);
            bytes = &bytes[equal..];
            if bytes.is_empty() {
                break;
            }
            if open.padding.1 >= LEAST_PADDING && may_split {
                open.split(&mut self.found);
            }
            bytes = open.count(bytes);
        }
    }

    fn close(&mut self, end: u64) {
        if let Some(mut open) = self.open.take() {
            let is_padding = open.padding.1 >= LEAST_PADDING || open.counted == 0;
            if is_padding {
                open.split(&mut self.found);
            } else {
                open.count_padding();
                open.push_counted(&mut self.found);
            }
            debug_assert_eq!(open.start, end);
        }
    }
}

/// The unfinished part of a gap.
struct Stretch {
    start: u64,
    /// Number of occurrences of each byte value. Four tables avoid dependencies between consecutive
    /// increments.
    counts: Box<[[u64; 256]; 4]>,
    counted: u64,
    /// Possible padding after the counted bytes: the byte value, and its number of occurrences.
    padding: (u8, u64),
}

impl Stretch {
    fn new(start: u64) -> Self {
        Self {
            start,
            counts: Box::new([[0; 256]; 4]),
            counted: 0,
            padding: (0, 0),
        }
    }

    /// Counts the first bytes, except possible padding at their end. Returns the rest.
    fn count<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        self.count_padding();
        let (chunk, rest) = bytes.split_at(bytes.len().min(CHUNK));
        let last = chunk
            .last()
            .copied()
            .filter(|byte| matches!(byte, 0 | 0xff));
        let equal = last.map_or(0, |last| {
            chunk.iter().rev().take_while(|&&it| it == last).count()
        });
        let counted = &chunk[..chunk.len() - equal];
        let mut groups = counted.chunks_exact(4);
        for group in &mut groups {
            for (table, &byte) in self.counts.iter_mut().zip(group) {
                table[usize::from(byte)] += 1;
            }
        }
        for &byte in groups.remainder() {
            self.counts[0][usize::from(byte)] += 1;
        }
        self.counted += u64_from(counted.len());
        self.padding = (last.unwrap_or(0), u64_from(equal));
        rest
    }

    fn pad(&mut self, byte: u8, len: u64) {
        if self.padding.0 != byte {
            self.count_padding();
        }
        self.padding = (byte, self.padding.1 + len);
    }

    /// Counts bytes that turned out not to be padding.
    fn count_padding(&mut self) {
        let (byte, len) = std::mem::take(&mut self.padding);
        self.counts[0][usize::from(byte)] += len;
        self.counted += len;
    }

    /// Ends the counted range and the padding after it.
    fn split(&mut self, found: &mut Vec<ScanFinding>) {
        self.push_counted(found);
        let (byte, len) = std::mem::take(&mut self.padding);
        if len > 0 {
            let mut finding = ScanFinding::new(self.start, Some(len), ScanKind::Padding);
            finding.details = format!("{byte:#04x}");
            found.push(finding);
            self.start += len;
        }
    }

    fn push_counted(&mut self, found: &mut Vec<ScanFinding>) {
        if self.counted == 0 {
            return;
        }
        let counts = (0..256).map(|byte| self.counts.iter().map(|table| table[byte]).sum());
        let entropy = entropy(counts, self.counted);
        let mut finding = ScanFinding::new(self.start, Some(self.counted), ScanKind::Unknown);
        finding.entropy = Some(entropy);
        found.push(finding);
        self.start += self.counted;
        self.counted = 0;
        self.counts.iter_mut().for_each(|table| table.fill(0));
    }
}

/// Returns the entropy in bits per byte, 0 to 8.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "two decimals are shown"
)]
fn entropy(counts: impl Iterator<Item = u64>, total: u64) -> f64 {
    let counts = counts.filter(|&count| count > 0);
    let bits = counts.map(|count| {
        let share = count as f64 / total as f64;
        -share * share.log2()
    });
    bits.sum::<f64>().max(0.0)
}
