//! The structures at the start of an image.

/// First word of the header. EROFS does not use the first kilobyte.
pub const HEADER_MAGIC: u32 = 0xD078_629A;
/// Second word of the header: version of the format as a whole.
#[cfg(feature = "write")]
pub const HEADER_VERSION: u32 = 1;

/// Offset of the EROFS superblock.
#[cfg(feature = "write")]
pub const SUPERBLOCK_START: u64 = 1024;
pub const EROFS_MAGIC: u32 = 0xE0F5_E1E2;
/// Time fields are modification times (2), and attributes have a name filter (4).
#[cfg(feature = "write")]
pub const FEATURE_COMPAT: u32 = 6;

/// Offset of the first inode, after the superblock.
#[cfg(feature = "write")]
pub const INODES_START: u64 = SUPERBLOCK_START + 128;

/// Length of the used part of the header.
pub const HEADER_LEN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Version of the layout rules.
    pub composefs_version: u32,
}

impl Header {
    /// Parses the header at the start of an image. Returns `None` if there is none.
    pub fn parse(head: &[u8]) -> Option<Self> {
        let mut words = head.get(..HEADER_LEN)?.chunks_exact(4).map(|word| {
            word.iter()
                .rev()
                .fold(0, |n: u32, &byte| n << 8 | u32::from(byte))
        });
        if words.next() != Some(HEADER_MAGIC) {
            return None;
        }
        // Only writers need the format version and the flags.
        let composefs_version = words.nth(2)?;
        Some(Self { composefs_version })
    }
}

/// Bytes that identify a composefs image: up to the EROFS magic number.
pub const PROBE_LEN: usize = 1028;

/// Returns whether the image has the composefs header and the EROFS superblock.
pub fn is_composefs(head: &[u8]) -> bool {
    Header::parse(head).is_some() && head.get(1024..PROBE_LEN) == Some(&EROFS_MAGIC.to_le_bytes())
}

/// File types of `st_mode`.
pub mod kind {
    pub const FIFO: u16 = 0o010_000;
    pub const CHAR: u16 = 0o020_000;
    pub const DIRECTORY: u16 = 0o040_000;
    pub const BLOCK: u16 = 0o060_000;
    pub const REGULAR: u16 = 0o100_000;
    pub const SYMLINK: u16 = 0o120_000;
    pub const SOCKET: u16 = 0o140_000;
    #[cfg(feature = "write")]
    pub const MASK: u16 = 0o170_000;
}
