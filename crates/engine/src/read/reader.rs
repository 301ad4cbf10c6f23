//! From a node and a range to bytes.

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Once};

use forerun_io::{Counted, Counter, Limits, Observer, Pattern, saturating_usize, u64_from, wait};
use forerun_vfs::{Error, Extent, FileSystem, FileType, NodeId, Place, Result, Walk};

use super::assembly::{Assembly, Blocks};
use super::blobs::Blobs;
use super::decoded::Decoded;
use super::stored::Stored;
use crate::ahead::Pool;
use crate::ahead::Streams;
use crate::ahead::TreeAhead;
use crate::ahead::WalkAhead;
use crate::ahead::first_place;
use crate::ahead::{self, Plan};
use crate::metadata::{Searched, XattrScan};
use crate::tuning::{AHEAD_BUDGET, FILE_GAP, LONG_READ, READS_IN_FLIGHT};
use crate::{Bulk, Data, EngineOptions, MetadataSource};

/// Reads files of one image. Cheap to clone; used from many threads at once.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Inner>,
    guesses: bool,
}

struct Inner {
    fs: Arc<dyn FileSystem>,
    /// The driver itself, for walks of our own.
    driver: Arc<dyn FileSystem>,
    tree: Arc<TreeAhead>,
    xattrs: Arc<XattrScan>,
    metadata: Arc<MetadataSource>,
    moves: Arc<Moves>,
    streams: Streams,
    /// Whether several files may have parts of one block.
    shares_blocks: bool,
    /// Whether the threads of a mount that answer long reads keep all CPUs busy with decoding.
    readers_suffice: bool,
    prefetched: Once,
    options: EngineOptions,
    limits: Limits,
}

/// What moves the bytes: shared with the jobs of the pool.
pub struct Moves {
    pub stored: Stored,
    pub decoded: Decoded,
    pub pool: Arc<Pool>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// A reader of `fs`, which reads its metadata through `metadata` and has its data in `image`.
    #[must_use]
    pub fn new(
        fs: Arc<dyn FileSystem>,
        image: Counted,
        metadata: Arc<MetadataSource>,
        options: EngineOptions,
        limits: Limits,
    ) -> Self {
        let geometry = options.geometry(image.len());
        let ahead_budget = AHEAD_BUDGET.min(options.cache / 8);
        let (window, legacy) = match options.large_blocks {
            true => (options.readahead.min(ahead_budget / 2), false),
            false => (0, true),
        };
        let pool = Arc::new(Pool::new(options.pool_threads()));
        let others = Blobs::new(Arc::clone(&fs));
        let moves = Moves {
            stored: Stored::new(image, others, geometry, legacy, ahead_budget),
            decoded: Decoded::new(fs.volume().format, options.cache / 4 * 3, &limits),
            pool: Arc::clone(&pool),
        };
        let driver = fs;
        if options.large_blocks {
            metadata.set_ranges(driver.metadata_layout().ranges().to_vec());
        }
        let volume = driver.volume();
        // Names, of which an inode may have several; an image that shows more goes round in a circle.
        let most = volume.inodes.map_or(u64::MAX, |n| n.saturating_mul(4));
        let most = most.min(limits.tree_entries);
        let xattrs = Arc::new(XattrScan::new(volume.has_xattrs, most));
        let tree = Arc::new(TreeAhead::new(window));
        let fs: Arc<dyn FileSystem> = match window {
            // Nothing is to be read ahead.
            0 => Arc::clone(&driver),
            _ => Arc::new(WalkAhead::new(
                Arc::clone(&driver),
                pool,
                Arc::clone(&tree),
                Arc::clone(&metadata),
            )),
        };
        let inner = Inner {
            fs,
            driver,
            tree,
            xattrs,
            metadata,
            moves: Arc::new(moves),
            streams: Streams::new(window),
            shares_blocks: volume.shares_blocks,
            readers_suffice: options.pool_threads() <= READS_IN_FLIGHT,
            prefetched: Once::new(),
            options,
            limits,
        };
        Self {
            inner: Arc::new(inner),
            guesses: true,
        }
    }

