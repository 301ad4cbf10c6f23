//! Every constant that decides how much is read ahead, kept and forgotten.
//!
//! Sizes are in bytes. Those with a figure were measured on a virtual machine with 2 CPUs and a disk of
//! about 1 GB/s and 0.1 ms; the figures of whole designs are in `docs/decisions`.

// Sequential readers: ahead/streams.rs, reader/mod.rs.

/// Sequential readers remembered for each image: more than a machine has processes that read one image
/// side by side.
pub const STREAMS: usize = 64;
/// Streams that may have the full window; more of them share its memory.
pub const STREAMS_AT_FULL_WINDOW: usize = 8;
/// The first window of a stream: the kernel's own default for readahead.
pub const FIRST_WINDOW: u64 = 128 << 10;
/// Shortest first read of a file that begins a stream: `head` and `file` read less.
pub const TRUSTED_READ: u64 = 64 << 10;
/// Shortest read of a reader that has several such reads in flight, as the kernel's readahead in a
/// mount has. Smaller reads, as in a mount without large readahead, come one after the other.
pub const LONG_READ: u64 = 512 << 10;
/// Extents of a read that are examined together, to find adjacent blocks.
pub const EXTENTS_TOGETHER: usize = 64;
/// Long reads of one file that the kernel has in flight, and so the number of CPUs that decode in
/// request threads.
pub const READS_IN_FLIGHT: usize = 4;
/// Most bytes that were read ahead and are kept, whatever the budget of the cache.
pub const AHEAD_BUDGET: u64 = 32 << 20;
/// How many consumed segments are kept. A read that arrives late may still need the end of one.
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
/// The fraction of the budget (one in N) that a list of small files fills with blocks that it wants
/// once. Lists of a few hundred files, of which a caller may have many, keep all their blocks.
pub const PASSING_SHARE: u64 = 4;
/// Number of remembered blocks that were decoded and not kept; at most twice as many.
pub const PASSED_BLOCKS: usize = 1 << 15;
/// Most blocks remembered that readers took while plans were being made.
pub const TAKEN_BLOCKS: usize = 1 << 12;

// Stored bytes: read/stored.rs.

/// Shortest stored block that is read by itself, so that a source does not take two of them for a
/// sequential reader: the spans of a compressed archive, of which a file is often a small part.
/// Readers of long files have their blocks planned.
pub const LONG_BLOCK: u64 = 512 << 10;

// Compressed data read at random places: read/around.rs.

/// Length of the regions for which the wanted bytes are counted: long enough to be telling, and
/// shorter than most files that matter.
pub const AROUND_REGION: u64 = 32 << 20;
/// Unit in which a region is hinted: 32 of them, in 64 bits.
pub const AROUND_PART: u64 = 1 << 20;
/// The fraction of a region (one in N) that must have been wanted.
pub const AROUND_SHARE: u64 = 4;
/// Regions counted, at most.
pub const AROUND_REGIONS: usize = 4096;

// The rest of a block that is read at random places: reader/rest.rs.

/// Fewest bytes of a file in a block of which the rest is kept: a reader seldom wants more of
/// fewer. Blocks of two to five pages had a store each, and saved one request in a hundred.
pub const REST_WORTH: u64 = 64 << 10;

// Small files of a tree: ahead/tree, reader/sink.rs.

/// Walks followed at a time, the least recently followed forgotten first.
pub const TREE_WALKS: usize = 8;
/// First reads remembered, to recognise the second of a directory.
pub const FIRST_READS: usize = 32;
/// Number of entries whose place in a listing is remembered; at most twice as many.
pub const LISTED_ENTRIES: usize = 1 << 17;
/// Number of remembered files that were planned or read, at most twice as many: enough for the
/// distance between several readers of one tree. Not many more, because a file may be wanted a
/// second time.
pub const SEEN_FILES: usize = 1 << 12;
/// The first window of a walk.
pub const TREE_WINDOW: u64 = 512 << 10;
/// Most bytes of one file to read ahead before it is opened; the rest follows as the file is read.
pub const TREE_FILE: u64 = 1 << 20;
/// Fewest bytes that a file counts for, so that empty files do not make a walk endless.
pub const TREE_FILE_MIN: u64 = 2048;
/// Entries that one step of a walk may look at.
pub const TREE_STEP: usize = 2048;
/// Steps taken one after the other while other walks have planned all files that they meet: enough to
/// get past all files that are remembered.
pub const TREE_TRIES: usize = 2 * SEEN_FILES / TREE_STEP;
/// Entries taken from a listing at once, whose inodes are requested together: one for each
/// [`WINDOW_OF_ENTRY`] of the window, within these bounds.
pub const LISTING_BATCH: std::ops::RangeInclusive<usize> = 64..=512;
/// The part of the window for each entry of a batch.
pub const WINDOW_OF_ENTRY: u64 = 16 << 10;
/// One in N of the files that are handed over before they are opened is left out: the request for
/// it shows how far the reader has come.
pub const MARK_FILES: usize = 48;
/// The same in bytes, as a fraction of the window (one in N): the window has to move before its end
/// is reached.
pub const MARKS_IN_WINDOW: u64 = 8;
/// Files pushed before a listing goes on: the thread has the next ones by the time that these are read.
pub const FIRST_FILES: usize = 2;
/// Files that the thread takes together: few, so that it does not hold the next wanted ones.
pub const PUSHED_TOGETHER: usize = 8;
/// Files outside of the image that a thread opens, and hints, one after the other.
pub const HINTED_TOGETHER: usize = 16;
/// Largest gap between two files, or two inodes, that is read too so that both are one request.
/// Between inodes these are most often the files that they belong to.
pub const FILE_GAP: u64 = 64 << 10;

