//! Builds an image from its parts, including combinations that no writer produces. Nothing is
//! compressed and every table is one metadata block, so every field is at a known offset.

use forerun_io::u64_from;
use zerocopy::IntoBytes;

use crate::ondisk::{
    DirHeader, FragmentEntry, METADATA_STORED, NONE_64, Superblock, XattrId, compression,
};

#[derive(Clone, Debug)]
pub struct Parts {
    /// File data, between the superblock and the inodes.
    pub data: Vec<u8>,
    /// Decoded inodes; the first is the root.
    pub inodes: Vec<u8>,
    pub listings: Vec<u8>,
    /// Start and size of each fragment.
    pub fragments: Vec<(u64, u32)>,
    /// References of the inodes, by inode number.
    pub export: Vec<u64>,
    /// Decoded xattr names and values.
    pub pairs: Vec<u8>,
    /// Decoded xattr sets, 16 bytes each.
    pub sets: Vec<u8>,
}

impl Default for Parts {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            inodes: inode::root(0),
            listings: vec![0],
            fragments: Vec::new(),
            export: Vec::new(),
            pairs: Vec::new(),
            sets: Vec::new(),
        }
    }
}

impl Parts {
    /// Creates an image with a file of one block `data`, a sparse file `tail` with a fragment and
    /// xattrs, an indexed directory `dir` that holds an empty file, a link, and a device.
    #[must_use]
    pub fn everything() -> Self {
        let mut parts = Self {
            data: [
                &b"twenty bytes of data"[..],
                b"thirty bytes shared among many",
            ]
            .concat(),
            fragments: vec![(116, 1 << 24 | 30)],
            ..Self::default()
        };
        let mut entries = Vec::new();
        let root = inode::root(12 + 12 + 11 + 12 + 12 + 12);
        let bodies: [(&[u8], u16, Vec<u8>); 5] = [
            (b"data", 2, inode::file(2, 96, 20, 1 << 24 | 20)),
            (b"dir", 1, inode::dir_with_index(3, b"inner")),
            (b"link", 3, inode::link(4, b"target")),
            (b"null", 5, inode::device(5)),
            (b"tail", 2, inode::tail(6)),
        ];
        parts.inodes = root;
        for (number, (name, kind, body)) in (1..).zip(bodies) {
            let at = parts.inodes.len();
            parts.export.push(u64_from(at));
            entries.extend(entry(at, number, kind, name));
            parts.inodes.extend(body);
        }
        let inner = parts.inodes.len();
        parts.export.insert(0, 0);
        parts.export.push(u64_from(inner));
        parts.inodes.extend(inode::file(7, 0, 0, 0));
        parts.listings = [run(5, 1), entries, run(1, 1), entry(inner, 6, 2, b"inner")].concat();
        parts.pairs = [
            &[0, 0, 1, 0, b'a', 5, 0, 0, 0][..],
            b"VALUE",
            &[1, 1, 1, 0, b'b', 8, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0],
        ]
        .concat();
        parts.sets = set(0, 2, 12 + 15);
        parts
    }

    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let mut superblock = empty_superblock();
        superblock.inodes = u32::try_from(self.export.len()).unwrap_or(0).into();
        superblock.fragments = u32::try_from(self.fragments.len()).unwrap_or(0).into();
        let mut out = vec![0; size_of::<Superblock>()];
        out.extend_from_slice(&self.data);
        let at = |out: &Vec<u8>| u64_from(out.len());
        superblock.inode_table_start = at(&out).into();
        metadata(&mut out, &self.inodes);
        superblock.directory_table_start = at(&out).into();
        metadata(&mut out, &self.listings);
        if !self.fragments.is_empty() {
            let entries = self.fragments.iter().map(|&(start, size)| FragmentEntry {
                start_block: start.into(),
                size: size.into(),
                unused: 0.into(),
            });
            let entries: Vec<_> = entries.collect();
            superblock.fragment_table_start = table(&mut out, entries.as_bytes()).into();
        }
        if !self.export.is_empty() {
            let numbers: Vec<u8> = self.export.iter().flat_map(|n| n.to_le_bytes()).collect();
            superblock.lookup_table_start = table(&mut out, &numbers).into();
        }
        superblock.id_table_start = table(&mut out, &[0, 0, 0, 0, 0xE8, 3, 0, 0]).into();
        if !self.sets.is_empty() {
            let pairs = at(&out);
            metadata(&mut out, &self.pairs);
            let sets = at(&out);
            metadata(&mut out, &self.sets);
            superblock.xattr_id_table_start = at(&out).into();
            let count = u32::try_from(self.sets.len().div_ceil(16)).unwrap_or(0);
            for part in [&pairs.to_le_bytes()[..], &count.to_le_bytes(), &[0; 4]] {
                out.extend_from_slice(part);
            }
            out.extend_from_slice(&sets.to_le_bytes());
        }
        superblock.bytes_used = at(&out).into();
        for (out, byte) in out.iter_mut().zip(superblock.as_bytes()) {
            *out = *byte;
        }
        out
    }
}

/// Appends `bytes` as uncompressed metadata blocks.
fn metadata(out: &mut Vec<u8>, bytes: &[u8]) {
    for block in bytes.chunks(8192) {
        let len = u16::try_from(block.len()).unwrap_or(0) | METADATA_STORED;
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(block);
    }
}

/// Appends one metadata block and a pointer to it. Returns the offset of the pointer.
fn table(out: &mut Vec<u8>, bytes: &[u8]) -> u64 {
    let block = u64_from(out.len());
    metadata(out, bytes);
    let pointer = u64_from(out.len());
    out.extend_from_slice(&block.to_le_bytes());
    pointer
}

