//! The constants that decide how much is read ahead, cached and remembered.
//!
//! Sizes are in bytes. Constants with a figure were measured on a virtual machine with 2 CPUs and a
//! disk of about 1 GB/s and 0.1 ms; the figures of whole designs are in `docs/decisions`.

// Sequential readers: ahead/streams.rs, reader/mod.rs.

/// Most sequential readers remembered per image: more than the processes that read one image at the
/// same time.
pub const STREAMS: usize = 64;
/// Number of streams that may have the full window; with more, the streams share the memory.
pub const STREAMS_AT_FULL_WINDOW: usize = 8;
/// The first window of a stream, equal to the kernel's default readahead.
pub const FIRST_WINDOW: u64 = 128 << 10;
/// Shortest first read of a file that starts a stream: `head` and `file` read less.
pub const TRUSTED_READ: u64 = 64 << 10;
/// Shortest read that is taken for one of several in flight, as the kernel's readahead in a mount
/// makes them. Smaller reads, as in a mount without large readahead, come one after the other.
pub const LONG_READ: u64 = 512 << 10;
/// Most extents of a read that are examined together, to find adjacent blocks.
pub const EXTENTS_TOGETHER: usize = 64;
/// Number of long reads that the kernel has in flight per file, and so the number of CPUs that
/// decode in request threads.
pub const READS_IN_FLIGHT: usize = 4;
/// Most bytes kept in readahead, whatever the budget of the cache.
pub const AHEAD_BUDGET: u64 = 32 << 20;
/// Number of spent segments to keep. A read that arrives late may still need the end of one.
pub const SPENT_SEGMENTS: usize = 2;

// The cache of decoded blocks: read/decoded.rs.

/// The fraction of the budget (one in N) above which blocks that were served to their end are
/// evicted first.
pub const SERVED_SHARE: u64 = 16;
/// The fraction of the budget (one in N) for blocks that are being decoded, in addition to the
/// cached blocks.
pub const DECODING_SHARE: u64 = 4;
/// Most blocks served to their end that are remembered.
pub const SERVED_BLOCKS: usize = 1 << 16;
/// The fraction of the budget (one in N) that a list of small files may fill with blocks that it
/// wants once. Lists of a few hundred files, of which a caller may have many, stay below it and
/// keep all their blocks.
pub const PASSING_SHARE: u64 = 4;
/// Number of remembered blocks that were decoded and not cached; the map holds up to twice as many.
pub const PASSED_BLOCKS: usize = 1 << 15;
/// Most blocks to remember that readers claimed while plans were being made.
pub const TAKEN_BLOCKS: usize = 1 << 12;

// Stored bytes: read/stored.rs.

/// Shortest stored block that is read in a request of its own. The spans of a compressed archive
/// are this long, and a file is often a small part of one; a source must not take two of them for a
/// sequential reader. Blocks of long files are planned anyway.
pub const LONG_BLOCK: u64 = 512 << 10;

// Compressed data read at random places: read/around.rs.

/// Length of the regions in which wanted bytes are counted: long enough for a meaningful count, and
/// shorter than most files that matter.
pub const AROUND_REGION: u64 = 32 << 20;
/// Unit in which a region is hinted: 32 parts, recorded in 64 bits.
pub const AROUND_PART: u64 = 1 << 20;
/// The fraction of a region (one in N) that readers must have wanted before the rest is hinted.
pub const AROUND_SHARE: u64 = 4;
/// Most regions counted.
pub const AROUND_REGIONS: usize = 4096;

// The rest of a block that is read at random places: reader/rest.rs.

/// Fewest bytes of a file in a block for which the rest of the block is kept; readers seldom want
/// more of smaller ones. With blocks of two to five pages, each block cost a store, and one request
/// in a hundred was saved.
pub const REST_WORTH: u64 = 64 << 10;

// Small files of a tree: ahead/tree, reader/sink.rs.

/// Most walks followed at a time; the least recently followed is forgotten first.
pub const TREE_WALKS: usize = 8;
/// Number of first reads remembered, to recognise the second read in a directory.
pub const FIRST_READS: usize = 32;
/// Number of remembered entries with their position in a listing; the map holds up to twice as
/// many.
pub const LISTED_ENTRIES: usize = 1 << 17;
/// Number of remembered files that were planned or read; the map holds up to twice as many. It
/// covers the distance between several readers of one tree. It is small because a file may be
/// wanted a second time.
pub const SEEN_FILES: usize = 1 << 12;
/// The first window of a tree walk.
pub const TREE_WINDOW: u64 = 512 << 10;
/// Most bytes of one file to read ahead before it is opened; the rest follows as the file is read.
pub const TREE_FILE: u64 = 1 << 20;
/// Fewest bytes that a file counts for, so that empty files do not make a walk endless.
pub const TREE_FILE_MIN: u64 = 2048;
/// Most entries that one step of a walk examines.
pub const TREE_STEP: usize = 2048;
/// Most steps taken in turn while all files that a walk meets were planned by other walks: enough
/// to get past all remembered files.
pub const TREE_TRIES: usize = 2 * SEEN_FILES / TREE_STEP;
/// Number of entries taken from a listing at once, whose inodes are requested together: one per
/// [`WINDOW_OF_ENTRY`] of the window, within these bounds.
pub const LISTING_BATCH: std::ops::RangeInclusive<usize> = 64..=512;
/// The part of the window per entry of a batch.
pub const WINDOW_OF_ENTRY: u64 = 16 << 10;
/// One in N of the files that are pushed is left out: the request for it shows how far the reader
/// has come.
pub const MARK_FILES: usize = 48;
/// The fraction of the window (one in N) after which a file is left out in any case, so that the
/// window moves before its end is reached.
pub const MARKS_IN_WINDOW: u64 = 8;
/// Number of files pushed before a listing is answered. The pushing thread has the next ones ready
/// when these are read.
pub const FIRST_FILES: usize = 2;
/// Number of files that the pushing thread takes together: few, so that it does not hold files that
/// are wanted next.
pub const PUSHED_TOGETHER: usize = 8;
/// Number of files outside of the image that a thread opens and hints in turn.
pub const HINTED_TOGETHER: usize = 16;
/// Largest gap between two files, or two inodes, that is read too so that both share one request. A
/// gap between inodes mostly holds the files of these inodes.
pub const FILE_GAP: u64 = 64 << 10;

