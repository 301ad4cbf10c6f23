//! Makes small images for tests and seeds: every kind of node, both byte orders, every way of
//! storing a block.
//!
//! Not a writer for users. It compresses nothing: its zlib streams hold their bytes uncompressed,
//! so that the same nodes give the same image whatever library the workspace uses.

use forerun_io::{u16_from, u32_from, u64_from};
use forerun_vfs::ByteOrder;

use crate::ondisk::{
    BLK_DIRECT_PTR, BLK_UNCOMPRESSED, BLOCK, EXT_BLOCK_POINTERS, FSID_VERSION_2, HOLES, INODE_LEN,
    MAGIC, ROOT, SIGNATURE, SORTED_DIRS, SUPERBLOCK_LEN,
};
use crate::superblock::without_crc;

/// How the blocks of a file are stored. All ways except the first need `EXT_BLOCK_POINTERS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// Consecutive zlib streams.
    Compressed,
    /// Consecutive uncompressed blocks.
    Stored,
    /// Uncompressed blocks, with the start of each block in its pointer.
    DirectStored,
    /// zlib streams, with the start of each block in its pointer.
    DirectCompressed,
    /// Each block in a different one of these ways.
    Mixed,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Directory(Vec<Node>),
    File(Vec<u8>, Blocks),
    Symlink(Vec<u8>),
    /// A device, fifo or socket: the bits of its type, and its device number.
    Special(u16, u32),
}

#[derive(Clone, Debug)]
pub struct Node {
    name: Vec<u8>,
    mode: u16,
    kind: Kind,
}

impl Node {
    /// Creates an entry with the usual mode of its kind.
    #[must_use]
    pub fn new(name: &[u8], kind: Kind) -> Self {
        let mode = match &kind {
            Kind::Directory(_) => 0o40_755,
            Kind::File(..) => 0o100_644,
            Kind::Symlink(_) => 0o120_777,
            Kind::Special(kind, _) => kind | 0o600,
        };
        let name = name.to_vec();
        Self { name, mode, kind }
    }

    #[must_use]
    pub fn file(name: &[u8], bytes: &[u8]) -> Self {
        Self::new(name, Kind::File(bytes.to_vec(), Blocks::Compressed))
    }
}

/// The variant of the format to make.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub big_endian: bool,
    /// Whether 512 bytes precede the superblock.
    pub padded: bool,
    pub flags: u32,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            big_endian: false,
            padded: false,
            flags: FSID_VERSION_2 | SORTED_DIRS,
        }
    }
}

impl Layout {
    /// Creates a layout with holes, and with flags in block pointers.
    #[must_use]
    pub const fn extended() -> Self {
        Self {
            big_endian: false,
            padded: false,
            flags: FSID_VERSION_2 | SORTED_DIRS | HOLES | EXT_BLOCK_POINTERS,
        }
    }

    const fn order(self) -> ByteOrder {
        if self.big_endian {
            ByteOrder::Big
        } else {
            ByteOrder::Little
        }
    }

    const fn start(self) -> usize {
        if self.padded { 512 } else { 0 }
    }

    /// Makes an image with these entries in its root.
    #[must_use]
    pub fn image(self, root: &[Node]) -> Vec<u8> {
        let mut maker = Maker {
            layout: self,
            image: vec![0; self.start() + SUPERBLOCK_LEN],
            data: Vec::new(),
            blocks: 0,
            files: 1,
        };
        let at = self.start() + ROOT;
        let (offset, size) = maker.directory(root);
        // mkfs.cramfs also sets this offset if the root is empty.
        let offset = offset.max(self.start() + SUPERBLOCK_LEN);
        maker.inode(at, (0o40_755, size, 0, offset));
        for (inode, node) in std::mem::take(&mut maker.data) {
            maker.contents(inode, &node);
        }
        maker.pad(4);
        maker.superblock();
        maker.image
    }

    /// Corrects the checksum of an image with this layout.
    pub fn sum(self, image: &mut [u8]) {
        let start = u64_from(self.start());
        without_crc(image, start);
        let covered = image.get(self.start()..).unwrap_or_default();
        let sum = libdeflater::crc32(covered);
        put(
            image,
            self.start() + crate::ondisk::CRC,
            self.order(),
            &[sum],
        );
    }
}

struct Maker {
    layout: Layout,
    image: Vec<u8>,
    /// Inodes whose data is not written yet.
    data: Vec<(usize, Node)>,
    blocks: u32,
    files: u32,
}

impl Maker {
    /// Adds the entries of a directory, then those of its subdirectories. Returns the offset of the
    /// first entry and the length of the directory.
    fn directory(&mut self, entries: &[Node]) -> (usize, usize) {
        let start = self.image.len();
        let mut inodes = Vec::new();
        for entry in entries {
            inodes.push(self.image.len());
            self.image.extend([0; INODE_LEN]);
            self.image.extend_from_slice(&entry.name);
            self.pad(4);
            self.files += 1;
        }
        let size = self.image.len() - start;
        for (&at, entry) in inodes.iter().zip(entries) {
            let units = entry.name.len().div_ceil(4);
            match &entry.kind {
                Kind::Directory(children) => {
                    let (offset, size) = self.directory(children);
                    let offset = if size == 0 { 0 } else { offset };
                    self.inode(at, (entry.mode, size, units, offset));
                }
                Kind::Special(_, number) => {
                    let number = usize::try_from(*number).unwrap_or(0);
                    self.inode(at, (entry.mode, number, units, 0));
                }
                Kind::File(bytes, _) | Kind::Symlink(bytes) if bytes.is_empty() => {
                    self.inode(at, (entry.mode, 0, units, 0));
                }
                Kind::File(..) | Kind::Symlink(_) => self.data.push((at, entry.clone())),
            }
        }
        (if size == 0 { 0 } else { start }, size)
    }

