//! Converts images of 4.0 to big-endian ones. Walks all structures, with its own field offsets, and
//! byte-swaps every number. File data is not moved. Metadata blocks are encoded again, so
//! references change with their lengths.

use std::collections::{BTreeMap, BTreeSet};

use forerun_codec::{BcjSet, Codec, Encoder, Encoding, LzmaTuning, ZlibStrategies};
use forerun_vfs::ByteOrder;

const BLOCK: usize = 8192;
const STORED: u16 = 0x8000;
const SUPERBLOCK: usize = 96;
const NONE: u64 = u64::MAX;

/// Returns the image with big-endian numbers and with metadata block headers in byte order
/// `headers`.
pub fn turned(image: &[u8], headers: ByteOrder) -> Vec<u8> {
    Turner::new(image, headers).image()
}

/// Returns the offsets of the inode table and of the directory table of a big-endian image.
pub fn tables(image: &[u8]) -> (usize, usize) {
    let at = |at| ByteOrder::Big.u64_at(image, at).unwrap() as usize;
    (at(64), at(72))
}

/// Consecutive metadata blocks, decoded.
struct Run {
    bytes: Vec<u8>,
    /// Offset of each block from the start of the table.
    starts: Vec<u64>,
    /// Whether the first block is uncompressed.
    is_stored: bool,
}

struct Turner<'i> {
    image: &'i [u8],
    headers: ByteOrder,
    codec: Codec,
    encoder: Encoder,
    out: Vec<u8>,
}

impl<'i> Turner<'i> {
    fn new(image: &'i [u8], headers: ByteOrder) -> Self {
        let (codec, encoding) = match number(image, 20, 2) {
            1 => (
                Codec::Zlib,
                Encoding::Zlib {
                    level: 9,
                    window_bits: 15,
                    strategies: ZlibStrategies::default(),
                },
            ),
            2 => (Codec::Lzma, Encoding::Lzma),
            4 => (
                Codec::Xz,
                Encoding::Xz {
                    dictionary: None,
                    filters: BcjSet::default(),
                    tuning: LzmaTuning::default(),
                },
            ),
            5 => (Codec::Lz4, Encoding::Lz4 { high: false }),
            6 => (Codec::Zstd, Encoding::Zstd { level: 3 }),
            other => panic!("compressor {other}"),
        };
        Self {
            image,
            headers,
            codec,
            encoder: Encoder::new(&encoding, BLOCK as u32).unwrap(),
            out: Vec::new(),
        }
    }

    fn field(&self, at: usize) -> u64 {
        number(self.image, at, 8)
    }

    fn image(mut self) -> Vec<u8> {
        let [ids, xattrs, inodes, listings, fragments, export] =
            [48, 56, 64, 72, 80, 88].map(|at| self.field(at));
        self.out.extend(&self.image[..inodes as usize]);
        self.options();
        let pointed = |table: u64| (table != NONE).then(|| self.field(table as usize));
        // A table without entries has neither blocks nor pointers.
        let fragments = if number(self.image, 16, 4) == 0 {
            NONE
        } else {
            fragments
        };
        let behind = [
            pointed(fragments),
            pointed(export),
            pointed(ids),
            pointed(xattrs),
        ];
        let end_of_listings = behind.into_iter().flatten().min().unwrap();
        let mut inode_run = self.read(inodes, listings);
        let mut listing_run = self.read(listings, end_of_listings);
        let listing_starts = stored_starts(&listing_run);
        self.turn_inodes(&mut inode_run.bytes, &listing_starts);
        let inode_blocks = self.blocks(&inode_run.bytes, inode_run.is_stored);
        let inode_starts = starts_of(&inode_run, &inode_blocks);
        turn_listings(&mut listing_run.bytes, &inode_starts);
        let listing_blocks = self.blocks(&listing_run.bytes, true);
        let new_inodes = self.append(&inode_blocks);
        let new_listings = self.append(&listing_blocks);
        let turn_fragments = |bytes: &mut [u8]| turn_each(bytes, &[8, 4, 4]);
        let turn_export = |bytes: &mut [u8]| {
            for entry in bytes.chunks_mut(8) {
                remap_reference(entry, &inode_starts);
                turn_all(entry, &[8]);
            }
        };
        let turn_ids = |bytes: &mut [u8]| turn_each(bytes, &[4]);
        let new_fragments = self.table(fragments, 16 * number(self.image, 16, 4), turn_fragments);
        let new_export = self.table(export, 8 * number(self.image, 4, 4), turn_export);
        let new_ids = self.table(ids, 4 * number(self.image, 26, 2), turn_ids);
        let new_xattrs = self.xattrs(xattrs);
        let tables = [
            new_ids,
            new_xattrs,
            new_inodes,
            new_listings,
            new_fragments,
            new_export,
        ];
        self.superblock(tables, &inode_starts);
        self.out
    }

