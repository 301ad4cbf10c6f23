//! Waiting times per file, and file names.

use std::collections::HashMap;

/// Maximum number of files with times: about 25 MiB including their bars.
const MOST_FILES: usize = 1 << 14;
const MOST_BARS: usize = 64;
/// Maximum number of names, and of their bytes.
const MOST_NAMES: usize = 1 << 18;
const MOST_NAME_BYTES: usize = 32 << 20;
const MOST_DEPTH: usize = 64;

/// A period in which a file was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Start of the first request, in microseconds.
    pub start: u64,
    /// End of the last request, in microseconds.
    pub end: u64,
    pub requests: u64,
    pub bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    pub reads: u64,
    pub writes: u64,
    pub bytes: u64,
    /// Total duration of the requests, in microseconds.
    pub took: u64,
    pub slowest: u64,
    /// Periods of activity, in trace order.
    pub bars: Vec<Bar>,
}

/// The files of a trace: all of them up to `MOST_FILES`, otherwise the slowest.
#[derive(Clone, Debug, Default)]
pub struct FileTimes {
    files: HashMap<u64, FileUse>,
    /// How often a file was dropped because others took longer.
    pub left_out: u64,
}

impl FileTimes {
    pub fn add(&mut self, node: u64, is_write: bool, bar: Bar) {
        let took = bar.end.saturating_sub(bar.start);
        let file = self.files.entry(node).or_default();
        if is_write {
            file.writes += 1
        } else {
            file.reads += 1
        }
        file.bytes = file.bytes.saturating_add(bar.bytes);
        file.took = file.took.saturating_add(took);
        file.slowest = file.slowest.max(took);
        file.bars.push(bar);
        if file.bars.len() > MOST_BARS {
            file.bars = file.bars.chunks(2).map(joined).collect();
        }
        if self.files.len() > MOST_FILES {
            self.forget_the_quick();
        }
    }

    /// Returns the slowest files with their nodes, slowest first.
    pub fn slowest(&self, most: usize) -> Vec<(u64, &FileUse)> {
        let mut files: Vec<_> = self
            .files
            .iter()
            .map(|(node, file)| (*node, file))
            .collect();
        files.sort_by_key(|(node, file)| (std::cmp::Reverse(file.took), *node));
        files.truncate(most);
        files
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    fn forget_the_quick(&mut self) {
        let mut times: Vec<_> = self
            .files
            .iter()
            .map(|(node, file)| (file.took, *node))
            .collect();
        let half = times.len() / 2;
        let (_, &mut middle, _) = times.select_nth_unstable(half);
        let before = self.files.len();
        self.files.retain(|node, file| (file.took, *node) > middle);
        let gone = before - self.files.len();
        self.left_out = self.left_out.saturating_add(forerun_io::u64_from(gone));
    }
}

fn joined(bars: &[Bar]) -> Bar {
    let none = Bar {
        start: u64::MAX,
        end: 0,
        requests: 0,
        bytes: 0,
    };
    bars.iter().fold(none, |all, bar| Bar {
        start: all.start.min(bar.start),
        end: all.end.max(bar.end),
        requests: all.requests + bar.requests,
        bytes: all.bytes.saturating_add(bar.bytes),
    })
}

#[derive(Clone, Debug, Default)]
pub struct Names {
    names: HashMap<u64, (u64, Box<[u8]>)>,
    bytes: usize,
}

impl Names {
    pub fn add(&mut self, node: u64, dir: u64, name: &[u8]) {
        let has_room = self.names.len() < MOST_NAMES
            && self.bytes.saturating_add(name.len()) < MOST_NAME_BYTES;
        if has_room {
            self.bytes += name.len();
            if let Some((_, old)) = self.names.insert(node, (dir, name.into())) {
                self.bytes = self.bytes.saturating_sub(old.len());
            }
        }
    }

    /// Returns a node's path as far as names are known, `None` for a node without a name.
    pub fn path(&self, node: u64) -> Option<Vec<u8>> {
        let mut parts = Vec::new();
        let mut at = node;
        while let Some((dir, name)) = self.names.get(&at) {
            parts.push(name);
            if parts.len() >= MOST_DEPTH {
                break;
            }
            at = *dir;
        }
        if parts.is_empty() {
            return None;
        }
        let mut path = Vec::new();
        for name in parts.into_iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn bar(start: u64, end: u64) -> Bar {
        Bar {
            start,
            end,
            requests: 1,
            bytes: 10,
        }
    }

    #[test]
    fn bars_of_a_file_are_joined() {
        let mut files = FileTimes::default();
        for n in 0..1000 {
            files.add(1, n % 2 == 0, bar(10 * n, 10 * n + 5));
        }
        let (_, file) = files.slowest(1)[0];
        assert!(file.bars.len() <= MOST_BARS);
        let requests: u64 = file.bars.iter().map(|bar| bar.requests).sum();
        assert_eq!((requests, file.reads, file.writes), (1000, 500, 500));
        assert_eq!((file.took, file.slowest, file.bytes), (5000, 5, 10_000));
    }

    #[test]
    fn the_slowest_of_many_files_are_kept() {
        let mut files = FileTimes::default();
        for node in 0..100_000 {
            files.add(node, false, bar(0, node % 1000));
            files.add(7, false, bar(0, 2000));
        }
        assert!(files.len() <= MOST_FILES);
        assert_eq!(files.slowest(1)[0].0, 7);
        assert!(files.left_out > 80_000);
    }

    #[test]
    fn paths_end_whatever_the_names_say() {
        let mut names = Names::default();
        names.add(3, 2, b"c");
        names.add(2, 1, b"b");
        assert_eq!(names.path(3).unwrap(), b"/b/c");
        assert_eq!(names.path(1), None);
        names.add(2, 3, b"b");
        assert_eq!(names.path(3).unwrap().len(), 2 * MOST_DEPTH);
    }
}