    /// The same reader for who knows what it will read, and says so in other ways: nothing is
    /// guessed from the order in which it reads files. What is ahead in a file is still read ahead.
    #[must_use]
    pub fn without_guesses(&self) -> Self {
        Self {
            guesses: false,
            ..self.clone()
        }
    }

    /// The driver, for everything but data.
    #[must_use]
    pub fn fs(&self) -> &dyn FileSystem {
        &*self.inner.fs
    }

    /// The bounds this image was opened with.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// How it is read.
    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    /// Says that what is read is kept by whoever asks, as the kernel keeps it of a mount. What was
    /// read ahead and served as it is in the image then goes from the cache below the source.
    pub fn set_kept_above(&self) {
        self.inner.moves.stored.set_kept_above();
    }

    /// Who counts.
    #[must_use]
    pub fn observer(&self) -> &Arc<Observer> {
        self.inner.moves.stored.observer()
    }

    /// A walk of `start` and everything below it, with the metadata read ahead of it.
    #[must_use]
    pub fn walk(&self, start: NodeId) -> Walk<'_> {
        self.prefetch_metadata();
        Walk::new(self.fs(), start, self.limits())
    }

    /// Returns whether files were ever read in the order of a listing: where not, there is nothing
    /// [`upcoming`](Self::upcoming). Cheap enough to ask before each listing.
    #[must_use]
    pub fn reads_trees(&self) -> bool {
        self.inner.tree.has_walked()
    }

    /// Small files that were read ahead of who reads a tree, in the order in which they will be
    /// wanted, at most `most`; each is given once. A front end that can hand them over before they
    /// are asked for reads them now. Of those given, some may never be asked for.
    #[must_use]
    pub fn upcoming(&self, most: usize) -> Vec<NodeId> {
        self.inner.tree.upcoming(most)
    }

    /// The first of them in `dir`, at most `most`, for a front end that is about to say that a
    /// listing of `dir` has ended: who listed it asks for them next.
    #[must_use]
    pub fn upcoming_in(&self, dir: NodeId, most: usize) -> Vec<NodeId> {
        self.inner.tree.upcoming_in(dir, most)
    }

    /// Returns whether a file of those was asked for meanwhile.
    #[must_use]
    pub fn was_read(&self, node: NodeId) -> bool {
        self.inner.tree.was_read(node)
    }

    /// Starts to read the image's metadata ahead, the first time it is called. A front end calls it
    /// when a walk seems to begin; [`walk`](Self::walk) does.
    pub fn prefetch_metadata(&self) {
        self.inner.prefetched.call_once(|| {
            if self.inner.metadata.has_ranges() {
                let metadata = Arc::clone(&self.inner.metadata);
                let pool = &self.inner.moves.pool;
                pool.submit_first(move || metadata.prefetch());
            }
        });
    }

    /// Returns whether it is certain that no node has extended attributes: a front end need not ask then.
    #[must_use]
    pub fn xattrs_absent(&self) -> bool {
        self.inner.xattrs.absent()
    }

    /// Notes that somebody asked for an extended attribute of some node, and whether it was there. Of
    /// many questions that find nothing, the pool begins to find out if there are any at all.
    pub fn note_xattr(&self, found: bool) {
        let inner = &self.inner;
        let searched = Searched {
            driver: Arc::clone(&inner.driver),
            metadata: Arc::clone(&inner.metadata),
        };
        inner.xattrs.asked(found, &searched, &inner.moves.pool);
    }

    /// Up to `len` bytes of `node` from `offset`: fewer only at the end of the file, none past it.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::NotAFile`], and what reading the metadata or the data
    /// gives. A range that holds one unreadable byte fails whole, and the error names where; other
    /// ranges are not affected.
    pub fn read(&self, node: NodeId, offset: u64, len: usize) -> Result<Data> {
        if wait::is_attempt() {
            return self.attempt(node, offset, len);
        }
        let (range, blocks) = self.begin(node, offset, len)?;
        self.assemble(node, range, blocks)
    }

    /// Returns whether a read may have to wait for a server now. A front end then tries what it is asked in
    /// a [`wait::attempt`] before it has a thread wait.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.inner.moves.stored.is_slow()
    }

    /// As [`read`](Self::read), for bytes that nobody has asked for yet: what is read ahead of
    /// whom stays as it is.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_aside(&self, node: NodeId, offset: u64, len: usize) -> Result<Data> {
        self.assemble(node, self.clamp(node, offset, len)?.1, Blocks::Shared)
    }

    /// As [`read`](Self::read), into the caller's buffer. Gives the number of bytes read.
    ///
    /// # Errors
    /// As [`read`](Self::read); the buffer's contents are unspecified then.
    pub fn read_into(&self, node: NodeId, offset: u64, out: &mut [u8]) -> Result<usize> {
        let (range, blocks) = self.begin(node, offset, out.len())?;
        let len = saturating_usize(range.end - range.start);
        let out = &mut out[..len];
        let mut assembly = Assembly::into_slice(&self.inner.moves, range.clone(), blocks, out);
        self.visit(node, range, &mut |extent| assembly.add(extent))?;
        assembly.finish()?;
        self.observer()
            .stats()
            .add(Counter::ServedBytes, u64_from(len));
        Ok(len)
    }

    /// Opens what a file has its data in, where that is outside the image: what a front end calls
    /// when the file is opened, so that what is missing fails then and not with the first read. What
    /// changed since it was opened before is opened anew, and so verified again where digests count.
    /// Nothing for other files.
    ///
    /// # Errors
    /// [`Error::Blob`], and those of [`FileSystem::map`].
    pub fn open(&self, node: NodeId) -> Result<()> {
        let mut first = None;
        self.fs().map(node, 0..1, &mut |extent| {
            first = match extent.place {
                Place::Stored { blob, .. } => Some(blob),
                Place::Encoded { block, .. } => Some(block.blob),
                Place::Zero | Place::Inline(_) => None,
            };
            ControlFlow::Break(())
        })?;
        match first {
            Some(blob) => self.inner.moves.stored.open(blob),
            None => Ok(()),
        }
    }

    /// First offset at or after `offset` that holds data, or nothing up to the end of the file.
    ///
    /// # Errors
    /// Those of [`FileSystem::map`].
    pub fn seek_data(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        self.seek(node, offset, |place| !matches!(place, Place::Zero))
    }

    /// First offset at or after `offset` that lies in a hole; the end of the file counts as one.
    /// Nothing where `offset` is at or past the end.
    ///
    /// # Errors
    /// Those of [`FileSystem::map`].
    pub fn seek_hole(&self, node: NodeId, offset: u64) -> Result<Option<u64>> {
        let size = self.file_size(node)?;
        let hole = self.seek(node, offset, |place| matches!(place, Place::Zero))?;
        Ok(hole.or((offset < size).then_some(size)))
    }

    /// Sorts regular files by where their first byte is, so that reading them in this order reads
    /// the image forward. Files whose extents cannot be told keep to the front.
    pub fn physical_order(&self, nodes: &mut [NodeId]) {
        nodes.sort_by_cached_key(|&node| first_place(self, node));
    }

    /// A stream over many files in the order given, read ahead as a whole.
    #[must_use]
    pub fn bulk(&self, nodes: Vec<NodeId>) -> Bulk {
        Bulk::new(self.clone(), nodes)
    }

    /// The same in [physical order](Self::physical_order), which is the quickest: nothing is read or
    /// decoded for several of the files that only one of them has.
    #[must_use]
    pub fn bulk_by_place(&self, nodes: Vec<NodeId>) -> Bulk {
        Bulk::by_place(self.clone(), nodes)
    }

    /// Reads `range` of a file, which lies in this extent of it.
    pub(crate) fn read_extent(
        &self,
        range: Range<u64>,
        extent: &Extent,
        blocks: Blocks,
    ) -> Result<Data> {
        let mut assembly = Assembly::new(&self.inner.moves, range, blocks);
        let _said_by_finish = assembly.add(extent.clone());
        Ok(self.served(assembly.finish()?))
    }

    /// Bytes that a bulk stream keeps ahead.
    pub(crate) fn bulk_window(&self) -> u64 {
        if self.options().readahead == 0 || !self.options().large_blocks {
            return 0;
        }
        self.inner.moves.stored.segments.budget() / 2
    }

    pub(crate) fn start(&self, plan: Plan) {
        ahead::start(&self.inner.moves, plan);
    }

    /// A read by a thread that may not wait. It counts as a step of its reader only if it succeeds,
    /// since it is made again otherwise.
    fn attempt(&self, node: NodeId, offset: u64, len: usize) -> Result<Data> {
        let data = self.read_aside(node, offset, len)?;
        if !wait::was_refused() {
            // To map what is ahead may take a wait; then its reader asks for it.
            let _refused = wait::attempt(|| self.begin(node, offset, len).map(|_| ()));
        }
        Ok(data)
    }

    fn assemble(&self, node: NodeId, range: Range<u64>, blocks: Blocks) -> Result<Data> {
        let mut assembly = Assembly::new(&self.inner.moves, range.clone(), blocks);
        self.visit(node, range, &mut |extent| assembly.add(extent))?;
        Ok(self.served(assembly.finish()?))
    }

    fn served(&self, data: Data) -> Data {
        let stats = self.observer().stats();
        stats.add(Counter::ServedBytes, u64_from(data.len()));
        data
    }

    /// The size of a file, and what of a read lies within it.
    fn clamp(&self, node: NodeId, offset: u64, len: usize) -> Result<(u64, Range<u64>)> {
        let size = self.file_size(node)?;
        let start = offset.min(size);
        Ok((size, start..size.min(start.saturating_add(u64_from(len)))))
    }

    /// Clamps a read to the file and starts what is to be read ahead of it. Says by whom the blocks
    /// in it are decoded.
    fn begin(&self, node: NodeId, offset: u64, len: usize) -> Result<(Range<u64>, Blocks)> {
        let (size, range) = self.clamp(node, offset, len)?;
        let start = range.start;
        if start == 0
            && self.guesses
            && let Some(walk) = self.inner.tree.on_read(node)
        {
            self.prefetch_metadata();
            let inner = Arc::clone(&self.inner);
            self.inner.moves.pool.submit_first(move || {
                let driver = &*inner.driver;
                let metadata = &inner.metadata;
                let expect = |nodes: &[NodeId]| metadata.expect_inodes(driver, nodes, FILE_GAP);
                let plan = inner.tree.go_on(driver, &expect, &walk);
                ahead::start(&inner.moves, plan);
            });
        }
        let inner = &self.inner;
        // The kernel keeps the pages of a long read: no other read wants its blocks.
        let is_long = range.end - range.start >= LONG_READ;
        let is_kept = inner.moves.stored.is_kept_above();
        let blocks = match is_long && is_kept && !inner.shares_blocks {
            true => Blocks::Own,
            false => Blocks::Shared,
        };
        if let Some(claim) = inner.streams.on_read(node, &range, size) {
            let mut plan = Plan::new(Pattern::Forward);
            plan.add(self.fs(), node, claim.range.clone(), 0, &|extent| {
                blocks == Blocks::Shared || !inner.readers_suffice || !extent.is_whole_block()
            });
            self.start(plan);
        }
        Ok((range, blocks))
    }

    fn visit(
        &self,
        node: NodeId,
        range: Range<u64>,
        visit: &mut dyn FnMut(Extent) -> ControlFlow<()>,
    ) -> Result<()> {
        if range.is_empty() {
            Ok(())
        } else {
            self.fs().map(node, range, visit)
        }
    }

    fn seek(
        &self,
        node: NodeId,
        offset: u64,
        wanted: impl Fn(&Place) -> bool,
    ) -> Result<Option<u64>> {
        let range = offset..self.file_size(node)?;
        let mut found = None;
        self.visit(node, range, &mut |extent| {
            if wanted(&extent.place) {
                found = Some(extent.logical.start.max(offset));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn file_size(&self, node: NodeId) -> Result<u64> {
        let metadata = self.fs().metadata(node)?;
        match metadata.kind {
            FileType::Regular => Ok(metadata.size),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }
}
