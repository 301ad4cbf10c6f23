//! Parses the superblock in the first bytes of an image.

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Measured, Result, read_head};
use zerocopy::FromBytes;

use crate::error::Check;
use crate::ondisk::{self, ALIGN, CHECKSUMMED, HEADER_LEN, MAGIC, SUPERBLOCK_LEN};

/// Number of bytes to read for [`Superblock::parse`]: the checksummed ones, which include any
/// volume name.
pub const HEAD_LEN: u64 = CHECKSUMMED;

/// Longest accepted volume name; tools write a few words.
const VOLUME_NAME_MAX: usize = 255;

/// A superblock that passed its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Length of the filesystem in bytes.
    pub full_size: u64,
    pub checksum: u32,
    /// Without the terminating NUL.
    pub volume_name: Vec<u8>,
    /// Offset of the root directory's header.
    pub root: u64,
}

impl Superblock {
    /// Parses the superblock. `head` is the start of the image, [`HEAD_LEN`] bytes or all of a
    /// shorter source; `source_len` is the length of the source. Fails with `Corrupt` at offset 0.
    pub fn parse(head: &[u8], source_len: u64) -> Result<Self> {
        Self::parse_or(head, source_len, &mut |check| Err(check.at(None, 0)))
    }

    /// Parses the superblock of an image that may be truncated, or have a wrong checksum. `damaged`
    /// decides whether either is accepted. The image then ends with the source.
    ///
    /// # Errors
    /// The errors of `damaged`, and `Corrupt` if the bytes are not a superblock.
    pub fn parse_or(
        head: &[u8],
        source_len: u64,
        damaged: &mut dyn FnMut(Check) -> Result<()>,
    ) -> Result<Self> {
        let short = || Check::ShortSuperblock {
            len: source_len,
            need: SUPERBLOCK_LEN + HEADER_LEN,
        };
        let (raw, rest) =
            ondisk::Superblock::read_from_prefix(head).map_err(|_| short().at(None, 0))?;
        if raw.magic != MAGIC {
            return Err(Check::Magic { found: raw.magic }.at(None, 0));
        }
        let mut full_size = u64::from(raw.full_size.get());
        let covered = full_size.min(CHECKSUMMED).min(u64_from(head.len()));
        if full_size > source_len {
            damaged(Check::SourceTooShort {
                full_size,
                source_len,
            })?;
            full_size = source_len;
        }
        let name = rest
            .iter()
            .take(VOLUME_NAME_MAX + 1)
            .position(|&byte| byte == 0);
        let name = name.ok_or_else(|| {
            Check::VolumeName {
                limit: VOLUME_NAME_MAX,
            }
            .at(None, 0)
        })?;
        let root = SUPERBLOCK_LEN + (u64_from(name) + 1).next_multiple_of(ALIGN);
        if root + HEADER_LEN > full_size {
            return Err(Check::FullSize { full_size }.at(None, 0));
        }
        let summed = head.get(..usize_from(covered)).unwrap_or_default();
        let sum = ondisk::checksum(summed);
        if sum != 0 {
            damaged(Check::SuperblockChecksum { covered, sum })?;
        }
        let volume_name = rest[..name].to_vec();
        Ok(Self {
            full_size,
            checksum: raw.checksum.get(),
            volume_name,
            root,
        })
    }
}

/// Validates the superblock of an image that a search has found.
pub fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let head = read_head(source, usize_from(HEAD_LEN))?;
    // The image may be cut.
    let superblock = Superblock::parse(&head, u64::MAX)?;
    Ok(Measured {
        len: Some(superblock.full_size),
        label: superblock.volume_name,
        ..Measured::default()
    })
}