// Lists of files: reader/bulk.rs.

/// When a list of files is read: maximum bytes of a file to read ahead before the caller reads that
/// file.
pub const BULK_FILE: u64 = 4 << 20;

// Directories: ahead/walk.rs.

/// Number of directories read ahead of the one that is listed.
pub const DIRECTORIES_AHEAD: usize = 8;
/// Most listings remembered, to recognise siblings.
pub const LISTINGS: usize = 64;
/// Most subdirectories remembered per listing; beyond them, a walk continues without readahead.
pub const LISTED_DIRECTORIES: usize = 4096;
/// Most inodes of one directory that are requested together.
pub const EXPECTED_INODES: usize = 1 << 14;
/// Number of entries recorded together for the readahead of files.
pub const NOTED_ENTRIES: usize = 512;

// Metadata at unknown offsets: metadata/source.rs and metadata/hints.rs.

/// Largest distance from the last miss at which a miss continues the run. Reading the gap costs
/// less than another request, on anything from an SD card up.
pub const METADATA_GAP: u64 = 16 << 10;
/// Number of close misses in a row before requests grow.
pub const CLOSE_MISSES: u32 = 2;
/// Largest request that covers blocks not wanted yet.
pub const METADATA_STEP: u64 = 1 << 20;
/// Bytes worth hinting per wanted block: about as many as the device transfers in the time of the
/// saved request, from SD cards (20 MB/s, 1 ms) to SSDs (1 GB/s, 0.1 ms).
pub const HINT_WORTH: u64 = 48 << 10;
/// Bytes that may be hinted before any hint has proved useful.
pub const HINT_TRUST: u64 = 4 << 20;
/// Smallest part hinted at once; parts start at multiples of it.
pub const HINT_STEP_MIN: u64 = 128 << 10;
pub const HINT_STEP_MAX: u64 = 8 << 20;
/// Credit at which the next part is hinted before a block in it is missed.
pub const HINT_CREDIT: u64 = 8 << 20;
/// Most hinted parts remembered. Adjacent parts are joined, so an image with dense metadata needs
/// few.
pub const HINT_PARTS: usize = 4096;

// Metadata apart from data: metadata/dense.rs.

/// Unit of reading, aligned to multiples of itself except at the ends of a range. On the disks
/// where this was measured, a request of this size takes little longer than one of 4 KiB, and a
/// directory with the inodes of its files seldom needs more than two chunks.
pub const METADATA_CHUNK: u64 = 128 << 10;
/// Largest request for a sequential reader; the prefetch of all metadata makes larger ones.
pub const DENSE_STEP: u64 = 1 << 20;
/// Largest distance from the last request at which a missing chunk continues it.
pub const DENSE_GAP: u64 = 1 << 20;
/// Fewest chunks to keep, whatever the budget.
pub const DENSE_CHUNKS: usize = 4;

// The search for extended attributes: metadata/xattr_scan.rs.

/// Inodes examined per negative lookup.
pub const XATTR_WORTH: u64 = 32;
/// Inodes per job.
pub const XATTR_JOB: u64 = 512;
/// Inodes per job once a program walks the tree.
pub const XATTR_WALK_JOB: u64 = 4096;
/// Number of negative lookups that count as a walk.
pub const XATTR_WALK: u64 = 1024;
/// Directories examined together in a walk.
pub const XATTR_DIRECTORIES: usize = 16;
pub const XATTR_INODES: usize = 4096;

// Volumes: volume.

/// Most bytes of one file to hint to the device before it is opened, equal to the kernel's default
/// readahead. The kernel's readahead of the device follows a longer file.
pub const VOLUME_FILE: u64 = 128 << 10;
/// Most walks waiting for the thread that advances them; more are dropped.
pub const WALKS_WAITING: usize = 16;

/// Zeros written in one request if the device cannot zero ranges itself.
pub const ZEROS_WRITE: u64 = 1 << 20;
/// Shortest range that the device is asked to zero itself.
pub const ZEROS_BY_DEVICE: u64 = 256 << 10;
