//! Readahead of directories during a tree walk.
//!
//! A walk lists one directory after the other. In most formats each listing takes several small
//! reads, and each read says where the next one is. But the order of the directories is known: the
//! children of this one, then its siblings. So once a reader walks, the pool reads some directories
//! ahead, which fills the caches of the driver and of the engine. Front ends see only the
//! [`FileSystem`] that wraps the driver.
//!
//! The inodes of a directory may be interleaved with data all over the image. If the driver can
//! locate them from the listing, they are all requested before the walk waits for the first.

use std::collections::{HashMap, VecDeque};
use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Mutex};

use forerun_io::Unpoisoned;
use forerun_vfs::{
    Capabilities, DirCursor, DirEntry, Extent, FileSystem, FileType, Metadata, MetadataLayout,
    NodeId, Problem, Result, VolumeInfo,
};

use super::tree::TreeAhead;
use crate::MetadataSource;
use crate::pool::Pool;
use crate::tuning::{
    DIRECTORIES_AHEAD, EXPECTED_INODES, LISTED_DIRECTORIES, LISTINGS, METADATA_GAP, NOTED_ENTRIES,
};

pub struct WalkAhead {
    fs: Arc<dyn FileSystem>,
    pool: Arc<Pool>,
    tree: Arc<TreeAhead>,
    metadata: Arc<MetadataSource>,
    /// Whether the driver can locate inodes from a listing.
    is_locatable: bool,
    listings: Mutex<VecDeque<Listing>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Ahead {
    /// Siblings of the listed directory that were not read ahead yet.
    siblings: Vec<NodeId>,
    was_read_ahead: bool,
}

struct Listing {
    dir: NodeId,
    children: Vec<NodeId>,
    /// The index of each child. A map, because a walk looks up every directory that it opens in
    /// each listing.
    places: HashMap<NodeId, usize>,
    /// Index of the first child that was not read ahead.
    next: usize,
}

impl Listing {
    fn new(dir: NodeId) -> Self {
        Self {
            dir,
            children: Vec::new(),
            places: HashMap::new(),
            next: 0,
        }
    }

    /// Adds subdirectories up to the limit. A child that is already listed keeps its index.
    fn extend(&mut self, children: &[NodeId]) {
        let room = LISTED_DIRECTORIES - self.children.len();
        for &child in children.iter().take(room) {
            self.places.entry(child).or_insert(self.children.len());
            self.children.push(child);
        }
    }
}

impl WalkAhead {
    pub fn new(
        fs: Arc<dyn FileSystem>,
        pool: Arc<Pool>,
        tree: Arc<TreeAhead>,
        metadata: Arc<MetadataSource>,
        layout: &MetadataLayout,
    ) -> Self {
        Self {
            is_locatable: *layout == MetadataLayout::Locatable,
            fs,
            pool,
            tree,
            metadata,
            listings: Mutex::new(VecDeque::new()),
        }
    }

    /// Records that `dir` is being listed from the start. Returns what to read ahead, or `None` if
    /// the listing is not part of a walk.
    fn on_list(&self, dir: NodeId) -> Option<Ahead> {
        let mut listings = self.listings.lock().unpoisoned();
        // A step from a directory into one of its children means that the reader walks.
        let places = listings.iter().map(|listing| listing.places.get(&dir));
        let (index, at) = places
            .enumerate()
            .find_map(|(index, place)| Some((index, *place?)))?;
        let mut listing = listings.remove(index)?;
        let was_read_ahead = at < listing.next;
        let from = listing.next.max(at + 1);
        let to = (at + 1 + DIRECTORIES_AHEAD).min(listing.children.len());
        let siblings = listing.children.get(from..to).unwrap_or_default().to_vec();
        listing.next = listing.next.max(to);
        listings.push_front(listing);
        Some(Ahead {
            siblings,
            was_read_ahead,
        })
    }

    fn listed(&self, dir: NodeId, from: DirCursor, children: &[NodeId]) {
        let mut listings = self.listings.lock().unpoisoned();
        let known = listings
            .iter()
            .position(|listing| listing.dir == dir)
            .and_then(|at| listings.remove(at));
        let mut listing = known
            .filter(|_| from != DirCursor::START)
            .unwrap_or_else(|| Listing::new(dir));
        listing.extend(children);
        listings.push_front(listing);
        listings.truncate(LISTINGS);
    }

    fn read_ahead(&self, dirs: Vec<NodeId>) {
        for dir in dirs {
            let (fs, metadata) = (Arc::clone(&self.fs), Arc::clone(&self.metadata));
            let is_located = self.locates_inodes();
            self.pool.submit_first(move || {
                if is_located {
                    for node in expect_inodes(&*fs, &metadata, dir) {
                        let _left_to_the_reader = fs.metadata(node);
                    }
                    return;
                }
                // The reader that comes to this directory reports the error.
                let _left_to_the_reader = fs.read_dir(dir, DirCursor::START, &mut |entry| {
                    let _left_to_the_reader = fs.metadata(entry.node);
                    ControlFlow::Continue(())
                });
            });
        }
    }

