//! Builds images of 1.x to 3.x in both byte orders, from the same small tree.

use forerun_codec::{Codec, Encoder, Encoding};
use forerun_io::u64_from;

use crate::ondisk::{BLOCK_STORED, METADATA_STORED, NONE_32};

/// Bytes of a data block.
const BLOCK: usize = 4096;
const UID: u64 = 1000;
const GID: u64 = 100;

/// How an image stores what it encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    Gzip,
    /// LZMA alone.
    Lzma,
    /// The same without the length.
    LzmaNoLength,
    /// The same with the byte of properties as its only header.
    LzmaProperties,
    /// The parameters, a byte each, and 0xff.
    LzmaParameters,
    /// The same without a header.
    LzmaHeaderless,
    /// The mark of a vendor, and LZMA alone.
    LzmaMarked,
    /// The mark, and LZMA without the length.
    LzmaMarkedNoLength,
}

/// An image to build.
#[derive(Clone, Copy, Debug)]
pub struct Old {
    /// Major and minor version.
    pub version: (u16, u16),
    pub is_big_endian: bool,
    pub magic: [u8; 4],
    pub stored: Stored,
    /// Puts a byte 0xff behind the header of each metadata block.
    pub has_marker: bool,
    /// Stores inodes and listings as they are.
    pub is_plain: bool,
    /// Encodes in the `.lzma` container, in place of the encoder with the usual properties.
    pub encoder: Option<Encode>,
}

/// Encodes a block.
pub type Encode = fn(&[u8]) -> Vec<u8>;

/// A field: its value and its number of bits.
type Field = (u64, usize);

impl Old {
    /// Creates an image with the magic of its byte order, with gzip.
    #[must_use]
    pub const fn new(version: (u16, u16), is_big_endian: bool) -> Self {
        Self {
            version,
            is_big_endian,
            magic: if is_big_endian { *b"sqsh" } else { *b"hsqs" },
            stored: Stored::Gzip,
            has_marker: false,
            is_plain: false,
            encoder: None,
        }
    }

