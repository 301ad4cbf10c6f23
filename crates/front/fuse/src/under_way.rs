//! READs that were taken from the kernel and not answered yet.
//!
//! A store into the page cache (FUSE_NOTIFY_STORE) waits for each page that a READ has locked, and
//! cannot be killed meanwhile. If the process is killed, no thread answers that READ, and the
//! waiting thread keeps the connection open: readers hang until the connection is aborted. So pages
//! of a file are stored only while no READ of them is in progress.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::Unpoisoned;

#[derive(Debug, Default)]
pub struct UnderWay {
    reads: Mutex<Vec<(u64, Range<u64>)>>,
}

impl UnderWay {
    /// Records that a READ of `range` in `file` was taken. It is in progress until the returned
    /// value is dropped.
    pub fn begin(self: &Arc<Self>, file: u64, range: Range<u64>) -> Reading {
        self.reads().push((file, range.clone()));
        let under_way = Arc::clone(self);
        Reading {
            under_way,
            read: (file, range),
        }
    }

    pub fn touches(&self, file: u64, range: &Range<u64>) -> bool {
        let touches = |read: &Range<u64>| read.start < range.end && range.start < read.end;
        let reads = self.reads();
        reads.iter().any(|(of, read)| *of == file && touches(read))
    }

    fn reads(&self) -> MutexGuard<'_, Vec<(u64, Range<u64>)>> {
        self.reads.lock().unpoisoned()
    }
}

pub struct Reading {
    under_way: Arc<UnderWay>,
    read: (u64, Range<u64>),
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut reads = self.under_way.reads();
        if let Some(at) = reads.iter().position(|read| *read == self.read) {
            reads.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_touched_until_each_read_of_it_was_answered() {
        let under_way = Arc::new(UnderWay::default());
        let page = 4096..8192;
        let (one, same) = (
            under_way.begin(7, page.clone()),
            under_way.begin(7, page.clone()),
        );
        let _other = under_way.begin(8, 0..4096);
        for (file, range, expected) in [
            (7, 0..4096, false),
            (7, 0..4097, true),
            (7, 8191..9000, true),
            (7, 8192..9000, false),
            (8, 4096..8192, false),
            (9, 0..9000, false),
        ] {
            assert_eq!(
                under_way.touches(file, &range),
                expected,
                "{range:?} of {file}"
            );
        }
        drop(one);
        assert!(under_way.touches(7, &page));
        drop(same);
        assert!(!under_way.touches(7, &page));
        assert!(under_way.touches(8, &(0..1)));
    }
}
