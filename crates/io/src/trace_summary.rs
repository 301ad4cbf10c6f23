//! The summary of a trace: requests by structure, their sizes, and the bytes that were transferred
//! twice.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{BlobId, Event, EventKind, Structure};

/// A sector: the smallest unit of a request.
const SECTOR: u64 = 512;

/// Requests to the device come first.
const ORDER: [&str; 4] = ["source_read", "write", "flush", "discard"];

/// The requests of one kind for one kind of structure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceRow {
    /// Number of requests.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sectors beyond the first of each request.
    pub merged: u64,
    /// Bytes that an earlier request of this kind had already transferred.
    pub again: u64,
    /// Requests that failed.
    pub failed: u64,
}

/// A row, and the first place of its requests.
#[derive(Clone, Copy, Debug)]
struct Sums {
    row: TraceRow,
    start: u64,
}

/// The sums over a trace.
#[derive(Clone, Debug, Default)]
pub struct TraceSummary {
    rows: BTreeMap<(&'static str, Structure), Sums>,
    seen: BTreeMap<(&'static str, BlobId), ReadRanges>,
}

impl TraceSummary {
    /// Adds an event to the sums.
    pub fn add(&mut self, event: &Event) {
        let name = event.kind.name();
        let key = (name, event.structure);
        let sums = self.rows.entry(key).or_insert(Sums {
            row: TraceRow::default(),
            start: u64::MAX,
        });
        sums.start = sums.start.min(event.offset);
        let row = &mut sums.row;
        row.requests += 1;
        row.bytes = row.bytes.saturating_add(event.len);
        row.failed += u64::from(!event.kind.ok());
        let moves = matches!(
            event.kind,
            EventKind::SourceRead { .. } | EventKind::Write { .. }
        );
        if moves {
            row.merged += event.len.div_ceil(SECTOR).saturating_sub(1);
            let range = event.offset..event.offset.saturating_add(event.len);
            let seen = self.seen.entry((name, event.blob)).or_default();
            row.again += seen.insert(range);
        }
    }

    /// Returns kind of request, structure and sums, in the order of the data flow. Structures that only a
    /// driver knows are in the order of their places.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, Structure, &TraceRow)> {
        let first = ORDER.iter().flat_map(|kind| self.of_kind(kind));
        let rest = self
            .rows
            .iter()
            .filter(|((kind, _), _)| !ORDER.contains(kind));
        first.chain(rest.map(|((kind, structure), sums)| (*kind, *structure, &sums.row)))
    }

    fn of_kind<'a>(
        &'a self,
        wanted: &'a str,
    ) -> impl Iterator<Item = (&'static str, Structure, &'a TraceRow)> {
        let all = self.rows.iter();
        let mut all: Vec<_> = all.filter(|((kind, _), _)| *kind == wanted).collect();
        all.sort_by_key(|((_, structure), sums)| match structure {
            Structure::Named(_) => (Structure::named(""), sums.start, *structure),
            other => (*other, 0, *other),
        });
        let all = all.into_iter();
        all.map(|((kind, structure), sums)| (*kind, *structure, &sums.row))
    }

    /// Returns the sums of one kind of request over all structures.
    #[must_use]
    pub fn total(&self, kind: &str) -> TraceRow {
        let mut total = TraceRow::default();
        for (_, _, row) in self.of_kind(kind) {
            total.requests += row.requests;
            total.bytes = total.bytes.saturating_add(row.bytes);
            total.merged += row.merged;
            total.again += row.again;
            total.failed += row.failed;
        }
        total
    }
}

/// A set of bytes, as ranges that do not touch each other, by their start.
#[derive(Clone, Debug, Default)]
struct ReadRanges(BTreeMap<u64, u64>);

impl ReadRanges {
    /// Adds a range, and returns how many of its bytes were there before.
    fn insert(&mut self, range: Range<u64>) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut start, mut end, mut again) = (range.start, range.end, 0);
        let before = self.0.range(..=range.end).rev();
        let touching: Vec<_> = before
            .take_while(|(_, other_end)| **other_end >= range.start)
            .map(|(start, end)| (*start, *end))
            .collect();
        for (other_start, other_end) in touching {
            let common = other_end
                .min(range.end)
                .saturating_sub(other_start.max(range.start));
            again += common;
            start = start.min(other_start);
            end = end.max(other_end);
            self.0.remove(&other_start);
        }
        self.0.insert(start, end);
        again
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Purpose;

    fn event(kind: EventKind, structure: Structure, offset: u64, len: u64) -> Event {
        Event {
            at: Duration::ZERO,
            kind,
            structure,
            blob: BlobId::IMAGE,
            offset,
            len,
        }
    }

    #[test]
    fn bytes_that_come_again_are_counted() {
        let mut ranges = ReadRanges::default();
        for (range, again) in [
            (0..10, 0),
            (10..20, 0),
            (30..40, 0),
            (5..35, 20),
            (0..40, 40),
            (50..50, 0),
            (39..60, 1),
            (100..200, 0),
            (90..210, 100),
        ] {
            assert_eq!(ranges.insert(range.clone()), again, "{range:?}");
        }
        assert_eq!(ranges.0.len(), 2);
    }

    #[test]
    fn sums_by_kind_and_structure() {
        let mut summary = TraceSummary::default();
        let (write, read) = (
            EventKind::Write { ok: true },
            EventKind::SourceRead {
                purpose: Purpose::Demand,
                ok: false,
            },
        );
        let (first, second) = (Structure::named("tables"), Structure::named("bits"));
        summary.add(&event(write, Structure::Data, 0, 0));
        summary.add(&event(write, second, 4096, 512));
        summary.add(&event(write, first, 1024, 0));
        summary.add(&event(write, first, 0, 1024));
        summary.add(&event(write, first, 512, 512));
        summary.add(&event(read, Structure::Data, 0, 4096));
        summary.add(&event(
            EventKind::Flush { ok: true },
            Structure::Unknown,
            0,
            0,
        ));
        let total = summary.total("write");
        assert_eq!(
            (total.requests, total.bytes, total.merged, total.again),
            (5, 2048, 1, 512)
        );
        assert_eq!(summary.total("source_read").failed, 1);
        let rows: Vec<_> = summary.rows().map(|(kind, s, _)| (kind, s)).collect();
        let order: Vec<_> = rows.iter().map(|(kind, s)| (*kind, s.name())).collect();
        assert_eq!(
            order,
            [
                ("source_read", "data"),
                ("write", "tables"),
                ("write", "bits"),
                ("write", "data"),
                ("flush", "unknown")
            ]
        );
    }
}
