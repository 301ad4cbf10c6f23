//! The search for any extended attribute in an image.
//!
//! Programs such as `ls -l` ask several times for each file. Each question is a round trip for the
//! kernel, unless a front end told it that there are no attributes. SquashFS says so in its
//! superblock, EROFS does not. So each negative lookup pays for a scan of 32 further inodes, in the
//! order in which a walk meets them; a single listing costs no more than some directories.
//!
//! After 1,024 negative lookups, the scan assumes a tree walk, which reads all inodes in any case,
//! and goes on to its end. No request waits for it: waiting was tried, and gains nothing.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forerun_io::Unpoisoned;
use forerun_vfs::{DirCursor, FileSystem, FileType, NodeId, Result};

use crate::MetadataSource;
use crate::pool::Pool;
use crate::tuning::{
    METADATA_GAP, XATTR_DIRECTORIES, XATTR_INODES, XATTR_JOB, XATTR_WALK, XATTR_WALK_JOB,
    XATTR_WORTH,
};

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
/// Some, or it could not be told.
const SOME: u8 = 2;

/// A callback: the inodes of these nodes will be wanted.
type ExpectInodes<'e> = &'e dyn Fn(&[NodeId]);

/// The image to search.
#[derive(Clone)]
pub struct Searched {
    pub driver: Arc<dyn FileSystem>,
    pub metadata: Arc<MetadataSource>,
}

/// The answer so far, and the state of the search.
pub struct XattrScan {
    answer: AtomicU8,
    questions: AtomicU64,
    credit: AtomicU64,
    running: AtomicBool,
    left: Mutex<Left>,
}

/// The rest of the search.
struct Left {
    /// Directories, the next one last; `None` before the first step.
    dirs: Option<Vec<NodeId>>,
    /// Entries that may still be looked at: an image may list a directory again and again.
    most: u64,
}

impl XattrScan {
    /// Creates a scan of at most `most` entries. The answer is known where the volume says that
    /// attributes are not `possible`.
    pub fn new(possible: bool, most: u64) -> Self {
        Self {
            answer: AtomicU8::new(if possible { UNKNOWN } else { NONE }),
            questions: AtomicU64::new(0),
            credit: AtomicU64::new(0),
            running: AtomicBool::new(false),
            left: Mutex::new(Left { dirs: None, most }),
        }
    }

    /// Returns whether it is certain that there are none.
    pub fn absent(&self) -> bool {
        self.answer.load(Ordering::Acquire) == NONE
    }

    /// Records a question and whether it `found` an attribute. Starts the next part of the search
    /// on the pool once enough questions found nothing.
    pub fn asked(self: &Arc<Self>, found: bool, source: &Searched, pool: &Arc<Pool>) {
        if self.answer.load(Ordering::Acquire) != UNKNOWN {
            return;
        }
        if found {
            self.answer.store(SOME, Ordering::Release);
            return;
        }
        let walks = self.questions.fetch_add(1, Ordering::AcqRel) >= XATTR_WALK;
        let credit = self.credit.fetch_add(XATTR_WORTH, Ordering::AcqRel) + XATTR_WORTH;
        let enough = credit >= XATTR_JOB || walks;
        if enough && !self.running.swap(true, Ordering::AcqRel) {
            self.credit.fetch_sub(credit, Ordering::AcqRel);
            self.search(credit, source.clone(), pool);
        }
    }

    /// Queues the next part of the search. During a walk, each part queues another up to the end,
    /// so that readahead can run in between.
    fn search(self: &Arc<Self>, inodes: u64, source: Searched, pool: &Arc<Pool>) {
        let (this, again) = (Arc::clone(self), Arc::clone(pool));
        pool.submit(move || {
            this.step(&*source.driver, &source.metadata, inodes);
            let walks = this.questions.load(Ordering::Acquire) >= XATTR_WALK;
            if walks && this.answer.load(Ordering::Acquire) == UNKNOWN {
                this.search(XATTR_WALK_JOB, source, &again);
            } else {
                this.running.store(false, Ordering::Release);
            }
        });
    }

    /// Searches about `inodes` more inodes.
    fn step(&self, driver: &dyn FileSystem, metadata: &MetadataSource, inodes: u64) {
        let expect = |nodes: &[NodeId]| metadata.expect_inodes(driver, nodes, METADATA_GAP);
        let mut left = self.left.lock().unpoisoned();
        let answer = match left.go_on(driver, &expect, inodes) {
            Ok(Some(true)) | Err(_) => SOME,
            Ok(Some(false)) => NONE,
            Ok(None) => return,
        };
        left.dirs = Some(Vec::new());
        self.answer.store(answer, Ordering::Release);
    }
}