    fn superblock(&mut self, tables: [u64; 6], inodes: &BTreeMap<u64, u64>) {
        let len = self.out.len() as u64;
        let (head, _) = self.out.split_at_mut(SUPERBLOCK);
        remap_reference(&mut head[32..40], inodes);
        head[40..48].copy_from_slice(&len.to_le_bytes());
        for (at, table) in (48..).step_by(8).zip(tables) {
            head[at..at + 8].copy_from_slice(&table.to_le_bytes());
        }
        turn_all(
            head,
            &[4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2, 8, 8, 8, 8, 8, 8, 8, 8],
        );
    }

    /// Swaps the uncompressed compressor options after the superblock: 32-bit words, except for
    /// gzip.
    fn options(&mut self) {
        if number(self.image, 24, 2) & 0x400 == 0 {
            return;
        }
        let word = number(self.image, SUPERBLOCK, 2) as u16;
        assert!(word & STORED != 0);
        let header = self.header(word);
        self.out[SUPERBLOCK..SUPERBLOCK + 2].copy_from_slice(&header);
        let len = usize::from(word & !STORED);
        let options = &mut self.out[SUPERBLOCK + 2..SUPERBLOCK + 2 + len];
        match self.codec {
            Codec::Zlib => turn_each(options, &[4, 2, 2]),
            _ => turn_each(options, &[4]),
        }
    }

    fn header(&self, word: u16) -> [u8; 2] {
        match self.headers {
            ByteOrder::Little => word.to_le_bytes(),
            ByteOrder::Big => word.to_be_bytes(),
        }
    }

    fn read(&self, start: u64, end: u64) -> Run {
        let mut run = Run {
            bytes: Vec::new(),
            starts: Vec::new(),
            is_stored: number(self.image, start as usize, 2) as u16 & STORED != 0,
        };
        let mut at = start as usize;
        while at < end as usize {
            run.starts.push(at as u64 - start);
            at += self.read_block(at, &mut run.bytes);
        }
        run
    }

    /// Decodes a block and appends it. Returns its stored length.
    fn read_block(&self, at: usize, out: &mut Vec<u8>) -> usize {
        let word = number(self.image, at, 2) as u16;
        let len = usize::from(word & !STORED);
        let stored = &self.image[at + 2..at + 2 + len];
        if word & STORED != 0 {
            out.extend(stored);
        } else {
            let mut decoded = vec![0; BLOCK];
            let len = self.codec.decode_up_to(stored, &mut decoded).unwrap();
            out.extend(&decoded[..len]);
        }
        2 + len
    }

    fn blocks(&mut self, bytes: &[u8], is_stored: bool) -> Vec<Vec<u8>> {
        let mut blocks = Vec::new();
        for block in bytes.chunks(BLOCK) {
            let mut encoded = Vec::new();
            let is_shorter = !is_stored && self.encoder.encode(block, &mut encoded);
            let (word, body) = if is_shorter {
                (encoded.len() as u16, &encoded[..])
            } else {
                (block.len() as u16 | STORED, block)
            };
            blocks.push([&self.header(word)[..], body].concat());
        }
        blocks
    }

    /// Appends blocks. Returns the offset of the first one.
    fn append(&mut self, blocks: &[Vec<u8>]) -> u64 {
        let start = self.out.len() as u64;
        self.out.extend(blocks.iter().flatten());
        start
    }

