//! Builds an image by hand with every uncompressed structure at a known offset, including
//! combinations that no writer produces. Blocks of 512 bytes keep it small.

use forerun_io::u64_from;
use zerocopy::{IntoBytes, little_endian::U16};

use crate::ondisk::{
    ChunkIndex, DeviceSlot, Dirent, InodeCompact, InodeExtended, MAGIC, Superblock, XattrEntry,
    XattrHeader, compat, incompat,
};

pub const BLOCK_BITS: u8 = 9;
pub const META: usize = 2048;
pub const DATA: usize = 3072;
pub const LEN: usize = 4096;

pub mod nid {
    pub const ROOT: u64 = 0;
    /// A chunk-based file with indexes: chunks in the image, on a device, and of zeros.
    pub const CHUNKS: u64 = 8;
    pub const DIR: u64 = 10;
    pub const LINK: u64 = 13;
    pub const NULL: u64 = 15;
    /// The node of a file of two plain blocks.
    pub const PLAIN: u64 = 16;
    /// A file of one block and an inline tail.
    pub const TAIL: u64 = 18;
    pub const XATTRS: u64 = 20;
    /// A chunk-based file with a block map.
    pub const BLOCKS: u64 = 22;
    pub const INNER: u64 = 24;
    /// A file of zeros, none of them stored.
    pub const HOLES: u64 = 25;
}

/// Returns the offset of an inode.
#[must_use]
pub fn at(nid: u64) -> usize {
    META + forerun_io::usize_from(nid) * 32
}

const ROOT: [(&[u8], u64, u8); 11] = [
    (b".", nid::ROOT, 2),
    (b"..", nid::ROOT, 2),
    (b"blocks", nid::BLOCKS, 1),
    (b"chunks", nid::CHUNKS, 1),
    (b"dir", nid::DIR, 2),
    (b"holes", nid::HOLES, 1),
    (b"link", nid::LINK, 7),
    (b"null", nid::NULL, 3),
    (b"plain", nid::PLAIN, 1),
    (b"tail", nid::TAIL, 1),
    (b"xattrs", nid::XATTRS, 1),
];

#[must_use]
pub fn image() -> Vec<u8> {
    let mut image = vec![0; LEN];
    put(&mut image, 1024, superblock().as_bytes());
    put(&mut image, 1152, device().as_bytes());
    put(&mut image, 1280, b"\x09\0\x04overlay.");
    put(&mut image, 1536, &pair(1, b"a", b"VALUE"));
    put(&mut image, 1548, &pair(0x80, b"opaque", b"y"));
    let root = listing(&ROOT);
    let mut node = extended(0o040_755, layout::INLINE, root.len());
    node.i_nlink = 3.into();
    put(&mut image, at(nid::ROOT), node.as_bytes());
    put(&mut image, at(nid::ROOT) + 64, &root);
    files(&mut image);
    put(&mut image, DATA, &[b'd'; 600]);
    put(&mut image, DATA + 512, &[b'e'; 512]);
    image
}

