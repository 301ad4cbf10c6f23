//! Single reads: from a node and a range to bytes.

mod bulk;
mod group;
mod outside;
mod proven;
mod rest;
mod seek;
mod sink;
mod together;

use std::ops::{ControlFlow, Range};
use std::sync::{Arc, Once};

use forerun_io::{BlobId, Counted, Counter, Limits, Observer, Pattern, u64_from, usize_from, wait};
use forerun_vfs::{
    Error, Extent, FileSystem, FileType, Layout, MetadataLayout, NodeId, Place, Result, Walk,
};

use crate::ahead::{self, Plan, Streams, TreeAhead, WalkAhead};
use crate::metadata::{Searched, XattrScan};
use crate::pool::Pool;
use crate::read::{Assembly, BlobTable, Blocks, Decoded, Moves, Stored};
use crate::tuning::{AHEAD_BUDGET, LONG_READ, READS_IN_FLIGHT, TREE_FILE};
use crate::{Data, EngineOptions, MetadataSource};
use sink::Pusher;

pub use bulk::{Bulk, TakenFile};
pub use group::{Asked, FilePlace, GroupBlock};
pub use sink::Sink;

/// A reader of the files of one image. Cheap to clone; may be used from many threads at once.
#[derive(Clone)]
pub struct Reader {
    inner: Arc<Inner>,
    guesses: bool,
    sink: Option<Arc<Pusher>>,
}

struct Inner {
    fs: Arc<dyn FileSystem>,
    /// The driver without readahead, for the engine's own walks.
    driver: Arc<dyn FileSystem>,
    tree: Arc<TreeAhead>,
    xattrs: Arc<XattrScan>,
    metadata: Arc<MetadataSource>,
    moves: Arc<Moves>,
    streams: Streams,
    /// Whether several files may have parts of one block.
    shares_blocks: bool,
    /// Whether long reads of a mount decode on all CPUs already, in the threads that answer them.
    readers_suffice: bool,
    prefetched: Once,
    options: EngineOptions,
    limits: Limits,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("options", &self.inner.options)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Creates a reader of `fs`, whose metadata is read through `metadata` and whose data is in
    /// `image`.
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
        let (window, legacy) = if options.large_blocks {
            (options.readahead.min(ahead_budget / 2), false)
        } else {
            (0, true)
        };
        let pool = Arc::new(Pool::new(options.pool_threads()));
        let others = BlobTable::new(Arc::clone(&fs));
        let moves = Moves {
            stored: Stored::new(image, others, geometry, legacy, window > 0, ahead_budget),
            decoded: Decoded::new(fs.volume().format, options.cache / 4 * 3, &limits),
            pool: Arc::clone(&pool),
        };
        let driver = fs;
        // A driver may have to read for the answer, so it is asked once.
        let layout = if options.large_blocks {
            driver.metadata_layout()
        } else {
            MetadataLayout::Unknown
        };
        metadata.set_ranges(layout.ranges().to_vec());
        let parts = driver.capabilities().layout;
        let shares_blocks = parts.is_some_and(Layout::shares_blocks);
        let volume = driver.volume();
        // The scan counts names, and an inode may have several. An image that lists more names than
        // this has a loop.
        let most = volume.inodes.map_or(u64::MAX, |n| n.saturating_mul(4));
        let most = most.min(limits.tree_entries);
        let xattrs = Arc::new(XattrScan::new(volume, most));
        let tree = Arc::new(TreeAhead::new(window, TREE_FILE));
        let fs: Arc<dyn FileSystem> = match window {
            // Readahead is off.
            0 => Arc::clone(&driver),
            _ => Arc::new(WalkAhead::new(
                Arc::clone(&driver),
                pool,
                Arc::clone(&tree),
                Arc::clone(&metadata),
                &layout,
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
            shares_blocks,
            readers_suffice: options.pool_threads() <= READS_IN_FLIGHT,
            prefetched: Once::new(),
            options,
            limits,
        };
        Self {
            inner: Arc::new(inner),
            guesses: true,
            sink: None,
        }
    }

    /// Returns the same reader for a caller that announces in other ways what it will read. It does
    /// not guess from the order in which files are read. Readahead within a file stays on.
    #[must_use]
    pub fn without_guesses(&self) -> Self {
        Self {
            guesses: false,
            ..self.clone()
        }
    }

    /// Returns the driver, with readahead of directories, for everything but file data.
    #[must_use]
    pub fn fs(&self) -> &dyn FileSystem {
        &*self.inner.fs
    }

    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    #[must_use]
    pub fn options(&self) -> &EngineOptions {
        &self.inner.options
    }

    /// Declares that the caller caches what it reads, as the kernel does for a mount. Bytes of the
    /// image that were read ahead and served as they are stored then leave the cache below the
    /// source.
    pub fn set_kept_above(&self) {
        self.inner.moves.stored.set_kept_above();
    }

    #[must_use]
    pub fn observer(&self) -> &Arc<Observer> {
        self.inner.moves.stored.observer()
    }

    /// Returns how many bytes of metadata, data and readahead the caches hold.
    #[must_use]
    pub fn cached_bytes(&self) -> u64 {
        let (moves, metadata) = (&self.inner.moves, &self.inner.metadata);
        moves.decoded.bytes() + moves.stored.segments.bytes() + metadata.cached_bytes()
    }

    /// Returns a walk of `start` and everything below it, and starts to read metadata ahead of it.
    #[must_use]
    pub fn walk(&self, start: NodeId) -> Walk<'_> {
        self.prefetch_metadata();
        Walk::new(self.fs(), start, self.limits())
    }