    /// Converts a table with pointers, of `len` decoded bytes. Returns the offset of its new
    /// pointers.
    fn table(&mut self, pointers: u64, len: u64, turn: impl Fn(&mut [u8])) -> u64 {
        if pointers == NONE {
            return NONE;
        }
        let mut bytes = Vec::new();
        let mut is_stored = false;
        for index in 0..len.div_ceil(BLOCK as u64) {
            let block = self.field((pointers + 8 * index) as usize) as usize;
            is_stored = number(self.image, block, 2) as u16 & STORED != 0;
            self.read_block(block, &mut bytes);
        }
        assert_eq!(bytes.len() as u64, len);
        turn(&mut bytes);
        let blocks = self.blocks(&bytes, is_stored);
        let mut at = self.append(&blocks);
        let start = self.out.len() as u64;
        for block in blocks {
            self.out.extend(at.to_be_bytes());
            at += block.len() as u64;
        }
        start
    }

    fn turn_inodes(&self, bytes: &mut [u8], listings: &BTreeMap<u64, u64>) {
        let block_size = number(self.image, 12, 4);
        let mut at = 0;
        // After the last inode comes padding of a test.
        while at < bytes.len() && number(bytes, at, 2) != 0 {
            let kind = number(bytes, at, 2);
            turn_all(&mut bytes[at..], &[2, 2, 2, 2, 4, 4]);
            at += 16;
            let body = &mut bytes[at..];
            let sizes = |size: u64, fragment: u64| match fragment {
                0xffff_ffff => size.div_ceil(block_size),
                _ => size / block_size,
            };
            at += match kind {
                1 => {
                    remap(body, 0, listings);
                    turn_all(body, &[4, 4, 2, 2, 4])
                }
                8 => {
                    remap(body, 8, listings);
                    let count = number(body, 16, 2);
                    let len = turn_all(body, &[4, 4, 4, 4, 2, 2, 4]);
                    len + turn_indexes(&mut body[len..], count, listings)
                }
                2 | 9 => {
                    let (widths, size, fragment) = match kind {
                        2 => (&[4, 4, 4, 4][..], number(body, 12, 4), number(body, 4, 4)),
                        _ => (
                            &[8, 8, 8, 4, 4, 4, 4][..],
                            number(body, 8, 8),
                            number(body, 28, 4),
                        ),
                    };
                    let len = turn_all(body, widths);
                    let count = sizes(size, fragment) as usize;
                    len + turn_all(&mut body[len..], &vec![4; count])
                }
                3 | 10 => {
                    let len = 8 + number(body, 4, 4) as usize;
                    turn_all(body, &[4, 4]);
                    match kind {
                        3 => len,
                        _ => len + turn_all(&mut body[len..], &[4]),
                    }
                }
                4 | 5 => turn_all(body, &[4, 4]),
                11 | 12 => turn_all(body, &[4, 4, 4]),
                6 | 7 => turn_all(body, &[4]),
                13 | 14 => turn_all(body, &[4, 4]),
                other => panic!("inode type {other}"),
            };
        }
    }

    fn xattrs(&mut self, table: u64) -> u64 {
        if table == NONE {
            return NONE;
        }
        let (first, count) = (
            self.field(table as usize),
            number(self.image, table as usize + 8, 4),
        );
        let sets = self.field(table as usize + 16);
        let mut pairs = self.read(first, sets);
        let mut set_run = self.read(sets, table);
        let new_starts = stored_starts(&pairs);
        let mut done = BTreeSet::new();
        let place = |reference: u64| {
            let block = pairs
                .starts
                .iter()
                .position(|&start| start == reference >> 16);
            block.unwrap() * BLOCK + (reference & 0xffff) as usize
        };
        let places: Vec<_> = set_run
            .bytes
            .chunks(16)
            .map(|set| (place(number(set, 0, 8)), number(set, 8, 4)))
            .collect();
        let bytes = &mut pairs.bytes;
        let mut turn = |bytes: &mut Vec<u8>, at: usize, width: usize| {
            let value = number(bytes, at, width);
            if done.insert(at) {
                bytes[at..at + width].reverse();
                return value;
            }
            // The number was already swapped, as part of another set.
            bytes[at..at + width]
                .iter()
                .fold(0, |value, byte| value << 8 | u64::from(*byte))
        };
        for (mut at, count) in places {
            for _ in 0..count {
                let kind = turn(bytes, at, 2);
                at += 4 + turn(bytes, at + 2, 2) as usize;
                let len = turn(bytes, at, 4) as usize;
                at += 4;
                if kind & 0x100 != 0 {
                    let before = number(bytes, at, 8);
                    let new = remapped(before, &new_starts);
                    bytes[at..at + 8].copy_from_slice(&new.to_le_bytes());
                    turn(bytes, at, 8);
                    turn(bytes, place(before), 4);
                }
                at += len;
            }
        }
        for set in set_run.bytes.chunks_mut(16) {
            remap_reference(&mut set[..8], &new_starts);
            turn_all(set, &[8, 4, 4]);
        }
        let pair_blocks = self.blocks(&pairs.bytes, true);
        let set_blocks = self.blocks(&set_run.bytes, set_run.is_stored);
        let new_pairs = self.append(&pair_blocks);
        let mut at = self.append(&set_blocks);
        let start = self.out.len() as u64;
        self.out.extend(new_pairs.to_be_bytes());
        self.out.extend((count as u32).to_be_bytes());
        self.out.extend([0; 4]);
        for block in set_blocks {
            self.out.extend(at.to_be_bytes());
            at += block.len() as u64;
        }
        start
    }
}