fn files(image: &mut [u8]) {
    let mut put_node = |nid: u64, node: InodeCompact, behind: &[u8]| {
        put(image, at(nid), node.as_bytes());
        put(image, at(nid) + 32, behind);
    };
    let chunk = |device: u16, block: u32| ChunkIndex {
        startblk_hi: 0.into(),
        device_id: device.into(),
        startblk_lo: block.into(),
    };
    let chunks = [chunk(0, 6), chunk(1, 3), chunk(0, u32::MAX)];
    let mut node = compact(0o100_644, layout::CHUNKS, 1300);
    node.i_u = 0x20.into();
    put_node(nid::CHUNKS, node, chunks.as_bytes());
    let entries = [
        (&b"."[..], nid::DIR, 2),
        (b"..", nid::ROOT, 2),
        (b"inner", nid::INNER, 1),
    ];
    let entries = listing(&entries);
    let mut node = compact(0o040_755, layout::INLINE, entries.len());
    node.i_nb = 2.into();
    put_node(nid::DIR, node, &entries);
    put_node(nid::LINK, compact(0o120_777, layout::INLINE, 6), b"target");
    let mut node = compact(0o020_666, layout::PLAIN, 0);
    node.i_u = 0x103.into();
    put_node(nid::NULL, node, b"");
    let mut node = compact(0o100_644, layout::INLINE, 532);
    node.i_u = 7.into();
    put_node(nid::TAIL, node, b"twenty bytes of tail");
    let header = XattrHeader {
        h_name_filter: u32::MAX.into(),
        h_shared_count: 2,
        h_reserved: [0; 7],
    };
    let xattrs = [
        header.as_bytes(),
        &0_u32.to_le_bytes(),
        &3_u32.to_le_bytes(),
        &pair(6, b"b", b"xy"),
    ];
    let mut node = compact(0o100_644, layout::PLAIN, 0);
    node.i_xattr_icount = 5.into();
    put_node(nid::XATTRS, node, &xattrs.concat());
    let node = compact(0o100_644, layout::CHUNKS, 700);
    put_node(nid::BLOCKS, node, &[7, 0, 0, 0, 255, 255, 255, 255]);
    put_node(nid::INNER, compact(0o100_644, layout::PLAIN, 0), b"");
    let mut node = compact(0o100_644, layout::PLAIN, 1000);
    node.i_u = u32::MAX.into();
    put_node(nid::HOLES, node, b"");
    let mut node = extended(0o100_644, layout::PLAIN, 600);
    node.i_u = 6.into();
    put(image, at(nid::PLAIN), node.as_bytes());
}

/// Copies bytes, except those that do not fit.
fn put(image: &mut [u8], at: usize, bytes: &[u8]) {
    let part = image.get_mut(at..).unwrap_or_default();
    for (out, byte) in part.iter_mut().zip(bytes) {
        *out = *byte;
    }
}

mod layout {
    pub const PLAIN: u16 = 0;
    pub const INLINE: u16 = 2;
    pub const CHUNKS: u16 = 4;
}

#[must_use]
pub fn superblock() -> Superblock {
    Superblock {
        magic: MAGIC.into(),
        checksum: 0.into(),
        feature_compat: (compat::MTIME | compat::PLAIN_XATTR_PFX).into(),
        blkszbits: BLOCK_BITS,
        sb_extslots: 0,
        rootnid_2b: U16::new(0),
        inos: 11.into(),
        epoch: 1_600_000_000.into(),
        fixed_nsec: 5.into(),
        blocks: 8.into(),
        meta_blkaddr: 4.into(),
        xattr_blkaddr: 3.into(),
        uuid: *b"0123456789abcdef",
        volume_name: *b"by hand\0\0\0\0\0\0\0\0\0",
        feature_incompat: (incompat::CHUNKED_FILE
            | incompat::DEVICE_TABLE
            | incompat::XATTR_PREFIXES)
            .into(),
        is_compressed: 0.into(),
        extra_devices: 1.into(),
        devt_slotoff: 9.into(),
        dirblkbits: 0,
        xattr_prefix_count: 1,
        xattr_prefix_start: 320.into(),
        packed_nid: 0.into(),
        xattr_filter_reserved: 0,
        ishare_xattr_prefix_id: 0,
        reserved: [0; 2],
        build_time: 0.into(),
        rootnid_8b: 0.into(),
        reserved2: 0.into(),
    }
}

fn device() -> DeviceSlot {
    let mut tag = [0; 64];
    put(&mut tag, 0, b"data");
    DeviceSlot {
        tag,
        blocks_lo: 4.into(),
        uniaddr_lo: 100.into(),
        blocks_hi: 0.into(),
        uniaddr_hi: 0.into(),
        reserved: [0; 52],
    }
}

