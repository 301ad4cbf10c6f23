//! Whether an image has any extended attribute at all.
//!
//! Programs such as `ls -l` ask several times for each file, and for the kernel each question is a
//! round trip, unless it was told once that there are none. SquashFS says so in its superblock, EROFS
//! does not. So questions that find nothing pay for a look at further inodes, in the order in which a
//! walk meets them; a single listing costs no more than some directories.
//!
//! Who has asked a thousand times without finding any walks a tree, and will read all of its inodes in
//! any case: then the search goes on to its end. Nobody is kept waiting for it, which was tried and
//! gains nothing.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use forerun_vfs::{DirCursor, FileSystem, FileType, NodeId, Result};

use crate::pool::Pool;

/// Inodes looked at for each question that found nothing.
const WORTH: u64 = 32;
/// Inodes that make a job.
const SLICE: u64 = 512;
/// Inodes that make a job once somebody walks.
const PART: u64 = 4096;
/// Questions without a find that make a walk.
const WALK: u64 = 1024;

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
/// Some, or it could not be told.
const SOME: u8 = 2;

/// What is known, and how far the search is.
pub struct XattrScan {
    answer: AtomicU8,
    questions: AtomicU64,
    credit: AtomicU64,
    running: AtomicBool,
    left: Mutex<Left>,
}

/// What is left to do.
struct Left {
    /// Directories, the next one last; `None` before the first step.
    dirs: Option<Vec<NodeId>>,
    /// Inodes that may still be looked at: an image may show a directory again and again.
    most: u64,
}

impl XattrScan {
    /// Nothing is known but that there are none where the volume says so. At most `most` inodes are
    /// looked at.
    pub fn new(possible: bool, most: u64) -> Self {
        Self {
            answer: AtomicU8::new(if possible { UNKNOWN } else { NONE }),
            questions: AtomicU64::new(0),
            credit: AtomicU64::new(0),
            running: AtomicBool::new(false),
            left: Mutex::new(Left { dirs: None, most }),
        }
    }

    /// Whether it is certain that there are none.
    pub fn absent(&self) -> bool {
        self.answer.load(Ordering::Acquire) == NONE
    }

    /// A question found nothing, or (`found`) something.
    pub fn asked(self: &Arc<Self>, found: bool, driver: &Arc<dyn FileSystem>, pool: &Arc<Pool>) {
        if self.answer.load(Ordering::Acquire) != UNKNOWN {
            return;
        }
        if found {
            self.answer.store(SOME, Ordering::Release);
            return;
        }
        let walks = self.questions.fetch_add(1, Ordering::AcqRel) >= WALK;
        let credit = self.credit.fetch_add(WORTH, Ordering::AcqRel) + WORTH;
        let enough = credit >= SLICE || walks;
        if enough && !self.running.swap(true, Ordering::AcqRel) {
            self.credit.fetch_sub(credit, Ordering::AcqRel);
            self.search(credit, Arc::clone(driver), pool);
        }
    }

    /// Queues the next part of the search. A walk has it done to the end, part by part, so that
    /// what is to be read ahead meanwhile comes in between.
    fn search(self: &Arc<Self>, inodes: u64, driver: Arc<dyn FileSystem>, pool: &Arc<Pool>) {
        let (this, again) = (Arc::clone(self), Arc::clone(pool));
        pool.submit(move || {
            this.step(&*driver, inodes);
            let walks = this.questions.load(Ordering::Acquire) >= WALK;
            if walks && this.answer.load(Ordering::Acquire) == UNKNOWN {
                this.search(PART, driver, &again);
            } else {
                this.running.store(false, Ordering::Release);
            }
        });
    }

    /// Looks at about `inodes` more.
    fn step(&self, driver: &dyn FileSystem, inodes: u64) {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match left.go_on(driver, inodes) {
            Ok(Some(true)) | Err(_) => SOME,
            Ok(Some(false)) => NONE,
            Ok(None) => return,
        };
        left.dirs = Some(Vec::new());
        self.answer.store(answer, Ordering::Release);
    }
}

