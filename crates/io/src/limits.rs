//! The bounds on what an image may ask for.

/// Bounds that no image can exceed. Reaching one is an error that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Longest name of a directory entry, in bytes.
    pub name_len: usize,
    /// Longest target of a symbolic link, in bytes.
    pub symlink_len: u64,
    /// Hard links followed to reach one inode.
    pub hard_link_hops: u32,
    /// Symbolic links followed while one path is resolved.
    pub symlink_hops: u32,
    /// Extended attributes of one node, names and values together, in bytes.
    pub xattr_bytes: u64,
    /// Depth of the directory tree.
    pub depth: usize,
    /// Entries of one directory.
    pub dir_entries: u64,
    /// Entries of all directories together, as a walk counts them.
    pub tree_entries: u64,
    /// Bytes of all files that one extraction, archive or conversion may write, holes included. The default,
    /// `u64::MAX`, stands for a bound by the length of the image: [`total_bytes_of`](Self::total_bytes_of).
    pub total_bytes: u64,
    /// Bytes that a compressed file may decode to while it is opened, in addition to fifty times
    /// the bytes that were read of it.
    pub stream_bytes: u64,
    /// Length of a file that one call reads into memory as a whole.
    pub read_bytes: u64,
    pub block_len: u32,
    /// Bytes that directory indexes may hold in memory, all together.
    pub dir_index_bytes: usize,
    /// Bytes that a walk or a listing may hold in memory, including what its caller collects.
    pub walk_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            name_len: 255,
            symlink_len: 4096,
            hard_link_hops: 8,
            symlink_hops: 40,
            xattr_bytes: 16 << 20,
            depth: 1024,
            dir_entries: 16 << 20,
            tree_entries: 64 << 20,
            total_bytes: u64::MAX,
            stream_bytes: 2 << 30,
            read_bytes: 1 << 30,
            block_len: 16 << 20,
            dir_index_bytes: 64 << 20,
            walk_bytes: 128 << 20,
        }
    }
}

impl Limits {
    /// Bytes of files that an image of any length may hold, and the multiple of its length that a longer one may. No
    /// codec makes files of programs or data a hundred times shorter.
    const LEAST_TOTAL: u64 = 64 << 30;
    const EXPANSION: u64 = 1000;

    /// Returns [`total_bytes`](Self::total_bytes) for an image or an archive of `len` bytes: by default 64 GiB, or a
    /// thousand times its length if that is more.
    #[must_use]
    pub fn total_bytes_of(&self, len: u64) -> u64 {
        match self.total_bytes {
            u64::MAX => len.saturating_mul(Self::EXPANSION).max(Self::LEAST_TOTAL),
            given => given,
        }
    }
}