/// Creates a superblock for gzip and blocks of 4 KiB, without tables.
fn empty_superblock() -> Superblock {
    Superblock {
        s_magic: crate::ondisk::MAGIC.into(),
        inodes: 0.into(),
        mkfs_time: 0.into(),
        block_size: 4096.into(),
        fragments: 0.into(),
        compression: compression::GZIP.into(),
        block_log: 12.into(),
        flags: 0.into(),
        no_ids: 2.into(),
        s_major: 4.into(),
        s_minor: 0.into(),
        root_inode: 0.into(),
        bytes_used: 0.into(),
        id_table_start: 0.into(),
        xattr_id_table_start: NONE_64.into(),
        inode_table_start: 0.into(),
        directory_table_start: 0.into(),
        fragment_table_start: NONE_64.into(),
        lookup_table_start: NONE_64.into(),
    }
}

/// Creates an xattr set from its reference, pair count and size.
#[must_use]
pub fn set(at: u64, count: u32, size: u32) -> Vec<u8> {
    let id = XattrId {
        xattr: at.into(),
        count: count.into(),
        size: size.into(),
    };
    id.as_bytes().to_vec()
}

fn run(entries: u32, inode_number: u32) -> Vec<u8> {
    let header = DirHeader {
        count: entries.saturating_sub(1).into(),
        start_block: 0.into(),
        inode_number: inode_number.into(),
    };
    header.as_bytes().to_vec()
}

fn entry(at: usize, number: i16, kind: u16, name: &[u8]) -> Vec<u8> {
    let entry = crate::ondisk::DirEntry {
        offset: u16::try_from(at).unwrap_or(0).into(),
        inode_number: number.into(),
        kind: kind.into(),
        size: u16::try_from(name.len().saturating_sub(1))
            .unwrap_or(0)
            .into(),
    };
    [entry.as_bytes(), name].concat()
}

pub mod inode {
    use zerocopy::IntoBytes;

    use crate::ondisk::{
        BasicFile, DeviceNode, DirIndex, ExtendedDir, ExtendedFile, InodeHeader, Ipc, NONE_32,
        Symlink, kind,
    };

    fn header(inode_type: u16, number: u32) -> Vec<u8> {
        let header = InodeHeader {
            inode_type: inode_type.into(),
            mode: 0o755.into(),
            uid: 0.into(),
            guid: 1.into(),
            mtime: 1.into(),
            inode_number: number.into(),
        };
        header.as_bytes().to_vec()
    }

    /// Creates the root, number 1, whose listing is the first one and has `len` bytes.
    #[must_use]
    pub fn root(len: u32) -> Vec<u8> {
        let body = ExtendedDir {
            nlink: 2.into(),
            file_size: len.saturating_add(3).into(),
            start_block: 0.into(),
            parent_inode: 0.into(),
            i_count: 0.into(),
            offset: 0.into(),
            xattr: NONE_32.into(),
        };
        [&header(kind::DIR + kind::EXTENDED, 1), body.as_bytes()].concat()
    }

    /// Creates an indexed directory, whose listing of one entry follows the root's.
    pub(super) fn dir_with_index(number: u32, name: &[u8]) -> Vec<u8> {
        let body = ExtendedDir {
            nlink: 2.into(),
            file_size: (12 + 8 + 5 + 3).into(),
            start_block: 0.into(),
            parent_inode: 1.into(),
            i_count: 1.into(),
            offset: (12 + 12 + 11 + 12 + 12 + 12).into(),
            xattr: NONE_32.into(),
        };
        let index = DirIndex {
            index: 0.into(),
            start_block: 0.into(),
            size: 4.into(),
        };
        [
            &header(kind::DIR + kind::EXTENDED, number),
            body.as_bytes(),
            index.as_bytes(),
            name,
        ]
        .concat()
    }

    /// Creates a file of at most one block.
    pub(super) fn file(number: u32, start: u32, len: u32, block: u32) -> Vec<u8> {
        let body = BasicFile {
            start_block: start.into(),
            fragment: NONE_32.into(),
            offset: 0.into(),
            file_size: len.into(),
        };
        let sizes: &[u8] = if len > 0 { &block.to_le_bytes() } else { &[] };
        [&header(kind::REG, number), body.as_bytes(), sizes].concat()
    }

    /// Creates a file of one block of zeros and a fragment of ten bytes, with xattrs.
    pub(super) fn tail(number: u32) -> Vec<u8> {
        let body = ExtendedFile {
            start_block: 96.into(),
            file_size: (4096 + 10).into(),
            sparse: 4096.into(),
            nlink: 1.into(),
            fragment: 0.into(),
            offset: 5.into(),
            xattr: 0.into(),
        };
        let header = header(kind::REG + kind::EXTENDED, number);
        [&header, body.as_bytes(), &[0; 4]].concat()
    }

    pub(super) fn link(number: u32, target: &[u8]) -> Vec<u8> {
        let body = Symlink {
            nlink: 1.into(),
            symlink_size: u32::try_from(target.len()).unwrap_or(0).into(),
        };
        [&header(kind::SYMLINK, number), body.as_bytes(), target].concat()
    }

    pub(super) fn device(number: u32) -> Vec<u8> {
        let body = DeviceNode {
            nlink: 1.into(),
            rdev: 0x103.into(),
        };
        [&header(kind::CHRDEV, number), body.as_bytes()].concat()
    }

    #[must_use]
    pub fn fifo_with_xattrs(set: u32) -> Vec<u8> {
        let header = header(kind::FIFO + kind::EXTENDED, 2);
        let body = Ipc { nlink: 1.into() };
        [&header, body.as_bytes(), &set.to_le_bytes()].concat()
    }
}
