//! The options of a new image.

use forerun_build::{BuildError, ParallelBounds, Priorities, Tree, WriterNeeds};
use forerun_codec::{Bcj, Encoder, Encoding, ZlibStrategies};

use super::cannot;

const BLOCK_SIZES: std::ops::RangeInclusive<u32> = 4 << 10..=1 << 20;

/// How a SquashFS image is laid out and encoded. The defaults are those of `mksquashfs`.
#[derive(Clone, Debug)]
pub struct SquashfsOptions {
    /// The codec and its options; zlib (gzip) at level 9 by default. LZMA is for old readers: Linux
    /// does not support it. The Itanium filter of XZ is rejected, because Linux 6.7 removed it.
    pub encoding: Encoding,
    /// Block size in bytes: a power of two from 4 KiB to 1 MiB; 128 KiB by default.
    pub block_size: u32,
    /// Which ends of files share blocks with other files.
    pub fragments: Fragments,
    /// Whether files with equal contents share blocks.
    pub duplicates: bool,
    /// Whether blocks of zeros are left out.
    pub sparse: bool,
    /// Whether to write an export table, which NFS servers need.
    pub exportable: bool,
    /// Whether extended attributes are kept.
    pub xattrs: bool,
    pub compress: Compress,
    /// Time in the superblock, in seconds since the epoch. `None` means the latest modification
    /// time in the tree, so that equal trees give equal images.
    pub mkfs_time: Option<u32>,
    /// Whether to pad the image to 4 KiB, as loop devices require.
    pub pad: bool,
    /// Number of encoding threads; 0 means one for each CPU, or fewer if memory is scarce. The
    /// image does not depend on it.
    pub threads: usize,
    /// Approximate bytes of contents in memory at a time; 0 means 64 MiB, or less if memory is
    /// scarce.
    pub memory: usize,
    /// Priorities of files; files of higher priority come earlier in the image. Files of equal
    /// priority stay in walk order.
    pub priorities: Priorities,
}

/// Which ends of files are packed together, several to a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fragments {
    /// Files shorter than a block.
    #[default]
    Yes,
    /// None: every file has its own blocks.
    No,
    /// Files shorter than a block, and the remainders of longer files.
    Always,
}

/// Which parts are compressed. A block that would not get shorter is never compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compress {
    pub inodes: bool,
    pub data: bool,
    pub fragments: bool,
    /// The id table.
    pub ids: bool,
    pub xattrs: bool,
}

impl Default for Compress {
    fn default() -> Self {
        Self {
            inodes: true,
            data: true,
            fragments: true,
            ids: true,
            xattrs: true,
        }
    }
}

impl Default for SquashfsOptions {
    fn default() -> Self {
        Self {
            encoding: Encoding::Zlib {
                level: 9,
                window_bits: 15,
                strategies: ZlibStrategies::default(),
            },
            block_size: 128 << 10,
            fragments: Fragments::default(),
            duplicates: true,
            sparse: true,
            exportable: true,
            xattrs: true,
            compress: Compress::default(),
            mkfs_time: None,
            pad: true,
            threads: 0,
            memory: 0,
            priorities: Priorities::default(),
        }
    }
}

impl SquashfsOptions {
    /// Checks that the options are valid.
    ///
    /// # Errors
    /// [`BuildError::Format`] that names the option and its range.
    pub fn validate(&self) -> Result<(), BuildError> {
        let size = self.block_size;
        if !size.is_power_of_two() || !BLOCK_SIZES.contains(&size) {
            return Err(cannot(format!(
                "a block size of {size} bytes; it is a power of two from 4096 to 1048576"
            )));
        }
        if let Encoding::Xz { filters, .. } = &self.encoding
            && filters.iter().any(|filter| filter == Bcj::Ia64)
        {
            let reason =
                "the ia64 filter of xz; Linux 6.7 and later fail to read files encoded with it";
            return Err(cannot(reason.to_string()));
        }
        Encoder::new(&self.encoding, self.block_size)
            .map(drop)
            .map_err(|error| cannot(error.to_string()))
    }

    /// Returns the number of encoding threads, and the bytes of contents in flight. Each thread has
    /// an encoder, a block, the encoded block, and a candidate for it.
    pub(super) fn bounds(&self, tree: &Tree) -> Result<ParallelBounds, BuildError> {
        let needs = WriterNeeds {
            codec: Some(self.encoding.codec().name()),
            each: self.encoding.memory(self.block_size) + 3 * u64::from(self.block_size),
            nodes: tree.len(),
        };
        needs.bounds(ParallelBounds {
            threads: self.threads,
            memory: self.memory,
        })
    }

    pub(super) fn block(&self) -> usize {
        forerun_io::usize_from(self.block_size.into())
    }

    /// Returns how many bytes of a file of `len` bytes are in its own blocks; the rest is in a
    /// fragment.
    pub(super) fn body_len(&self, len: u64) -> u64 {
        let block = u64::from(self.block_size);
        match self.fragments {
            Fragments::No => len,
            Fragments::Yes if len < block => 0,
            Fragments::Yes => len,
            Fragments::Always => len - len % block,
        }
    }
}
