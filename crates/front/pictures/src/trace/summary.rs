//! Summarises a trace: requests by structure, their sizes, and bytes transferred more than once.

use std::collections::BTreeMap;

use forerun_io::{BlobId, Event, EventKind, Structure};

use crate::ranges::ByteRanges;

const SECTOR: u64 = 512;

/// Order of the rows: requests to the device come first.
const ORDER: [&str; 5] = ["source_read", "write", "flush", "discard", "fetch"];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceRow {
    pub requests: u64,
    pub bytes: u64,
    /// Number of sectors beyond each request's first.
    pub merged: u64,
    /// Bytes that an earlier request of this kind had transferred already. Overestimated if the
    /// trace has more than a million separate ranges, because holes between them are filled.
    pub again: u64,
    pub failed: u64,
}

/// A row, and the lowest offset of its requests.
#[derive(Clone, Copy, Debug)]
struct Sums {
    row: TraceRow,
    start: u64,
}

#[derive(Clone, Debug, Default)]
pub struct TraceSummary {
    rows: BTreeMap<(&'static str, Structure), Sums>,
    seen: BTreeMap<(&'static str, BlobId), ByteRanges>,
}

impl TraceSummary {
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
            let merged = event.len.div_ceil(SECTOR).saturating_sub(1);
            row.merged = row.merged.saturating_add(merged);
            let range = event.offset..event.offset.saturating_add(event.len);
            let seen = self.seen.entry((name, event.blob)).or_default();
            row.again = row.again.saturating_add(seen.insert(range, &mut |_| {}));
        }
    }

    /// Returns kind, structure and totals, in the order of the data flow. Structures defined by a
    /// driver are ordered by offset.
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

    #[must_use]
    pub fn total(&self, kind: &str) -> TraceRow {
        let mut total = TraceRow::default();
        for (_, _, row) in self.of_kind(kind) {
            total.requests += row.requests;
            total.bytes = total.bytes.saturating_add(row.bytes);
            total.merged = total.merged.saturating_add(row.merged);
            total.again = total.again.saturating_add(row.again);
            total.failed += row.failed;
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forerun_io::Purpose;

    use super::*;

    fn event(kind: EventKind, structure: Structure, offset: u64, len: u64) -> Event {
        Event {
            at: Duration::ZERO,
            took: Duration::ZERO,
            kind,
            structure,
            blob: BlobId::IMAGE,
            offset,
            len,
            node: None,
        }
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