    /// Returns the contents of the file `file`: a block that is encoded, one that is not, and an end
    /// that is in a fragment from 2.x on.
    #[must_use]
    pub fn contents() -> Vec<u8> {
        let mut out = vec![b'a'; BLOCK];
        // Every byte differs from those before it by another amount, so no codec is of use.
        let mut state = 1_u32;
        out.extend(
            std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            })
            .take(BLOCK),
        );
        out.extend_from_slice(b"ten bytes.");
        out
    }

    /// Returns the image. It has `dir` with the empty file `inner`, `fifo`, `file`, `link`, `null` and
    /// `sock`.
    #[must_use]
    pub fn image(&self) -> Vec<u8> {
        let contents = Self::contents();
        let (blocks, end) = contents.split_at(2 * BLOCK);
        let (first, second) = blocks.split_at(BLOCK);
        let head = match self.version.0 {
            1 => 51,
            2 => 63,
            _ => 119,
        };
        let mut out = vec![0; head];
        let encoded = self.encode(first);
        out.extend_from_slice(&encoded);
        out.extend_from_slice(second);
        let fragment = u64_from(out.len());
        out.extend_from_slice(end);
        let sizes = [
            u64_from(encoded.len()),
            stored_word(BLOCK),
            stored_word(end.len()),
        ];
        let (inodes, places) = self.inodes(u64_from(head), &sizes);
        let inode_table = u64_from(out.len());
        self.metadata(&mut out, &inodes);
        let directory_table = u64_from(out.len());
        self.metadata(&mut out, &self.listings(&places));
        let fragments = self.fragments(&mut out, fragment, end.len());
        let ids = u64_from(out.len());
        out.extend(self.pack(&[(UID, 32), (GID, 32)]));
        let len = u64_from(out.len());
        let tables = [ids, ids + 4, inode_table, directory_table];
        let superblock = self.superblock(len, places[0], tables, fragments);
        for (out, byte) in out.iter_mut().zip(superblock) {
            *out = byte;
        }
        out
    }

    fn superblock(&self, len: u64, root: u64, tables: [u64; 4], fragments: u64) -> Vec<u8> {
        let (major, minor) = self.version;
        let is_3 = major == 3;
        let short = |value: u64| (if is_3 { 0 } else { value }, 32);
        let [uids, guids, inodes, directories] = tables;
        let flags = if self.has_marker { 4 } else { 0 };
        let mut fields = vec![(0, 32), (8, 32), short(len)];
        fields.extend([uids, guids, inodes, directories].map(short));
        fields.extend([(u64::from(major), 16), (u64::from(minor), 16)]);
        fields.extend([(4096, 16), (12, 16), (flags, 8), (1, 8), (1, 8)]);
        fields.extend([(1_000_000_000, 32), (root, 64)]);
        if major > 1 {
            fields.extend([(4096, 32), (1, 32), short(fragments)]);
        }
        if is_3 {
            let all = [len, uids, guids, inodes, directories, fragments, u64::MAX];
            fields.extend(all.map(|value| (value, 64)));
        }
        let mut out = self.pack(&fields);
        out.splice(..4, self.magic);
        out
    }

    /// Returns all inodes, and the place of each: the root's first.
    fn inodes(&self, data: u64, sizes: &[u64; 3]) -> (Vec<u8>, Vec<u64>) {
        let mut out = Vec::new();
        let mut places = Vec::new();
        let root = 6 * self.entry_len() + self.header_len() + 4 + 4 * 3 + 3 + 4;
        let inner = self.header_len() + self.entry_len() + 5;
        let bodies = [
            self.dir(1, root, 0),
            self.dir(2, inner, root),
            self.ipc(3, 6),
            self.file(4, data, 8202, sizes),
            [
                self.head(5, 3, 0o777),
                self.pack(&[(6, 16)]),
                b"target".to_vec(),
            ]
            .concat(),
            [self.head(6, 5, 0o644), self.pack(&[(0x103, 16)])].concat(),
            self.ipc(7, 7),
            self.file(8, 0, 0, &[]),
        ];
        for body in bodies {
            places.push(u64_from(out.len()));
            out.extend(body);
        }
        (out, places)
    }

    /// Returns the fields that all inodes have. Only regular files have a group of their own.
    fn head(&self, number: u64, kind: u64, mode: u64) -> Vec<u8> {
        let (id, own) = if self.version.0 == 1 {
            (4, 15)
        } else {
            (8, 255)
        };
        let group = if kind == 2 { 0 } else { own };
        let mut fields = vec![(kind, 4), (mode, 12), (0, id), (group, id)];
        if self.version.0 == 3 {
            fields.extend([(1_000_000_001, 32), (number, 32)]);
            if kind != 2 {
                fields.push((1, 32));
            }
        }
        self.pack(&fields)
    }

    fn ipc(&self, number: u64, kind: u64) -> Vec<u8> {
        if self.version.0 == 1 {
            return [self.head(number, 0, 0o640), self.pack(&[(kind, 4), (0, 4)])].concat();
        }
        self.head(number, kind, 0o640)
    }

    fn dir(&self, number: u64, len: u64, at: u64) -> Vec<u8> {
        let fields = match self.version.0 {
            3 => vec![(len + 3, 19), (at, 13), (0, 32), (9, 32)],
            _ => vec![(len, 19), (at, 13), (1_000_000_001, 32), (0, 24)],
        };
        [self.head(number, 1, 0o755), self.pack(&fields)].concat()
    }

    fn file(&self, number: u64, start: u64, len: u64, sizes: &[u64]) -> Vec<u8> {
        let fragment = if len > 0 { 0 } else { u64::from(NONE_32) };
        let mtime = (1_000_000_001, 32);
        let mut fields = match self.version.0 {
            1 => vec![mtime, (start, 32), (len, 32)],
            2 => vec![mtime, (start, 32), (fragment, 32), (0, 32), (len, 32)],
            _ => vec![(start, 64), (fragment, 32), (0, 32), (len, 32)],
        };
        if self.version.0 == 1 {
            let short = |&size: &u64| (size >> 24 << 15 | size & 0x7fff, 16);
            fields.extend(sizes.iter().map(short));
        } else {
            fields.extend(sizes.iter().take(2).map(|&size| (size, 32)));
        }
        [self.head(number, 2, 0o644), self.pack(&fields)].concat()
    }

    fn listings(&self, places: &[u64]) -> Vec<u8> {
        let names: [(&[u8], u64); 7] = [
            (b"dir", 1),
            (b"fifo", 6),
            (b"file", 2),
            (b"link", 3),
            (b"null", 5),
            (b"sock", 7),
            (b"inner", 2),
        ];
        let mut out = self.run(6, 2);
        for (index, ((name, kind), place)) in names.iter().zip(places.iter().skip(1)).enumerate() {
            if name == b"inner" {
                out.extend(self.run(1, 8));
            }
            let len = u64_from(name.len()).saturating_sub(1);
            let mut fields = vec![(*place, 13), (*kind, 3), (len, 8)];
            if self.version.0 == 3 {
                let number = if name == b"inner" { 0 } else { u64_from(index) };
                fields.push((number, 16));
            }
            out.extend(self.pack(&fields));
            out.extend_from_slice(name);
        }
        out
    }

    fn run(&self, entries: u64, number: u64) -> Vec<u8> {
        let count = (entries.saturating_sub(1), 8);
        match self.version.0 {
            3 => self.pack(&[count, (0, 32), (number, 32)]),
            _ => self.pack(&[count, (0, 24)]),
        }
    }

    const fn header_len(&self) -> u64 {
        if self.version.0 == 3 { 9 } else { 4 }
    }

    const fn entry_len(&self) -> u64 {
        if self.version.0 == 3 { 5 } else { 3 }
    }

    /// Appends the table of the only fragment block. Returns the place of its pointer.
    fn fragments(&self, out: &mut Vec<u8>, start: u64, len: usize) -> u64 {
        let size = (stored_word(len), 32);
        let (fields, width): (Vec<Field>, _) = match self.version.0 {
            1 => return 0,
            2 => (vec![(start, 32), size], 32),
            _ => (vec![(start, 64), size, (0, 32)], 64),
        };
        let block = u64_from(out.len());
        self.metadata(out, &self.pack(&fields));
        let pointer = u64_from(out.len());
        out.extend(self.pack(&[(block, width)]));
        pointer
    }

    /// Appends a metadata block, encoded where that is shorter.
    fn metadata(&self, out: &mut Vec<u8>, bytes: &[u8]) {
        let encoded = self.encode(bytes);
        let (body, flag) = if encoded.is_empty() || self.is_plain {
            (bytes, METADATA_STORED)
        } else {
            (&encoded[..], 0)
        };
        let word = u64_from(body.len()) | u64::from(flag);
        out.extend(self.pack(&[(word, 16)]));
        out.extend(self.has_marker.then_some(0xff));
        out.extend_from_slice(body);
    }

    /// Returns the encoded bytes, or nothing if they are not shorter.
    fn encode(&self, bytes: &[u8]) -> Vec<u8> {
        let codec = match self.stored {
            Stored::Gzip => Codec::Zlib,
            _ => Codec::Lzma,
        };
        let mut out = Vec::new();
        let encoding = Encoding::default_of(codec);
        let encoder = encoding.and_then(|encoding| Encoder::new(&encoding, 8192).ok());
        if let Some(encode) = self.encoder {
            out = encode(bytes);
            if out.len() >= bytes.len() {
                return Vec::new();
            }
        } else if !encoder.is_some_and(|mut encoder| encoder.encode(bytes, &mut out)) {
            return Vec::new();
        }
        let head = out.iter().copied().take(5).collect::<Vec<_>>();
        match self.stored {
            Stored::Gzip | Stored::Lzma => {}
            Stored::LzmaNoLength => drop(out.drain(5..13)),
            Stored::LzmaProperties => drop(out.drain(1..13)),
            Stored::LzmaParameters => drop(out.splice(..13, parameters(&out))),
            Stored::LzmaHeaderless => drop(out.drain(..13)),
            Stored::LzmaMarked => drop(out.splice(..0, *b"7zip")),
            Stored::LzmaMarkedNoLength => drop(out.splice(..13, [&b"7zip"[..], &head].concat())),
        }
        out
    }

    /// Packs fields, which together are whole bytes.
    fn pack(&self, fields: &[Field]) -> Vec<u8> {
        let bits = fields.iter().flat_map(|&(value, width)| {
            (0..width).map(move |index| {
                let bit = if self.is_big_endian {
                    width - 1 - index
                } else {
                    index
                };
                value >> bit & 1 == 1
            })
        });
        let bits: Vec<bool> = bits.collect();
        let byte = |bits: &[bool]| {
            let set = bits.iter().enumerate().filter(|(_, bit)| **bit);
            set.fold(0, |byte, (index, _)| {
                byte | if self.is_big_endian {
                    0x80 >> index
                } else {
                    1 << index
                }
            })
        };
        bits.chunks(8).map(byte).collect()
    }
}

/// Returns the header that has a byte for each parameter of a stream in the `.lzma` container.
fn parameters(alone: &[u8]) -> [u8; 4] {
    let byte = alone.first().copied().unwrap_or_default();
    [byte / 45, byte % 9, byte / 9 % 5, 0xff]
}

/// Returns the size of a block that is stored as it is.
fn stored_word(len: usize) -> u64 {
    u64_from(len) | u64::from(BLOCK_STORED)
}