    /// Writes an inode: mode, size, units of name, byte offset.
    fn inode(&mut self, at: usize, fields: (u16, usize, usize, usize)) {
        let (mode, size, units, offset) = fields;
        let order = self.layout.order();
        let narrow = |number: usize| u32::try_from(number).unwrap_or(0);
        let words = [
            join(order, u32::from(mode), 16, 0),
            join(order, narrow(size), 24, 0),
            join(order, narrow(units), 6, narrow(offset / 4)),
        ];
        put(&mut self.image, at, order, &words);
    }

    /// Adds block pointers and blocks, and completes the inode.
    fn contents(&mut self, inode: usize, node: &Node) {
        let (bytes, ways) = match &node.kind {
            Kind::File(bytes, ways) => (bytes, *ways),
            Kind::Symlink(bytes) => (bytes, Blocks::Compressed),
            Kind::Directory(_) | Kind::Special(..) => return,
        };
        self.pad(4);
        let table = self.image.len();
        let units = node.name.len().div_ceil(4);
        self.inode(inode, (node.mode, bytes.len(), units, table));
        let chunks = bytes.chunks(usize::try_from(BLOCK).unwrap_or(1));
        self.image.resize(table + 4 * chunks.len(), 0);
        for (block, chunk) in chunks.enumerate() {
            let pointer = self.block(chunk, ways.of(block));
            let order = self.layout.order();
            put(&mut self.image, table + 4 * block, order, &[pointer]);
            self.blocks += 1;
        }
    }

    fn block(&mut self, chunk: &[u8], way: Blocks) -> u32 {
        let is_hole = self.layout.flags & HOLES != 0 && chunk.iter().all(|&byte| byte == 0);
        let is_direct = matches!(way, Blocks::DirectStored | Blocks::DirectCompressed);
        if is_direct && !is_hole {
            self.pad(4);
        }
        let start = self.image.len();
        match way {
            _ if is_hole => {}
            Blocks::Stored | Blocks::DirectStored => self.image.extend_from_slice(chunk),
            Blocks::Compressed | Blocks::Mixed => self.image.extend(zlib(chunk)),
            Blocks::DirectCompressed => {
                let stream = zlib(chunk);
                let len = u16_from(u64_from(stream.len()));
                self.image.extend(match self.layout.order() {
                    ByteOrder::Little => len.to_le_bytes(),
                    ByteOrder::Big => len.to_be_bytes(),
                });
                self.image.extend(stream);
            }
        }
        let number = |at: usize| u32::try_from(at).unwrap_or(0);
        let end = number(self.image.len());
        match way {
            _ if is_hole => end,
            Blocks::Compressed | Blocks::Mixed => end,
            Blocks::Stored => end | BLK_UNCOMPRESSED,
            Blocks::DirectCompressed => number(start / 4) | BLK_DIRECT_PTR,
            Blocks::DirectStored => number(start / 4) | BLK_DIRECT_PTR | BLK_UNCOMPRESSED,
        }
    }

    fn superblock(&mut self) {
        let Layout { flags, .. } = self.layout;
        let (start, order) = (self.layout.start(), self.layout.order());
        let size = u32_from(u64_from(self.image.len()));
        put(&mut self.image, start, order, &[MAGIC, size, flags, 0]);
        let counts = [0, 7, self.blocks, self.files];
        put(&mut self.image, start + 32, order, &counts);
        for (at, text) in [(16, &SIGNATURE[..]), (48, b"made by hand")] {
            let place = self.image.get_mut(start + at..start + at + text.len());
            if let Some(place) = place {
                place.copy_from_slice(text);
            }
        }
        if flags & FSID_VERSION_2 != 0 {
            self.layout.sum(&mut self.image);
        }
    }

    fn pad(&mut self, align: usize) {
        let len = self.image.len().next_multiple_of(align);
        self.image.resize(len, 0);
    }
}

impl Blocks {
    const fn of(self, block: usize) -> Self {
        match (self, block % 4) {
            (Self::Mixed, 0) => Self::DirectStored,
            (Self::Mixed, 1) => Self::Stored,
            (Self::Mixed, 2) => Self::DirectCompressed,
            (Self::Mixed, _) => Self::Compressed,
            (way, _) => way,
        }
    }
}

/// Joins two bit fields, the first of `width` bits.
fn join(order: ByteOrder, first: u32, width: u32, second: u32) -> u32 {
    match order {
        ByteOrder::Little => first | second << width,
        ByteOrder::Big => first << (32 - width) | second,
    }
}

/// Writes words, unless they reach past the image.
fn put(image: &mut [u8], at: usize, order: ByteOrder, words: &[u32]) {
    let bytes: Vec<u8> = words
        .iter()
        .flat_map(|word| match order {
            ByteOrder::Little => word.to_le_bytes(),
            ByteOrder::Big => word.to_be_bytes(),
        })
        .collect();
    if let Some(place) = image.get_mut(at..at + bytes.len()) {
        place.copy_from_slice(&bytes);
    }
}

/// Creates a zlib stream (RFC 1950) of one stored block (RFC 1951).
fn zlib(bytes: &[u8]) -> Vec<u8> {
    let len = u16_from(u64_from(bytes.len()));
    let mut stream = vec![0x78, 0x01, 0x01];
    stream.extend(len.to_le_bytes());
    stream.extend((!len).to_le_bytes());
    stream.extend_from_slice(bytes);
    stream.extend(libdeflater::adler32(bytes).to_be_bytes());
    stream
}
