//! How long files were waited for, and their names.

use std::collections::HashMap;

/// Files of which the times are kept: about 25 MiB with their bars.
const MOST_FILES: usize = 1 << 14;
/// Bars of one file.
const MOST_BARS: usize = 64;
/// Names that are kept, and their bytes.
const MOST_NAMES: usize = 1 << 18;
const MOST_NAME_BYTES: usize = 32 << 20;
/// Directories of a path that is put together.
const MOST_DEPTH: usize = 64;

/// A time in which a file was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// From the start of its first request, in microseconds,
    pub start: u64,
    /// to the end of its last.
    pub end: u64,
    pub requests: u64,
    pub bytes: u64,
}

/// The use of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    pub reads: u64,
    pub writes: u64,
    pub bytes: u64,
    /// Time that they took together, in microseconds.
    pub took: u64,
    /// Time of the slowest one.
    pub slowest: u64,
    /// The times, in the order of the trace.
    pub bars: Vec<Bar>,
}

/// The files of a trace: all of them while they are few, else those that took longest.
#[derive(Clone, Debug, Default)]
pub struct FileTimes {
    files: HashMap<u64, FileUse>,
    /// Number of times that a file was left out because it took less time than others.
    pub left_out: u64,
}

impl FileTimes {
    /// Adds a read, or a write, that ended at `end`.
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

    /// Returns the slowest files with their nodes, the slowest first.
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

    /// Returns the number of files that are kept.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Forgets half of the files.
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

/// Joins bars to one.
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

/// The names of nodes.
#[derive(Clone, Debug, Default)]
pub struct Names {
    names: HashMap<u64, (u64, Box<[u8]>)>,
    bytes: usize,
}

impl Names {
    /// Keeps the name of a node, if there is room.
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

    /// Returns the path of a node as far as it is known; nothing for a node without a name.
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