fn compact(mode: u16, layout: u16, size: usize) -> InodeCompact {
    InodeCompact {
        i_format: (layout << 1).into(),
        i_xattr_icount: 0.into(),
        i_mode: mode.into(),
        i_nb: 1.into(),
        i_size: u32::try_from(size).unwrap_or(0).into(),
        i_mtime: 0.into(),
        i_u: 0.into(),
        i_ino: 1.into(),
        i_uid: 1000.into(),
        i_gid: 100.into(),
        i_reserved: 0.into(),
    }
}

fn extended(mode: u16, layout: u16, size: usize) -> InodeExtended {
    InodeExtended {
        i_format: (layout << 1 | 1).into(),
        i_xattr_icount: 0.into(),
        i_mode: mode.into(),
        i_nb: 0.into(),
        i_size: u64_from(size).into(),
        i_u: 0.into(),
        i_ino: 1.into(),
        i_uid: 70_000.into(),
        i_gid: 70_001.into(),
        i_mtime: 1_700_000_000.into(),
        i_mtime_nsec: 7.into(),
        i_nlink: 1.into(),
        i_reserved2: [0; 16],
    }
}

fn pair(index: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let entry = XattrEntry {
        e_name_len: u8::try_from(name.len()).unwrap_or(0),
        e_name_index: index,
        e_value_size: u16::try_from(value.len()).unwrap_or(0).into(),
    };
    let mut bytes = [entry.as_bytes(), name, value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Encodes a directory block. `entries` must be sorted.
fn listing(entries: &[(&[u8], u64, u8)]) -> Vec<u8> {
    let mut nameoff = entries.len() * size_of::<Dirent>();
    let (mut out, mut names) = (Vec::new(), Vec::new());
    for &(name, nid, file_type) in entries {
        let entry = Dirent {
            nid: nid.into(),
            nameoff: u16::try_from(nameoff).unwrap_or(0).into(),
            file_type,
            reserved: 0,
        };
        out.extend_from_slice(entry.as_bytes());
        names.extend_from_slice(name);
        nameoff += name.len();
    }
    out.extend(names);
    out
}

/// Creates the image with `bytes` as the entries of its root.
#[must_use]
pub fn with_root(bytes: &[u8]) -> Vec<u8> {
    let mut image = image();
    // The root's data goes into new blocks at the end.
    let mut root = extended(0o040_755, layout::PLAIN, bytes.len());
    root.i_u = 8.into();
    put(&mut image, at(nid::ROOT), root.as_bytes());
    image.extend_from_slice(bytes);
    image
}

/// Creates the image with `bytes` in place of all inodes except the root.
#[must_use]
pub fn with_inodes(bytes: &[u8]) -> Vec<u8> {
    let mut image = image();
    put(&mut image, at(nid::CHUNKS), bytes);
    image
}

/// Creates the image with `bytes` as the xattrs of one inode. They overwrite the bytes after that
/// inode.
#[must_use]
pub fn with_xattrs(bytes: &[u8]) -> Vec<u8> {
    let mut image = image();
    let count = u16::try_from(bytes.len().saturating_sub(12) / 4 + 1).unwrap_or(u16::MAX);
    put(&mut image, at(nid::XATTRS) + 2, &count.to_le_bytes());
    put(&mut image, at(nid::XATTRS) + 32, bytes);
    image
}

/// Creates the image with one chunk of `512 << bits` bytes as the file `blocks`, at the end of the
/// image. A device of unknown length begins `split` blocks into the chunk.
#[must_use]
pub fn with_split_chunk(bits: u32, split: u32) -> Vec<u8> {
    let mut image = image();
    let (node, len, block) = (at(nid::BLOCKS), 512_u32 << bits, 8_u32);
    put(&mut image, node + 8, &len.to_le_bytes());
    put(&mut image, node + 16, &bits.to_le_bytes());
    put(&mut image, node + 32, &block.to_le_bytes());
    put(&mut image, 1152 + 64, &[0; 4]);
    put(&mut image, 1152 + 68, &(block + split).to_le_bytes());
    let bytes = (0..len).map(|at| u8::try_from(at / 512 % 251).unwrap_or(0));
    image.extend(bytes);
    image
}