    /// Returns a walk as [`walk`](Self::walk) does. It keeps the image open itself.
    #[must_use]
    pub fn shared_walk(&self, start: NodeId) -> Walk<'static> {
        self.prefetch_metadata();
        Walk::shared(Arc::clone(&self.inner.fs), start, self.limits().clone())
    }

    /// Returns the same reader for a front end that takes small files before they are requested:
    /// the files that a program will open next, as it reads a tree, are pushed to `sink`. Other
    /// readers of the image push nothing. Returns the reader without a sink if no thread can be
    /// started.
    #[must_use]
    pub fn with_sink(&self, sink: Arc<dyn Sink>) -> Self {
        let reader = Self {
            sink: None,
            ..self.clone()
        };
        let pusher = Pusher::start(reader.clone(), Arc::clone(&self.inner.tree), sink);
        Self {
            sink: pusher.map(Arc::new),
            ..reader
        }
    }

    /// Records that a program has seen part of the listing of `dir` and asks for more. A front end
    /// with a [`Sink`] calls this before it answers.
    pub fn listed(&self, dir: NodeId) {
        if let Some(pusher) = &self.sink {
            pusher.listed(dir);
        }
    }

    /// Starts to read the image's metadata ahead, the first time it is called. A front end calls it
    /// when a walk seems to begin; [`walk`](Self::walk) calls it too.
    pub fn prefetch_metadata(&self) {
        self.inner.prefetched.call_once(|| {
            if self.inner.metadata.has_ranges() {
                let metadata = Arc::clone(&self.inner.metadata);
                let pool = &self.inner.moves.pool;
                pool.submit_first(move || metadata.prefetch());
            }
        });
    }

    /// Returns whether it is certain that no node has extended attributes. A front end then need
    /// not look them up.
    #[must_use]
    pub fn xattrs_absent(&self) -> bool {
        self.inner.xattrs.absent()
    }

    /// Returns whether it is certain that no node has the extended attribute `name`. This is known
    /// only for some names that programs request of each file. A front end then answers that the
    /// name is not supported, and programs ask only once.
    #[must_use]
    pub fn xattr_absent(&self, name: &[u8]) -> bool {
        self.inner.xattrs.is_absent(name)
    }

    /// Records a lookup of the extended attribute `name`, and whether it was found. After many
    /// negative lookups, the pool searches the image for any attribute, and for those that programs
    /// request of each file.
    pub fn note_xattr(&self, name: &[u8], found: bool) {
        let inner = &self.inner;
        let searched = Searched {
            driver: Arc::clone(&inner.driver),
            metadata: Arc::clone(&inner.metadata),
        };
        inner
            .xattrs
            .asked(name, found, &searched, &inner.moves.pool);
    }

    /// Reads up to `len` bytes of `node` from `offset`: fewer only at the end of the file, none
    /// past it.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use forerun_engine::{EngineOptions, MetadataSource, Reader};
    /// # use forerun_io::{BlobId, Counted, Limits};
    /// # use forerun_testkit::{MemFsBuilder, Piece};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut builder = MemFsBuilder::new();
    /// # let node = builder.file("file", [Piece::Stored(b"0123456789".to_vec())]);
    /// # let image = builder.build();
    /// # let options = EngineOptions::default();
    /// # let source = Counted::new(Arc::new(image.source.clone()), BlobId::IMAGE, Arc::default());
    /// # let geometry = options.geometry(source.len());
    /// # let metadata = Arc::new(MetadataSource::new(source.clone(), geometry, 1 << 20));
    /// # let reader = Reader::new(image.driver(), source, metadata, options, Limits::default());
    /// assert_eq!(&reader.read(node, 2, 3)?[..], b"234");
    /// assert_eq!(&reader.read(node, 8, 100)?[..], b"89");
    /// assert!(reader.read(node, 10, 100)?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::NotAFile`], and the errors of reading the metadata or the
    /// data. A range that holds an unreadable byte fails as a whole, and the error says where;
    /// other ranges are not affected.
    pub fn read(&self, node: NodeId, offset: u64, len: usize) -> Result<Data> {
        let timer = self.observer().timer();
        let read = if wait::is_attempt() {
            self.attempt(node, offset, len)
        } else {
            self.begin(node, offset, len)
                .and_then(|(range, blocks)| self.assemble(node, range, blocks))
        };
        // A read that may not wait is made again, and counted then.
        if read.is_ok() || !wait::was_refused() {
            let len = u64_from(read.as_ref().map_or(len, |data| data.len()));
            let observer = self.observer();
            observer.file_read(timer, node.0, (offset, len), read.is_ok());
        }
        read
    }

    /// Returns whether a read may have to wait for a server now. A front end then tries each
    /// request in a [`wait::attempt`] before it lets a thread wait.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.inner.moves.stored.is_slow()
    }

    /// Reads as [`read`](Self::read) does, without readahead and without advancing a stream: for
    /// bytes that no program has requested.
    pub(crate) fn read_aside(&self, node: NodeId, offset: u64, len: usize) -> Result<Data> {
        self.assemble(node, self.clamp(node, offset, len)?.1, Blocks::Shared)
    }

    /// Reads as [`read`](Self::read) does, into the caller's buffer. Returns the number of bytes
    /// read.
    ///
    /// # Errors
    /// The errors of [`read`](Self::read). The contents of the buffer are unspecified then.
    pub fn read_into(&self, node: NodeId, offset: u64, out: &mut [u8]) -> Result<usize> {
        let (range, blocks) = self.begin(node, offset, out.len())?;
        let len = usize_from(range.end - range.start);
        let out = &mut out[..len];
        let mut assembly = Assembly::into_slice(&self.inner.moves, range.clone(), blocks, out);
        self.collect(node, range, &mut assembly)?;
        assembly.finish()?;
        self.observer()
            .stats()
            .add(Counter::ServedBytes, u64_from(len));
        Ok(len)
    }

    /// Opens the blob that holds the data of a file. A front end calls this when the file is
    /// opened, so that a missing blob fails the open and not the first read. A blob that has
    /// changed since it was last opened is opened again, and so verified again if digests are
    /// compared. Does nothing for data in the image.
    ///
    /// # Errors
    /// [`Error::Blob`], and the errors of [`FileSystem::map`].
    pub fn open(&self, node: NodeId) -> Result<()> {
        match self.first_blob(node)? {
            Some(blob) => self.inner.moves.stored.open(blob),
            None => Ok(()),
        }
    }

    /// Returns whether the data of a file starts in a blob that is not the image. Opens no blob.
    ///
    /// # Errors
    /// The errors of [`FileSystem::map`].
    pub fn is_outside(&self, node: NodeId) -> Result<bool> {
        let first = self.first_blob(node)?;
        Ok(first.is_some_and(|blob| blob != BlobId::IMAGE))
    }

    fn first_blob(&self, node: NodeId) -> Result<Option<BlobId>> {
        let mut first = None;
        self.fs().map(node, 0..1, &mut |extent| {
            first = match extent.place {
                Place::Stored { blob, .. } => Some(blob),
                Place::Encoded { block, .. } => Some(block.blob),
                Place::Zero | Place::Inline(_) => None,
            };
            ControlFlow::Break(())
        })?;
        Ok(first)
    }

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

    /// Returns how many bytes a bulk stream keeps ahead.
    pub(crate) fn bulk_window(&self) -> u64 {
        if self.options().readahead == 0 || !self.options().large_blocks {
            return 0;
        }
        self.inner.moves.stored.segments.budget() / 2
    }

    pub(crate) fn start(&self, plan: Plan) {
        ahead::start(&self.inner.moves, plan);
    }

    /// Reads in a thread that may not wait. Only a successful read advances its stream, because a
    /// refused one is made again.
    fn attempt(&self, node: NodeId, offset: u64, len: usize) -> Result<Data> {
        let data = self.read_aside(node, offset, len)?;
        if !wait::was_refused() {
            // Mapping the extents ahead may need a wait. They are not read ahead then; the read
            // that needs them maps them.
            let _refused = wait::attempt(|| self.begin(node, offset, len).map(|_| ()));
        }
        Ok(data)
    }

    fn assemble(&self, node: NodeId, range: Range<u64>, blocks: Blocks) -> Result<Data> {
        let mut assembly = Assembly::new(&self.inner.moves, range.clone(), blocks);
        self.collect(node, range, &mut assembly)?;
        Ok(self.served(assembly.finish()?))
    }

    fn served(&self, data: Data) -> Data {
        let stats = self.observer().stats();
        stats.add(Counter::ServedBytes, u64_from(data.len()));
        data
    }

    /// Returns the size of a file, and the part of a read that lies within it.
    fn clamp(&self, node: NodeId, offset: u64, len: usize) -> Result<(u64, Range<u64>)> {
        let size = self.file_size(node)?;
        let start = offset.min(size);
        Ok((size, start..start + u64_from(len).min(size - start)))
    }

    /// Clamps a read to the file and starts the readahead after it. Returns the clamped range, and
    /// whether other reads may use its blocks.
    fn begin(&self, node: NodeId, offset: u64, len: usize) -> Result<(Range<u64>, Blocks)> {
        let (size, range) = self.clamp(node, offset, len)?;
        let start = range.start;
        if start == 0
            && self.guesses
            && let Some(walk) = self.inner.tree.on_read(node)
        {
            self.prefetch_metadata();
            let inner = Arc::clone(&self.inner);
            let pusher = self.sink.clone();
            self.inner.moves.pool.submit_first(move || {
                let _planning = inner.moves.decoded.planning();
                ahead::start(&inner.moves, inner.walk_on(&walk));
                if let Some(pusher) = pusher {
                    pusher.wake();
                }
            });
        }
        let inner = &self.inner;
        // The kernel keeps the pages of a long read, so no other read wants its blocks.
        let is_long = range.end - range.start >= LONG_READ;
        let is_kept = inner.moves.stored.is_kept_above();
        let blocks = if is_long && is_kept && !inner.shares_blocks {
            Blocks::Own
        } else {
            Blocks::Shared
        };
        if let Some(claim) = inner.streams.on_read(node, &range, size) {
            let _planning = inner.moves.decoded.planning();
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

    fn file_size(&self, node: NodeId) -> Result<u64> {
        let metadata = self.fs().metadata(node)?;
        match metadata.kind {
            FileType::Regular => Ok(metadata.size),
            FileType::Directory => Err(Error::IsADirectory),
            _ => Err(Error::NotAFile),
        }
    }
}
