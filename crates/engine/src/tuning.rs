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
/// The first window of a stream: what the kernel itself reads ahead at the most by default.
pub const FIRST_WINDOW: u64 = 128 << 10;
/// Length of a first read at the start of a file from which on it begins a stream: `head` and `file`
/// read less.
pub const TRUSTED_READ: u64 = 64 << 10;
/// Length of a read from which on its reader has several such reads in flight, as the kernel's readahead
/// has in a mount. Smaller reads, as of a mount without large readahead, come one after the other.
pub const LONG_READ: u64 = 512 << 10;
/// Extents of a read that are looked at together, for blocks that lie side by side.
pub const EXTENTS_TOGETHER: usize = 64;
/// Long reads of one file that the kernel has in flight: so many CPUs decode in the threads that answer.
pub const READS_IN_FLIGHT: usize = 4;
/// Most that is held of what was read ahead, whatever the budget of the cache.
pub const AHEAD_BUDGET: u64 = 32 << 20;
/// Used segments that are kept, since a late read may still want their ends.
pub const SPENT_SEGMENTS: usize = 2;

// The cache of decoded blocks: read/decoded.rs.

/// The part of the budget (one in so many) from which on blocks that were served to their end are
/// evicted first.
pub const SERVED_SHARE: u64 = 16;
/// The part of the budget (one in so many) that blocks may take while they are decoded, besides the
/// blocks that are kept.
pub const DECODING_SHARE: u64 = 4;
/// Blocks served to their end that are remembered at the most.
pub const SERVED_BLOCKS: usize = 1 << 16;
/// The part of the budget (one in so many) that a list of small files fills with blocks that it wants once. Lists
/// of a few hundred files, of which a caller may have many, keep all their blocks.
pub const PASSING_SHARE: u64 = 4;
/// Blocks remembered, and at most twice as many, that were decoded and not kept.
pub const PASSED_BLOCKS: usize = 1 << 15;
/// Blocks remembered that readers took while plans are made, at most.
pub const TAKEN_BLOCKS: usize = 1 << 12;

// Stored bytes: read/stored.rs.

/// Length of a block in the image from which on it is read by itself, and a source does not take two of them for a
/// sequential reader: the spans of a compressed archive, of which a file is often a small part. Readers of long files
/// have their blocks planned.
pub const LONG_BLOCK: u64 = 512 << 10;

// Compressed data read at random places: read/around.rs.

/// Unit in which it is counted what was wanted of an image: long enough to tell, and shorter than most files of
/// which it matters.
pub const AROUND_REGION: u64 = 32 << 20;
/// Unit in which a region is hinted: 32 of them, in 64 bits.
pub const AROUND_PART: u64 = 1 << 20;
/// The part of a region (one in so many) that must have been wanted.
pub const AROUND_SHARE: u64 = 4;
/// Regions counted, at most.
pub const AROUND_REGIONS: usize = 4096;

// The rest of a block that is read at random places: reader/rest.rs.

/// Least bytes of a file in a block for their rest to be kept: of fewer a reader seldom wants more. Blocks of two to five
/// pages had a store each, and saved one request in a hundred.
pub const REST_WORTH: u64 = 64 << 10;

// Small files of a tree: ahead/tree, reader/sink.rs.

/// Walks followed at a time, the least recently followed forgotten first.
pub const TREE_WALKS: usize = 8;
/// First reads remembered, to recognise the second of a directory.
pub const FIRST_READS: usize = 32;
/// Entries whose place in a listing is remembered, and at most twice as many.
pub const LISTED_ENTRIES: usize = 1 << 17;
/// Files remembered that were planned or read, and at most twice as many: those between several readers
/// of one tree. Not many more, since a file may be wanted a second time.
pub const SEEN_FILES: usize = 1 << 12;
/// The first window of a walk.
pub const TREE_WINDOW: u64 = 512 << 10;
/// Most that is read ahead of one file before it is opened; the rest follows as the file is read.
pub const TREE_FILE: u64 = 1 << 20;
/// Least that a file counts for, so that empty files do not make a walk endless.
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
/// Of the files that are handed over before they are opened, one in so many is left out: the request
/// for it shows how far the reader has come.
pub const MARK_FILES: usize = 48;
/// The same in bytes, as a part of the window (one in so many): it has to move before its end is
/// reached.
pub const MARKS_IN_WINDOW: u64 = 8;
/// Files pushed before a listing goes on: the thread has the next ones by the time that these are read.
pub const FIRST_FILES: usize = 2;
/// Files that the thread takes together: few, so that those are left which are wanted next.
pub const PUSHED_TOGETHER: usize = 8;
/// Files outside of the image that a thread opens, and hints, one after the other.
pub const HINTED_TOGETHER: usize = 16;
/// Bytes between two files, or two inodes, that are read along to make one request of both. Between
/// inodes these are most often the files that they belong to.
pub const FILE_GAP: u64 = 64 << 10;

// Lists of files: reader/bulk.rs.

/// Most that is read ahead of one file of a list before it is taken; the rest follows as it is read.
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
/// Entries noted together for the readahead of files.
pub const NOTED_ENTRIES: usize = 512;

// Metadata whose place is unknown: metadata/source.rs and metadata/hints.rs.

/// A miss this close behind the last one continues it. Reading such a gap along costs less than
/// another request, on anything from an SD card up.
pub const METADATA_GAP: u64 = 16 << 10;
/// Close misses in a row before requests grow.
pub const CLOSE_MISSES: u32 = 2;
/// Largest request for blocks that were not wanted yet.
pub const METADATA_STEP: u64 = 1 << 20;
/// Bytes worth reading along for one block that is wanted: about the bytes that pass in the time of the
/// request that is saved, from SD cards (20 MB/s, 1 ms) to SSDs (1 GB/s, 0.1 ms).
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
/// A chunk missed this close behind the last request continues it.
pub const DENSE_GAP: u64 = 1 << 20;
/// Chunks kept at the least, whatever the budget.
pub const DENSE_CHUNKS: usize = 4;

// Whether there are extended attributes at all: metadata/xattr_scan.rs.

/// Inodes examined for each question that found nothing.
pub const XATTR_WORTH: u64 = 32;
/// Inodes that make a job.
pub const XATTR_JOB: u64 = 512;
/// Inodes that make a job once a program walks the tree.
pub const XATTR_WALK_JOB: u64 = 4096;
/// Questions that found nothing that make a walk.
pub const XATTR_WALK: u64 = 1024;
/// Directories examined together in a walk.
pub const XATTR_DIRECTORIES: usize = 16;
pub const XATTR_INODES: usize = 4096;

// Volumes: volume.

/// Most that is named to the device of one file before it is opened: what the kernel itself reads ahead
/// at the most by default. The kernel's readahead of the device follows a longer file.
pub const VOLUME_FILE: u64 = 128 << 10;
/// Walks that wait for the thread that advances them; more are left out.
pub const WALKS_WAITING: usize = 16;

/// Zeros written in one request where the device cannot make them itself.
pub const ZEROS_WRITE: u64 = 1 << 20;
/// Length from which on the device is asked to make zeros itself.
pub const ZEROS_BY_DEVICE: u64 = 256 << 10;