fn turn_indexes(bytes: &mut [u8], count: u64, listings: &BTreeMap<u64, u64>) -> usize {
    let mut at = 0;
    for _ in 0..count {
        remap(&mut bytes[at..], 4, listings);
        let name = number(bytes, at + 8, 4) as usize + 1;
        turn_all(&mut bytes[at..], &[4, 4, 4]);
        at += 12 + name;
    }
    at
}

/// Swaps the runs of all listings, which are consecutive.
fn turn_listings(bytes: &mut [u8], inodes: &BTreeMap<u64, u64>) {
    let mut at = 0;
    while at < bytes.len() {
        let count = number(bytes, at, 4) + 1;
        remap(&mut bytes[at..], 4, inodes);
        at += turn_all(&mut bytes[at..], &[4, 4, 4]);
        for _ in 0..count {
            let name = number(bytes, at + 6, 2) as usize + 1;
            at += turn_all(&mut bytes[at..], &[2, 2, 2, 2]) + name;
        }
    }
}

/// Returns the little-endian number of `width` bytes at `at`.
fn number(bytes: &[u8], at: usize, width: usize) -> u64 {
    let bytes = &bytes[at..at + width];
    bytes
        .iter()
        .rev()
        .fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Swaps consecutive numbers of these widths. Returns their total length.
fn turn_all(bytes: &mut [u8], widths: &[usize]) -> usize {
    let mut at = 0;
    for width in widths {
        bytes[at..at + width].reverse();
        at += width;
    }
    at
}

/// Swaps consecutive structures, which have numbers of these widths.
fn turn_each(bytes: &mut [u8], widths: &[usize]) {
    for structure in bytes.chunks_mut(widths.iter().sum()) {
        turn_all(structure, widths);
    }
}

/// Replaces the 4-byte block offset at `at` by the new one. The reference of an empty listing may
/// be the end of the table.
fn remap(bytes: &mut [u8], at: usize, starts: &BTreeMap<u64, u64>) {
    let before = number(bytes, at, 4);
    let new = starts.get(&before).copied().unwrap_or(before) as u32;
    bytes[at..at + 4].copy_from_slice(&new.to_le_bytes());
}

fn remap_reference(bytes: &mut [u8], starts: &BTreeMap<u64, u64>) {
    let new = remapped(number(bytes, 0, 8), starts);
    bytes[..8].copy_from_slice(&new.to_le_bytes());
}

fn remapped(reference: u64, starts: &BTreeMap<u64, u64>) -> u64 {
    starts[&(reference >> 16)] << 16 | reference & 0xffff
}

/// Maps old block offsets to new ones, if all blocks become uncompressed.
fn stored_starts(run: &Run) -> BTreeMap<u64, u64> {
    let new = (0..).step_by(BLOCK + 2);
    run.starts.iter().copied().zip(new).collect()
}

/// Maps old block offsets to new ones.
fn starts_of(run: &Run, blocks: &[Vec<u8>]) -> BTreeMap<u64, u64> {
    let mut at = 0;
    let mut starts = BTreeMap::new();
    for (start, block) in run.starts.iter().zip(blocks) {
        starts.insert(*start, at);
        at += block.len() as u64;
    }
    starts
}