impl Left {
    /// Searches about `inodes` more inodes. Returns whether there are attributes, or nothing where
    /// that is still open. Returns true where the limit is reached.
    fn go_on(
        &mut self,
        driver: &dyn FileSystem,
        expect: ExpectInodes<'_>,
        inodes: u64,
    ) -> Result<Option<bool>> {
        let root = driver.root();
        if self.dirs.is_none() && has(driver, root)? {
            return Ok(Some(true));
        }
        let dirs = self.dirs.get_or_insert_with(|| vec![root]);
        let together = match inodes >= XATTR_WALK_JOB {
            true => XATTR_DIRECTORIES,
            false => 1,
        };
        let mut todo = inodes;
        while !dirs.is_empty() {
            let batch = dirs.split_off(dirs.len().saturating_sub(together));
            let from = dirs.len();
            let (mut nodes, mut seen, mut found) = (Vec::new(), 0, Ok(false));
            for dir in batch.into_iter().rev() {
                driver.read_dir(dir, DirCursor::START, &mut |entry| {
                    seen += 1;
                    if entry.kind == FileType::Directory {
                        dirs.push(entry.node);
                    }
                    nodes.push(entry.node);
                    if nodes.len() >= XATTR_INODES {
                        found = any_of(driver, expect, &mut nodes);
                    }
                    match found {
                        Ok(false) if seen <= self.most => ControlFlow::Continue(()),
                        _ => ControlFlow::Break(()),
                    }
                })?;
                if seen > self.most || !matches!(found, Ok(false)) {
                    break;
                }
            }
            if found? || seen > self.most || any_of(driver, expect, &mut nodes)? {
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

/// Returns whether one of the nodes has attributes. Requests all their inodes before it waits for
/// the first.
fn any_of(
    driver: &dyn FileSystem,
    expect: ExpectInodes<'_>,
    nodes: &mut Vec<NodeId>,
) -> Result<bool> {
    expect(nodes);
    for node in nodes.drain(..) {
        if has(driver, node)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has(driver: &dyn FileSystem, node: NodeId) -> Result<bool> {
    let mut any = false;
    driver.xattrs(node, &mut |_, _| any = true)?;
    Ok(any)
}

#[cfg(test)]
mod tests {
    use forerun_io::{BlobId, BlockGeometry, Counted};
    use forerun_testkit::MemFsBuilder;

    use super::*;

    /// Creates a tree of 300 files in 30 directories.
    fn tree() -> MemFsBuilder {
        let mut builder = MemFsBuilder::new();
        for n in 0..300 {
            builder.file(&format!("{}/{}/{n}", n % 3, n % 10), []);
        }
        builder
    }

    fn searched(builder: MemFsBuilder) -> Searched {
        let image = builder.build();
        let source = Counted::new(
            Arc::new(image.source.clone()),
            BlobId::IMAGE,
            Arc::default(),
        );
        let geometry = BlockGeometry::legacy(source.len());
        Searched {
            driver: image.driver(),
            metadata: Arc::new(MetadataSource::new(source, geometry, 1 << 20)),
        }
    }

    /// Asks until the answer is known. Returns the number of questions.
    fn ask(scan: &Arc<XattrScan>, searched: &Searched) -> u64 {
        let pool = Arc::new(Pool::new(1));
        for n in 1..10_000 {
            scan.asked(false, searched, &pool);
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
        let place = searched(tree());
        let scan = Arc::new(XattrScan::new(true, 1 << 20));
        assert!(!scan.absent());
        assert_eq!(ask(&scan, &place), XATTR_JOB / XATTR_WORTH);
        assert!(scan.absent());
    }

    #[test]
    fn one_attribute_anywhere_ends_the_search() {
        let mut builder = tree();
        let file = builder.file("2/9/last", []);
        builder.xattr(file, b"user.a", b"1");
        let place = searched(builder);
        let scan = Arc::new(XattrScan::new(true, 1 << 20));
        ask(&scan, &place);
        assert!(!scan.absent());
    }

    #[test]
    fn a_question_that_finds_one_ends_it_too() {
        let place = searched(tree());
        let scan = Arc::new(XattrScan::new(true, 1 << 20));
        scan.asked(true, &place, &Arc::new(Pool::new(0)));
        assert_eq!(scan.answer.load(Ordering::Relaxed), SOME);
    }

    #[test]
    fn the_search_is_bounded() {
        let place = searched(tree());
        let scan = Arc::new(XattrScan::new(true, 100));
        ask(&scan, &place);
        assert!(!scan.absent(), "more inodes than there may be: not told");
    }

    #[test]
    fn a_walk_has_the_search_go_on_to_its_end() {
        let place = searched(tree());
        let scan = Arc::new(XattrScan::new(true, 1 << 20));
        scan.questions.store(XATTR_WALK, Ordering::Relaxed);
        assert_eq!(ask(&scan, &place), 1);
        assert!(scan.absent());
    }

    #[test]
    fn where_the_volume_has_none_nothing_is_looked_at() {
        assert!(XattrScan::new(false, 0).absent());
    }
}
