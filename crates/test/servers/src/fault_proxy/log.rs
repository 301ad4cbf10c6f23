//! The log of requests through the proxy.

use std::ops::Range;
use std::time::Duration;

use super::Fault;

#[derive(Clone, Debug)]
pub struct Exchange {
    /// Its number, from 0, in the order of arrival.
    pub number: usize,
    /// The number of its connection, from 0, among all connections of the proxy.
    pub connection: usize,
    pub method: String,
    /// The path in the request, without the query.
    pub path: String,
    /// The query: the text after `?`.
    pub query: String,
    /// First and last requested byte; no last byte for an open range.
    pub range: Option<(u64, Option<u64>)>,
    /// The request's headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The status that the client received.
    pub status: Option<u16>,
    /// Offset of the answer's body in the whole.
    pub start: u64,
    pub sent: u64,
    pub fault: Option<Fault>,
    /// Whether the answer was sent completely.
    pub finished: bool,
    /// When the request arrived, since the proxy started.
    pub at: Duration,
}

impl Exchange {
    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(known, _)| known == name);
        header.map(|(_, value)| value.as_str())
    }

    /// Returns the bytes of the whole that were sent to the client, if it requested content.
    fn content(&self) -> Option<Range<u64>> {
        let has_content = self.method == "GET" && matches!(self.status, Some(200 | 206));
        has_content.then(|| self.start..self.start + self.sent)
    }
}

#[derive(Clone, Debug, Default)]
pub struct Log {
    pub entries: Vec<Exchange>,
}

impl Log {
    pub const fn requests(&self) -> usize {
        self.entries.len()
    }

    /// Counts the bytes of all bodies sent to clients.
    pub fn sent(&self) -> u64 {
        self.entries.iter().map(|entry| entry.sent).sum()
    }

    pub fn of<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Exchange> {
        self.entries.iter().filter(move |entry| entry.path == path)
    }

    /// Collects the bytes of `path` that were sent at least once, as sorted ranges.
    pub fn union(&self, path: &str) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = self.of(path).filter_map(Exchange::content).collect();
        ranges.retain(|range| !range.is_empty());
        ranges.sort_by_key(|range| range.start);
        let mut union: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match union.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => union.push(range),
            }
        }
        union
    }

    /// Counts the bytes of `path` that were sent again after they had been sent.
    pub fn sent_twice(&self, path: &str) -> u64 {
        let all: u64 = self
            .of(path)
            .filter_map(Exchange::content)
            .map(|range| range.end - range.start)
            .sum();
        let once: u64 = self.union(path).iter().map(|r| r.end - r.start).sum();
        all - once
    }

    /// Counts the bytes of all paths that were sent again.
    pub fn all_sent_twice(&self) -> u64 {
        let mut paths: Vec<&str> = self.entries.iter().map(|e| e.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths.iter().map(|path| self.sent_twice(path)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(path: &str, method: &str, status: u16, start: u64, sent: u64) -> Exchange {
        Exchange {
            number: 0,
            connection: 0,
            method: method.to_string(),
            path: path.to_string(),
            query: String::new(),
            range: None,
            headers: Vec::new(),
            status: Some(status),
            start,
            sent,
            fault: None,
            finished: true,
            at: Duration::ZERO,
        }
    }

    #[test]
    fn bytes_are_counted_once_and_twice() {
        let log = Log {
            entries: vec![
                got("/a", "GET", 206, 0, 10),
                got("/a", "GET", 206, 20, 10),
                got("/a", "GET", 206, 10, 10),
                got("/a", "GET", 206, 5, 2),
                got("/a", "GET", 206, 40, 1),
                got("/a", "GET", 503, 0, 9),
                got("/a", "HEAD", 200, 0, 0),
                got("/b", "GET", 200, 0, 7),
                got("/b", "GET", 200, 0, 7),
            ],
        };
        assert_eq!(log.union("/a"), [0..30, 40..41]);
        assert_eq!(log.sent_twice("/a"), 2);
        assert_eq!(log.all_sent_twice(), 9);
        assert_eq!(log.sent(), 10 + 10 + 10 + 2 + 1 + 9 + 14);
    }
}