impl Left {
    /// Whether there are any, or nothing where that is still open.
    fn go_on(&mut self, driver: &dyn FileSystem, inodes: u64) -> Result<Option<bool>> {
        let root = driver.root();
        if self.dirs.is_none() && has(driver, root)? {
            return Ok(Some(true));
        }
        let dirs = self.dirs.get_or_insert_with(|| vec![root]);
        let mut todo = inodes;
        while let Some(dir) = dirs.pop() {
            let (mut found, mut seen, from) = (Ok(false), 0, dirs.len());
            driver.read_dir(dir, DirCursor::START, &mut |entry| {
                seen += 1;
                if entry.kind == FileType::Directory {
                    dirs.push(entry.node);
                }
                found = has(driver, entry.node);
                match found {
                    Ok(false) if seen <= self.most => ControlFlow::Continue(()),
                    _ => ControlFlow::Break(()),
                }
            })?;
            if found? || seen > self.most {
                return Ok(Some(true));
            }
            self.most -= seen;
            if let Some(children) = dirs.get_mut(from..) {
                children.reverse();
            }
            if seen >= todo {
                return Ok(dirs.is_empty().then_some(false));
            }
            todo -= seen;
        }
        Ok(Some(false))
    }
}

fn has(driver: &dyn FileSystem, node: NodeId) -> Result<bool> {
    let mut any = false;
    driver.xattrs(node, &mut |_, _| any = true)?;
    Ok(any)
}

#[cfg(test)]
mod tests {
    use forerun_testkit::MemFsBuilder;

    use super::*;

    /// A tree of 300 files in 30 directories.
    fn tree() -> MemFsBuilder {
        let mut builder = MemFsBuilder::new();
        for n in 0..300 {
            builder.file(&format!("{}/{}/{n}", n % 3, n % 10), []);
        }
        builder
    }

    /// Asks until the answer is there; gives the questions it took.
    fn ask(scan: &Arc<XattrScan>, driver: &Arc<dyn FileSystem>) -> u64 {
        let pool = Arc::new(Pool::new(1));
        for n in 1..10_000 {
            scan.asked(false, driver, &pool);
            while scan.running.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            if scan.answer.load(Ordering::Acquire) != UNKNOWN {
                return n;
            }
        }
        panic!("no answer");
    }

    #[test]
    fn none_is_found_out_within_few_questions() {
        let driver = tree().build().driver();
        let scan = Arc::new(XattrScan::new(true, 1 << 20));
        assert!(!scan.absent());
        assert_eq!(ask(&scan, &driver), SLICE / WORTH);
        assert!(scan.absent());
    }

    #[test]
    fn one_attribute_anywhere_ends_the_search() {
        let mut builder = tree();
        let file = builder.file("2/9/last", []);
        builder.xattr(file, b"user.a", b"1");
        let driver = builder.build().driver();
        let scan = Arc::new(XattrScan::new(true, 1 << 20));
        ask(&scan, &driver);
        assert!(!scan.absent());
    }

    #[test]
    fn a_question_that_finds_one_ends_it_too() {
        let driver = tree().build().driver();
        let scan = Arc::new(XattrScan::new(true, 1 << 20));
        scan.asked(true, &driver, &Arc::new(Pool::new(0)));
        assert_eq!(scan.answer.load(Ordering::Relaxed), SOME);
    }

    #[test]
    fn the_search_is_bounded() {
        let driver = tree().build().driver();
        let scan = Arc::new(XattrScan::new(true, 100));
        ask(&scan, &driver);
        assert!(!scan.absent(), "more inodes than there may be: not told");
    }

    #[test]
    fn a_walk_has_the_search_go_on_to_its_end() {
        let driver = tree().build().driver();
        let scan = Arc::new(XattrScan::new(true, 1 << 20));
        scan.questions.store(WALK, Ordering::Relaxed);
        assert_eq!(ask(&scan, &driver), 1);
        assert!(scan.absent());
    }

    #[test]
    fn where_the_volume_has_none_nothing_is_looked_at() {
        assert!(XattrScan::new(false, 0).absent());
    }
}
