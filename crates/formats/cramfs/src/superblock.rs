//! Parses the superblock in the first bytes of an image.

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{ByteOrder, Error, FileType, Measured, NodeId, Result, read_head};

use crate::error::Check;
use crate::inode::Inode;
use crate::ondisk::{
    CRC, EXT_BLOCK_POINTERS, FLAGS, FSID_VERSION_2, KNOWN, MAGIC, ROOT, SIGNATURE, SORTED_DIRS,
    SUPERBLOCK_LEN, SUPERBLOCKS, word,
};

/// Number of bytes needed to see either magic number.
pub const PROBE_LEN: usize = 516;
/// Number of bytes to read for [`Superblock::parse`].
pub const HEAD_LEN: u64 = 588;
const _: () = assert!(PROBE_LEN == SUPERBLOCKS[1] + 4);

/// A superblock that passed its checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Offset in the source. All other offsets also count from the start of the source.
    pub offset: u64,
    pub order: ByteOrder,
    pub size: u32,
    /// End of the image in the source.
    pub image_len: u64,
    pub flags: u32,
    pub future: u32,
    pub signature: [u8; 16],
    pub crc: u32,
    pub edition: u32,
    pub blocks: u32,
    pub files: u32,
    pub name: Vec<u8>,
    pub root: Inode,
}

/// Finds a superblock by its magic number. Returns its offset and byte order.
pub fn find(head: &[u8]) -> Option<(usize, ByteOrder)> {
    for at in SUPERBLOCKS {
        if head.len() < at + 4 {
            break;
        }
        for order in [ByteOrder::Little, ByteOrder::Big] {
            if word(head, at, order) == MAGIC {
                return Some((at, order));
            }
        }
    }
    None
}

impl Superblock {
    /// Parses `head`, the first [`HEAD_LEN`] bytes of a source of `source_len` bytes, or all of a
    /// shorter source.
    ///
    /// # Errors
    /// `Corrupt` at the superblock's offset; `Unsupported` for flags that the driver does not know.
    pub fn parse(head: &[u8], source_len: u64) -> Result<Self> {
        let Some((at, order)) = find(head) else {
            let found = head.first_chunk().copied().unwrap_or_default();
            return Err(Check::Magic { found }.at(None, 0));
        };
        let offset = u64_from(at);
        let fail = |check: Check| check.at(None, offset);
        let bytes = head.get(at..at + SUPERBLOCK_LEN).ok_or_else(|| {
            fail(Check::ShortSuperblock {
                len: source_len,
                need: u64_from(at + SUPERBLOCK_LEN),
            })
        })?;
        let field = |at| word(bytes, at, order);
        let flags = field(8);
        if flags & !KNOWN != 0 {
            let unknown = flags & !KNOWN;
            return Err(Error::Unsupported(format!("cramfs flags {unknown:#x}")));
        }
        let size = field(4);
        let root = NodeId(u64_from(at + ROOT));
        let inode =
            Inode::parse(&bytes[ROOT..], order).map_err(|check| check.at(Some(root), root.0))?;
        if inode.kind != FileType::Directory {
            return Err(Check::RootKind { mode: inode.mode }.at(Some(root), root.0));
        }
        Ok(Self {
            offset,
            order,
            size,
            image_len: image_len(size, flags, at, source_len).map_err(fail)?,
            flags,
            future: field(12),
            signature: array(bytes, 16),
            crc: field(CRC),
            edition: field(36),
            blocks: field(40),
            files: field(44),
            name: trimmed(&array::<16>(bytes, 48)),
            root: inode,
        })
    }

    pub const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Returns whether size, checksum and counts are filled in.
    pub const fn is_version_2(&self) -> bool {
        self.has(FSID_VERSION_2)
    }

    pub const fn is_sorted(&self) -> bool {
        self.has(SORTED_DIRS)
    }

    pub const fn has_pointer_flags(&self) -> bool {
        self.has(EXT_BLOCK_POINTERS)
    }

    /// Returns whether the signature is the one that all known tools write.
    pub fn has_signature(&self) -> bool {
        self.signature == SIGNATURE
    }

    pub fn root_node(&self) -> NodeId {
        NodeId(self.offset + u64_from(ROOT))
    }

    pub fn end(&self) -> u64 {
        self.offset + u64_from(SUPERBLOCK_LEN)
    }

    /// Returns the flags by name, unknown ones as a number.
    pub fn flag_names(&self) -> String {
        let mut names: Vec<String> = FLAGS
            .iter()
            .filter(|(flag, _)| self.has(*flag))
            .map(|(_, name)| (*name).to_string())
            .collect();
        let known = FLAGS.iter().fold(0, |known, (flag, _)| known | flag);
        if self.flags & !known != 0 {
            names.push(format!("{:#x}", self.flags & !known));
        }
        names.join(" ")
    }
}

/// Validates the superblock of an image that a search has found. The checksum covers the whole
/// image, so a search leaves it to `check` and requires the signature.
///
/// # Errors
/// The errors of [`Superblock::parse`], `UnknownFormat` without the signature, `Io`.
pub fn measure(source: &dyn ReadAt) -> Result<Measured> {
    let head = read_head(source, usize_from(HEAD_LEN))?;
    // The image may be cut.
    let superblock = Superblock::parse(&head, u64::MAX)?;
    if !superblock.has_signature() {
        return Err(Error::UnknownFormat {
            expected: Some("cramfs".into()),
            found: "no cramfs signature".into(),
        });
    }
    let len = superblock.is_version_2().then_some(superblock.image_len);
    Ok(Measured {
        len,
        label: superblock.name,
        ..Measured::default()
    })
}

/// Returns the length of the image. `size` is only valid in version 2; an older image ends with its
/// source.
fn image_len(size: u32, flags: u32, at: usize, source_len: u64) -> Result<u64, Check> {
    if flags & FSID_VERSION_2 == 0 {
        return Ok(source_len);
    }
    let least = u64_from(at + SUPERBLOCK_LEN);
    let size = u64::from(size);
    if size < least {
        Err(Check::ImageSize { size, least })
    } else if size > source_len {
        Err(Check::SourceTooShort { size, source_len })
    } else {
        Ok(size)
    }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let array = bytes.get(at..).and_then(<[u8]>::first_chunk);
    array.copied().unwrap_or([0; N])
}

fn trimmed(name: &[u8]) -> Vec<u8> {
    let name = name.iter().copied();
    name.take_while(|&byte| byte != 0).collect()
}

/// Clears the checksum in `head`, as it is summed. `start` is the superblock's offset in `head`.
pub fn without_crc(head: &mut [u8], start: u64) {
    let at = usize_from(start) + CRC;
    if let Some(crc) = head.get_mut(at..at + 4) {
        crc.fill(0);
    }
}
