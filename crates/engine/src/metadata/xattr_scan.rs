//! The search for extended attributes in an image: for any attribute, and for those that programs
//! request of each file.
//!
//! `ls -l` asks for up to three attributes of each file. Each lookup is a round trip for the
//! kernel, unless a front end has said that the image has no attributes, or none of this name.
//! SquashFS records this in its superblock, EROFS does not. So each negative lookup pays for a scan
//! of 32 further inodes, in the order in which a walk meets them. A single listing then costs no
//! more than some directories.
//!
//! After 1,024 negative lookups, the scan assumes a tree walk, which reads all inodes in any case,
//! and finishes. No request waits for the scan: waiting was tried, and gains nothing.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use forerun_io::Unpoisoned;
use forerun_vfs::{
    ACL_ACCESS, ACL_DEFAULT, DirCursor, FileSystem, FileType, NodeId, Result, VolumeInfo, is_acl,
};

use crate::MetadataSource;
use crate::pool::Pool;
use crate::tuning::{
    METADATA_GAP, XATTR_DIRECTORIES, XATTR_INODES, XATTR_JOB, XATTR_WALK, XATTR_WALK_JOB,
    XATTR_WORTH,
};

/// The attributes that `ls -l` requests of each file, until it is told that the name is not
/// supported.
const PER_FILE: [&[u8]; 3] = [ACL_ACCESS, ACL_DEFAULT, b"security.selinux"];

/// Whether an image has attributes of a kind.
#[derive(Debug)]
struct Answer(AtomicU8);

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
/// The image has such attributes, or may have: the scan stopped before it knew.
const SOME: u8 = 2;

impl Answer {
    /// Creates an answer, which is known if the volume says that there are `none`.
    const fn new(none: bool) -> Self {
        Self(AtomicU8::new(if none { NONE } else { UNKNOWN }))
    }

    fn is(&self, answer: u8) -> bool {
        self.0.load(Ordering::Acquire) == answer
    }

    /// Records an answer. The first answer stays.
    fn settle(&self, answer: u8) {
        let _known = self
            .0
            .compare_exchange(UNKNOWN, answer, Ordering::AcqRel, Ordering::Acquire);
    }
}

/// A callback that announces nodes whose inodes will be wanted.
type ExpectInodes<'e> = &'e dyn Fn(&[NodeId]);
/// A callback that examines a node. Returns true to end the search.
type Look<'l> = &'l dyn Fn(NodeId) -> Result<bool>;

#[derive(Clone)]
pub struct Searched {
    pub driver: Arc<dyn FileSystem>,
    pub metadata: Arc<MetadataSource>,
}

/// The answers so far, and the state of the search.
#[derive(Debug)]
pub struct XattrScan {
    any: Answer,
    per_file: [Answer; PER_FILE.len()],
    questions: AtomicU64,
    credit: AtomicU64,
    running: AtomicBool,
    left: Mutex<Left>,
}

/// The part of the tree that is still to be searched.
#[derive(Debug)]
struct Left {
    /// Directories to visit, the next one last; `None` before the first step.
    dirs: Option<Vec<NodeId>>,
    /// How many more entries may be examined. An image with a loop may list directories endlessly.
    most: u64,
}

impl XattrScan {
    /// Creates a scan of at most `most` entries. Answers that the volume gives are known at once.
    pub fn new(volume: &VolumeInfo, most: u64) -> Self {
        Self {
            any: Answer::new(!volume.has_xattrs),
            per_file: PER_FILE.map(|name| Answer::new(is_acl(name) && !volume.has_acls)),
            questions: AtomicU64::new(0),
            credit: AtomicU64::new(0),
            running: AtomicBool::new(false),
            left: Mutex::new(Left { dirs: None, most }),
        }
    }

    pub fn absent(&self) -> bool {
        self.any.is(NONE)
    }

    /// Returns whether it is certain that no node has the attribute `name`. Except for the names in
    /// [`PER_FILE`], that is certain only if there are no attributes at all.
    pub fn is_absent(&self, name: &[u8]) -> bool {
        self.absent() || self.about(name).is_some_and(|answer| answer.is(NONE))
    }