// Lists of files: reader/bulk.rs.

/// Most bytes of one file of a list to read ahead before it is taken; the rest follows as it is
/// read.
pub const BULK_FILE: u64 = 4 << 20;

// Directories: ahead/walk.rs.

/// Directories read ahead of the one that is listed.
pub const DIRECTORIES_AHEAD: usize = 8;
/// Listings remembered, to recognise siblings.
pub const LISTINGS: usize = 64;
/// Subdirectories remembered of one listing; a walk that gets further goes on without readahead.
pub const LISTED_DIRECTORIES: usize = 4096;
/// Inodes of one directory that are requested together.
pub const EXPECTED_INODES: usize = 1 << 14;
/// Entries recorded together for the readahead of files.
pub const NOTED_ENTRIES: usize = 512;

// Metadata whose place is unknown: metadata/source.rs and metadata/hints.rs.

/// A miss this close after the last one continues it. Reading the gap costs less than another
/// request, on anything from an SD card up.
pub const METADATA_GAP: u64 = 16 << 10;
/// Close misses in a row before requests grow.
pub const CLOSE_MISSES: u32 = 2;
/// Largest request for blocks that were not wanted yet.
pub const METADATA_STEP: u64 = 1 << 20;
/// Bytes worth hinting for one wanted block: about as many as pass in the time of the request that
/// is saved, from SD cards (20 MB/s, 1 ms) to SSDs (1 GB/s, 0.1 ms).
pub const HINT_WORTH: u64 = 48 << 10;
/// Bytes hinted before anything is known of the image.
pub const HINT_TRUST: u64 = 4 << 20;
/// Smallest part hinted at once; parts begin at multiples of it.
pub const HINT_STEP_MIN: u64 = 128 << 10;
/// Largest part hinted at once.
pub const HINT_STEP_MAX: u64 = 8 << 20;
/// Credit with which a part is hinted before a block in it is missed.
pub const HINT_CREDIT: u64 = 8 << 20;
/// Hinted parts remembered. Adjacent ones are one, so a dense image needs few.
pub const HINT_PARTS: usize = 4096;

// Metadata apart from data: metadata/dense.rs.

/// Unit of reading, aligned to multiples of itself except at the ends of a range. On the disks that this
/// was measured on, a request of this size takes little longer than one for 4 KiB, and a directory with
/// the inodes of its files seldom needs more than two.
pub const METADATA_CHUNK: u64 = 128 << 10;
/// Largest request for a sequential reader; the prefetch of all metadata makes larger ones.
pub const DENSE_STEP: u64 = 1 << 20;
/// A chunk missed this close after the last request continues it.
pub const DENSE_GAP: u64 = 1 << 20;
/// Fewest chunks to keep, whatever the budget.
pub const DENSE_CHUNKS: usize = 4;

// Whether there are extended attributes at all: metadata/xattr_scan.rs.

/// Inodes examined for each negative lookup.
pub const XATTR_WORTH: u64 = 32;
/// Inodes that make a job.
pub const XATTR_JOB: u64 = 512;
/// Inodes that make a job once a program walks the tree.
pub const XATTR_WALK_JOB: u64 = 4096;
/// Negative lookups that count as a walk.
pub const XATTR_WALK: u64 = 1024;
/// Directories examined together in a walk.
pub const XATTR_DIRECTORIES: usize = 16;
pub const XATTR_INODES: usize = 4096;

// Volumes: volume.

/// Most bytes of one file to hint to the device before it is opened: the kernel's own default for
/// readahead. The kernel's readahead of the device follows a longer file.
pub const VOLUME_FILE: u64 = 128 << 10;
/// Walks that wait for the thread that advances them; more are left out.
pub const WALKS_WAITING: usize = 16;

/// Zeros written in one request where the device cannot make them itself.
pub const ZEROS_WRITE: u64 = 1 << 20;
/// Shortest range for which the device is asked to make zeros itself.
pub const ZEROS_BY_DEVICE: u64 = 256 << 10;
