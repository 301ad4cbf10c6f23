/// Bounds on what an image may ask for. Reaching one is an error that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Longest name of a directory entry, in bytes.
    pub name_len: usize,
    /// Longest target of a symbolic link, in bytes.
    pub symlink_len: u64,
    /// Most hard links followed to reach one inode.
    pub hard_link_hops: u32,
    /// Most symbolic links followed to resolve one path.
    pub symlink_hops: u32,
    /// Most bytes in the extended attributes of one node, names and values together.
    pub xattr_bytes: u64,
    /// Greatest depth of the directory tree.
    pub depth: usize,
    pub dir_entries: u64,
    /// Most entries in all directories together, as a walk counts them.
    pub tree_entries: u64,
    /// Most bytes that one extraction, archive or conversion may write, holes included. The
    /// default, `u64::MAX`, stands for a bound that depends on the length of the image:
    /// [`total_bytes_of`](Self::total_bytes_of).
    pub total_bytes: u64,
    /// Most bytes that a compressed file may decode to while it is opened, in addition to fifty
    /// times the bytes that were read from it.
    pub stream_bytes: u64,
    /// Longest file that one call reads into memory as a whole.
    pub read_bytes: u64,
    pub block_len: u32,
    /// Most memory for directory indexes, in bytes, all together.
    pub dir_index_bytes: usize,
    /// Most memory for a walk or a listing, in bytes, including what its caller collects.
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
    /// Most bytes of files in an image of any length, and the multiple of the length that a longer
    /// image may have. No codec compresses programs or data to less than a hundredth.
    const LEAST_TOTAL: u64 = 64 << 30;
    const EXPANSION: u64 = 1000;

    /// Returns [`total_bytes`](Self::total_bytes) for an image or an archive of `len` bytes: by
    /// default 64 GiB, or a thousand times its length if that is more.
    #[must_use]
    pub fn total_bytes_of(&self, len: u64) -> u64 {
        match self.total_bytes {
            u64::MAX => len.saturating_mul(Self::EXPANSION).max(Self::LEAST_TOTAL),
            given => given,
        }
    }
}