    fn about(&self, name: &[u8]) -> Option<&Answer> {
        let mut answers = PER_FILE.iter().zip(&self.per_file);
        answers.find_map(|(of, answer)| (*of == name).then_some(answer))
    }

    fn is_settled(&self) -> bool {
        let mut answers = std::iter::once(&self.any).chain(&self.per_file);
        !answers.any(|answer| answer.is(UNKNOWN))
    }

    fn settle(&self, rest: u8) {
        self.any.settle(rest);
        self.per_file.iter().for_each(|answer| answer.settle(rest));
    }

    /// Records a lookup of the attribute `name` and whether it was `found`. Each negative lookup
    /// adds credit; enough credit starts the next part of the search on the pool.
    pub fn asked(self: &Arc<Self>, name: &[u8], found: bool, source: &Searched, pool: &Arc<Pool>) {
        if found {
            return self.note(name);
        }
        let is_open = |answer: &Answer| answer.is(UNKNOWN);
        if !is_open(&self.any) && !self.about(name).is_some_and(is_open) {
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

    fn note(&self, name: &[u8]) {
        self.any.settle(SOME);
        if let Some(answer) = self.about(name) {
            answer.settle(SOME);
        }
    }

    /// Queues the next part of the search. During a walk, each part queues the next one, so that
    /// readahead can run in between.
    fn search(self: &Arc<Self>, inodes: u64, source: Searched, pool: &Arc<Pool>) {
        let (this, again) = (Arc::clone(self), Arc::clone(pool));
        pool.submit(move || {
            this.step(&*source.driver, &source.metadata, inodes);
            let walks = this.questions.load(Ordering::Acquire) >= XATTR_WALK;
            if walks && !this.is_settled() {
                this.search(XATTR_WALK_JOB, source, &again);
            } else {
                this.running.store(false, Ordering::Release);
            }
        });
    }

    fn step(&self, driver: &dyn FileSystem, metadata: &MetadataSource, inodes: u64) {
        let expect = |nodes: &[NodeId]| metadata.expect_inodes(driver, nodes, METADATA_GAP);
        let look = |node| {
            driver.xattrs(node, &mut |name, _| self.note(name))?;
            Ok(self.is_settled())
        };
        let mut left = self.left.lock().unpoisoned();
        let rest = match left.go_on(driver, &expect, &look, inodes) {
            Ok(Some(true)) | Err(_) => SOME,
            Ok(Some(false)) => NONE,
            Ok(None) => return,
        };
        left.dirs = Some(Vec::new());
        self.settle(rest);
    }
}

impl Left {
    /// Searches about `inodes` more inodes. Returns `None` if some are left, `Some(false)` at the
    /// end of the tree, and `Some(true)` if `look` ended the search or the limit is reached.
    fn go_on(
        &mut self,
        driver: &dyn FileSystem,
        expect: ExpectInodes<'_>,
        look: Look<'_>,
        inodes: u64,
    ) -> Result<Option<bool>> {
        let root = driver.root();
        if self.dirs.is_none() && look(root)? {
            return Ok(Some(true));
        }
        let dirs = self.dirs.get_or_insert_with(|| vec![root]);
        let together = if inodes >= XATTR_WALK_JOB {
            XATTR_DIRECTORIES
        } else {
            1
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
                        found = any_of(look, expect, &mut nodes);
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
            if found? || seen > self.most || any_of(look, expect, &mut nodes)? {
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

/// Examines the nodes, and requests all their inodes before it waits for the first. Returns whether
/// `look` ended the search.
fn any_of(look: Look<'_>, expect: ExpectInodes<'_>, nodes: &mut Vec<NodeId>) -> Result<bool> {
    expect(nodes);
    for node in nodes.drain(..) {
        if look(node)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use forerun_io::{BlobId, BlockGeometry, Counted};
    use forerun_testkit::MemFsBuilder;

    use super::*;

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

    fn scan(most: u64) -> Arc<XattrScan> {
        let mut volume = VolumeInfo::new("any", 0, 1);
        (volume.has_xattrs, volume.has_acls) = (true, true);
        Arc::new(XattrScan::new(&volume, most))
    }

    /// Looks up `name` until the answers are known. Returns the number of lookups.
    fn ask(scan: &Arc<XattrScan>, searched: &Searched, name: &[u8]) -> u64 {
        let pool = Arc::new(Pool::new(1));
        for n in 1..10_000 {
            scan.asked(name, false, searched, &pool);
            while scan.running.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            if scan.is_settled() {
                return n;
            }
        }
        panic!("no answer");
    }

    #[test]
    fn none_is_found_out_within_few_questions() {
        let place = searched(tree());
        let scan = scan(1 << 20);
        assert!(!scan.absent() && !scan.is_absent(ACL_ACCESS));
        assert_eq!(ask(&scan, &place, b"user.a"), XATTR_JOB / XATTR_WORTH);
        assert!(scan.absent() && scan.is_absent(ACL_ACCESS));
    }

    #[test]
    fn the_search_goes_on_for_what_programs_ask_each_file_for() {
        for (name, absent) in [
            (&b"user.a"[..], &PER_FILE[..]),
            (ACL_DEFAULT, &[ACL_ACCESS, b"security.selinux"]),
            (b"security.selinux", &[ACL_ACCESS, ACL_DEFAULT]),
        ] {
            let mut builder = tree();
            let file = builder.file("2/9/last", []);
            builder.xattr(file, name, b"1");
            let place = searched(builder);
            let scan = scan(1 << 20);
            ask(&scan, &place, ACL_ACCESS);
            assert!(!scan.absent() && !scan.is_absent(b"user.b"));
            let known = PER_FILE.into_iter().filter(|name| scan.is_absent(name));
            assert_eq!(known.collect::<Vec<_>>(), absent);
        }
    }

    #[test]
    fn a_question_that_finds_one_answers_it_too() {
        let place = searched(tree());
        let (scan, pool) = (scan(1 << 20), Arc::new(Pool::new(0)));
        scan.asked(b"user.a", true, &place, &pool);
        assert!(scan.any.is(SOME) && !scan.is_settled());
        // Only an unknown answer could save a lookup, and none is left.
        for _ in 0..XATTR_WALK {
            scan.asked(b"user.b", false, &place, &pool);
        }
        assert_eq!(scan.questions.load(Ordering::Relaxed), 0);
        scan.asked(ACL_ACCESS, false, &place, &pool);
        assert_eq!(scan.questions.load(Ordering::Relaxed), 1);
        for name in PER_FILE {
            scan.asked(name, true, &place, &pool);
            assert!(!scan.is_absent(name));
        }
        assert!(scan.is_settled());
    }

    #[test]
    fn the_search_is_bounded() {
        let place = searched(tree());
        let scan = scan(100);
        ask(&scan, &place, ACL_ACCESS);
        let told = scan.absent() || scan.is_absent(ACL_ACCESS);
        assert!(!told, "more inodes than there may be: not told");
    }

    #[test]
    fn a_walk_has_the_search_go_on_to_its_end() {
        let place = searched(tree());
        let scan = scan(1 << 20);
        scan.questions.store(XATTR_WALK, Ordering::Relaxed);
        assert_eq!(ask(&scan, &place, ACL_ACCESS), 1);
        assert!(scan.absent());
    }

    #[test]
    fn where_the_volume_has_none_nothing_is_looked_at() {
        let mut volume = VolumeInfo::new("any", 0, 1);
        volume.has_acls = true;
        let scan = XattrScan::new(&volume, 0);
        assert!(scan.absent() && scan.is_absent(ACL_ACCESS));
        (volume.has_xattrs, volume.has_acls) = (true, false);
        let scan = XattrScan::new(&volume, 0);
        assert!(!scan.absent() && scan.is_absent(ACL_ACCESS));
        assert!(!scan.is_absent(b"security.selinux"));
    }
}