    fn locates_inodes(&self) -> bool {
        self.is_locatable && self.metadata.takes_expectations()
    }
}

/// Requests the first `EXPECTED_INODES` inodes of a directory together and returns their nodes. The
/// rest of a longer directory is read on demand.
fn expect_inodes(fs: &dyn FileSystem, metadata: &MetadataSource, dir: NodeId) -> Vec<NodeId> {
    let mut nodes = Vec::new();
    // The reader that comes to this directory reports the error.
    let _left_to_the_reader = fs.read_dir(dir, DirCursor::START, &mut |entry| {
        nodes.push(entry.node);
        if nodes.len() < EXPECTED_INODES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    metadata.expect_inodes(fs, &nodes, METADATA_GAP);
    nodes
}

impl FileSystem for WalkAhead {
    fn volume(&self) -> &VolumeInfo {
        self.fs.volume()
    }

    fn root(&self) -> NodeId {
        self.fs.root()
    }

    fn metadata(&self, node: NodeId) -> Result<Metadata> {
        self.fs.metadata(node)
    }

    fn lookup(&self, dir: NodeId, name: &[u8]) -> Result<Option<NodeId>> {
        self.fs.lookup(dir, name)
    }

    fn read_dir(
        &self,
        dir: NodeId,
        from: DirCursor,
        visit: &mut dyn FnMut(DirEntry<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        if from == DirCursor::START
            && let Some(ahead) = self.on_list(dir)
        {
            if !ahead.was_read_ahead && self.locates_inodes() {
                expect_inodes(&*self.fs, &self.metadata, dir);
            }
            self.read_ahead(ahead.siblings);
        }
        let (mut children, mut entries) = (Vec::new(), Vec::new());
        let result = self.fs.read_dir(dir, from, &mut |entry| {
            if entry.kind == FileType::Directory && children.len() < LISTED_DIRECTORIES {
                children.push(entry.node);
            }
            entries.push((entry.node, entry.next));
            if entries.len() == NOTED_ENTRIES {
                self.tree.listed(dir, &entries);
                entries.clear();
            }
            visit(entry)
        });
        self.tree.listed(dir, &entries);
        if !children.is_empty() {
            self.listed(dir, from, &children);
        }
        result
    }

    fn read_link(&self, node: NodeId) -> Result<Vec<u8>> {
        self.fs.read_link(node)
    }

    fn xattrs(&self, node: NodeId, visit: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        self.fs.xattrs(node, visit)
    }

    fn map(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        self.fs.map(node, range, visit)
    }

    fn describe(&self, node: Option<NodeId>) -> Result<Vec<(&'static str, String)>> {
        self.fs.describe(node)
    }

    fn check(&self, node: Option<NodeId>, report: &mut dyn FnMut(Problem)) -> Result<()> {
        self.fs.check(node, report)
    }

    fn capabilities(&self) -> Capabilities<'_> {
        self.fs.capabilities()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forerun_io::{BlockGeometry, Counted};
    use forerun_testkit::MemFsBuilder;
    use forerun_vfs::BlobId;

    fn walk_ahead(builder: &MemFsBuilder) -> WalkAhead {
        let image = builder.clone().build();
        let source = Counted::new(
            Arc::new(image.source.clone()),
            BlobId::IMAGE,
            Arc::default(),
        );
        let geometry = BlockGeometry::legacy(source.len());
        WalkAhead::new(
            image.driver(),
            Arc::new(Pool::new(0)),
            Arc::new(TreeAhead::new(0, 0)),
            Arc::new(MetadataSource::new(source, geometry, 1 << 20)),
            &MetadataLayout::Unknown,
        )
    }

    fn siblings(fs: &WalkAhead, dir: NodeId) -> Vec<NodeId> {
        fs.on_list(dir)
            .map(|ahead| ahead.siblings)
            .unwrap_or_default()
    }

    fn list(fs: &WalkAhead, dir: NodeId) {
        fs.read_dir(dir, DirCursor::START, &mut |_| ControlFlow::Continue(()))
            .unwrap();
    }

    #[test]
    fn siblings_are_read_ahead_once_a_walk_shows() {
        let mut builder = MemFsBuilder::new();
        let dirs: Vec<_> = (0..20).map(|n| builder.dir(&format!("{n:02}"))).collect();
        let fs = walk_ahead(&builder);
        assert_eq!(fs.on_list(fs.root()), None, "one listing is no walk");
        list(&fs, fs.root());
        assert_eq!(siblings(&fs, dirs[0]), dirs[1..9]);
        assert_eq!(
            siblings(&fs, dirs[1]),
            dirs[9..10],
            "only what was not read ahead before"
        );
        assert_eq!(siblings(&fs, dirs[15]), dirs[16..20]);
        assert!(siblings(&fs, dirs[19]).is_empty());
        assert!(siblings(&fs, NodeId(999)).is_empty());
    }

    #[test]
    fn a_listing_in_parts_is_one_listing() {
        let mut builder = MemFsBuilder::new();
        let dirs: Vec<_> = (0..20).map(|n| builder.dir(&format!("{n:02}"))).collect();
        let fs = walk_ahead(&builder);
        let (mut from, mut seen) = (DirCursor::START, 0);
        while seen < dirs.len() {
            fs.read_dir(fs.root(), from, &mut |entry| {
                (from, seen) = (entry.next, seen + 1);
                if seen % 3 == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
            .unwrap();
        }
        assert_eq!(siblings(&fs, dirs[10]), dirs[11..19]);
    }

    #[test]
    fn listings_are_bounded() {
        let mut builder = MemFsBuilder::new();
        let dirs: Vec<_> = (0..500)
            .map(|n| (builder.dir(&format!("{n}/a")), builder.dir(&format!("{n}"))).1)
            .collect();
        let fs = walk_ahead(&builder);
        for dir in dirs {
            list(&fs, dir);
        }
        assert_eq!(fs.listings.lock().unwrap().len(), LISTINGS);
    }
}
