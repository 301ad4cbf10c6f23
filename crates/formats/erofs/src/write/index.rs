//! Indexes of compressed files: an entry for each block of the file.
//!
//! A block in which an extent starts is a head, with the offset of the start. Other blocks hold the
//! distance back to their head, and the distance to the next one. If the file ends within a block,
//! an extra head marks the end of the last extent. Compacted indexes put 2 or 16 blocks into a pack
//! with one address; extents are consecutive, so the addresses of the pack's heads follow from it.

use forerun_io::{u16_from, u64_from, usize_from};

use super::data::{ExtentKind, Packed};

pub const HEADER: u64 = 8;
/// Unused bytes between the header and a full index.
const FULL_GAP: u64 = 8;
/// Flag in place of the distance to the head: the other bits are the extent's block count.
const COUNT: u16 = 0x0800;
/// Bits of an entry below its kind.
const LOW_BITS: u32 = 12;

const PLAIN: u16 = 0;
const HEAD: u16 = 1;
const BEHIND: u16 = 2;

mod advise {
    pub const COMPACTED_2B: u16 = 0x0001;
    pub const BIG_CLUSTERS: u16 = 0x0006;
    pub const INLINE: u16 = 0x0008;
    pub const FRAGMENT: u16 = 0x0020;
}

/// Flag of the header, which then holds only the offset: the whole file is in the packed inode.
const WHOLE_FRAGMENT: u64 = 1 << 63;

#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub block_bits: u32,
    /// Whether extents may have several blocks.
    pub big: bool,
    pub full: bool,
    pub algorithm: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Head { kind: u16, offset: u16, block: u32 },
    Behind { back: u16, ahead: u16, blocks: u16 },
}

pub fn is_full(format: Format, packed: &Packed) -> bool {
    format.full || packed.scattered || packed.whole_fragment().is_some()
}

/// Returns the number of bytes from `head`, the end of the inode's xattrs, to the end of its index.
pub fn len(format: Format, packed: &Packed, head: u64, size: u64) -> u64 {
    let start = head.next_multiple_of(8) + HEADER;
    if packed.whole_fragment().is_some() {
        return start - head;
    }
    let full = is_full(format, packed);
    let count = size.div_ceil(1 << format.block_bits);
    let indexes = if full {
        FULL_GAP + count * 8
    } else {
        let cut = Cut::new(start, count, format);
        (cut.first + cut.last) * 4 + cut.middle * 2
    };
    start + indexes - head
}

/// Encodes the padding, header and index after `head`. `base` is the first block of data.
pub fn encode(format: Format, packed: &Packed, head: u64, size: u64, base: u32) -> Vec<u8> {
    let full = is_full(format, packed);
    let start = head.next_multiple_of(8);
    let mut bytes = vec![0; usize_from(start - head)];
    if let Some(offset) = packed.whole_fragment() {
        bytes.extend_from_slice(&(offset | WHOLE_FRAGMENT).to_le_bytes());
        return bytes;
    }
    let inline = packed.inline.map_or(0, |inline| inline.len);
    let mut flags = 0;
    for (set, bit) in [
        (!full && two_bytes(format), advise::COMPACTED_2B),
        (format.big, advise::BIG_CLUSTERS),
        (packed.inline.is_some(), advise::INLINE),
        (packed.fragment.is_some(), advise::FRAGMENT),
    ] {
        flags |= if set { bit } else { 0 };
    }
    bytes.extend_from_slice(&match packed.fragment {
        // The low 32 bits; the index holds the rest.
        Some(offset) => offset.to_le_bytes()[..4].to_vec(),
        None => {
            let [low, high] = u16::try_from(inline).unwrap_or(0).to_le_bytes();
            vec![0, 0, low, high]
        }
    });
    bytes.extend_from_slice(&flags.to_le_bytes());
    bytes.extend_from_slice(&[format.algorithm, 0]);
    let entries = entries(format, packed, size, base);
    if full {
        bytes.resize(bytes.len() + usize_from(FULL_GAP), 0);
        entries
            .iter()
            .for_each(|entry| full_entry(*entry, format.big, &mut bytes));
    } else {
        let cut = Cut::new(start + HEADER, u64_from(entries.len()), format);
        compact(&entries, &cut, format, &mut bytes);
    }
    bytes
}

fn entries(format: Format, packed: &Packed, size: u64, base: u32) -> Vec<Entry> {
    let mut entries = Vec::new();
    let ends = packed.extents.iter().skip(1).map(|extent| extent.at);
    for (extent, end) in packed.extents.iter().zip(ends.chain([size])) {
        match extent.kind {
            ExtentKind::Run => {
                let mut at = extent.at;
                for n in 0..extent.blocks {
                    let block = base + extent.block + n;
                    let next = end.min(at + (1 << format.block_bits));
                    push(format, PLAIN, block, (at, next), 1, &mut entries);
                    at = next;
                }
            }
            ExtentKind::Fragment => {
                push(
                    format,
                    HEAD,
                    extent.block,
                    (extent.at, end),
                    0,
                    &mut entries,
                );
            }
            kind @ (ExtentKind::Plain | ExtentKind::Compressed) => {
                let kind = if kind == ExtentKind::Plain {
                    PLAIN
                } else {
                    HEAD
                };
                let block = base + extent.block;
                let range = (extent.at, end);
                push(format, kind, block, range, extent.blocks, &mut entries);
            }
        }
    }
    // The last block holds no start of an extent: mark the end of the file.
    if u64_from(entries.len()) < size.div_ceil(1 << format.block_bits) {
        let offset = low(size % (1 << format.block_bits));
        let block = 0;
        let kind = PLAIN;
        entries.push(Entry::Head {
            kind,
            offset,
            block,
        });
    }
    entries
}

fn push(
    format: Format,
    kind: u16,
    block: u32,
    (start, end): (u64, u64),
    blocks: u32,
    entries: &mut Vec<Entry>,
) {
    let offset = low(start % (1 << format.block_bits));
    entries.push(Entry::Head {
        kind,
        offset,
        block,
    });
    let first = start >> format.block_bits;
    let next = end >> format.block_bits;
    for at in first + 1..next {
        entries.push(Entry::Behind {
            back: low(at - first),
            ahead: low(next - at),
            blocks: u16::try_from(blocks).unwrap_or(0),
        });
    }
}

/// Converts a distance or offset. The limits on extents and blocks keep it within 16 bits.
fn low(value: u64) -> u16 {
    u16_from(value)
}

impl Entry {
    /// Encodes the distance to the head, or the extent's block count instead.
    const fn back(back: u16, blocks: u16, big: bool) -> u16 {
        if big && back == 1 {
            blocks | COUNT
        } else {
            back
        }
    }
}

fn full_entry(entry: Entry, big: bool, bytes: &mut Vec<u8>) {
    match entry {
        Entry::Head {
            kind,
            offset,
            block,
        } => {
            bytes.extend_from_slice(&kind.to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
            bytes.extend_from_slice(&block.to_le_bytes());
        }
        Entry::Behind {
            back,
            ahead,
            blocks,
        } => {
            bytes.extend_from_slice(&BEHIND.to_le_bytes());
            bytes.extend_from_slice(&[0; 2]);
            bytes.extend_from_slice(&Entry::back(back, blocks, big).to_le_bytes());
            bytes.extend_from_slice(&ahead.to_le_bytes());
        }
    }
}

/// Returns whether packs of 16 blocks are possible: they have 12-bit offsets.
const fn two_bytes(format: Format) -> bool {
    format.block_bits <= LOW_BITS
}

/// Numbers of blocks: with four bytes each, then with two, then with four again.
struct Cut {
    first: u64,
    middle: u64,
    last: u64,
}

impl Cut {
    fn new(start: u64, count: u64, format: Format) -> Self {
        // Packs of 32 bytes are aligned to 32.
        let first = (start.next_multiple_of(32) - start) / 4;
        let even = |count: u64| count.next_multiple_of(2);
        if first >= count || !two_bytes(format) {
            let (first, middle, last) = (even(count), 0, 0);
            return Self {
                first,
                middle,
                last,
            };
        }
        let middle = (count - first) / 16 * 16;
        let last = even(count - first - middle);
        Self {
            first,
            middle,
            last,
        }
    }
}

fn compact(entries: &[Entry], cut: &Cut, format: Format, bytes: &mut Vec<u8>) {
    let (first, rest) = split(entries, cut.first);
    let (middle, last) = split(rest, cut.middle);
    let mut base = Base::default();
    for (entries, pack) in [(first, 2), (middle, 16), (last, 2)] {
        for entries in entries.chunks(pack) {
            let bits = if pack == 2 { 16 } else { 14 };
            base.before(entries, format);
            pack_of(entries, pack, bits, format, base.value, bytes);
        }
    }
}

fn split(entries: &[Entry], at: u64) -> (&[Entry], &[Entry]) {
    let at = usize_from(at);
    entries.split_at_checked(at).unwrap_or((entries, &[]))
}

/// The base address of a pack. Without big clusters it is the address of the first head minus one.
/// With big clusters it is that address, minus the blocks of the previous extent if the pack holds
/// their count.
#[derive(Default)]
struct Base {
    value: u32,
}

impl Base {
    fn before(&mut self, entries: &[Entry], format: Format) {
        let heads = entries.iter().find_map(|entry| match entry {
            Entry::Head { block, .. } => Some(*block),
            Entry::Behind { .. } => None,
        });
        let Some(head) = heads else { return };
        let counted = match entries.first() {
            Some(Entry::Behind {
                back: 1, blocks, ..
            }) => u32::from(*blocks),
            _ => 0,
        };
        self.value = if format.big {
            head.wrapping_sub(counted)
        } else {
            head.wrapping_sub(1)
        };
    }
}

fn pack_of(
    entries: &[Entry],
    pack: usize,
    bits: usize,
    format: Format,
    base: u32,
    bytes: &mut Vec<u8>,
) {
    let start = bytes.len();
    bytes.resize(start + pack * bits / 8, 0);
    let packed = bytes.get_mut(start..).unwrap_or_default();
    for (n, entry) in entries.iter().enumerate() {
        let (kind, low) = match *entry {
            Entry::Head { kind, offset, .. } => (kind, offset),
            Entry::Behind {
                back,
                ahead,
                blocks,
            } => {
                let is_counted = format.big && back == 1;
                let low = if n + 1 == pack && !is_counted {
                    ahead
                } else {
                    Entry::back(back, blocks, format.big)
                };
                (BEHIND, low)
            }
        };
        put_bits(
            packed,
            n * bits,
            u32::from(low) | u32::from(kind) << low_bits(format),
        );
    }
    bytes.extend_from_slice(&base.to_le_bytes());
}

fn low_bits(format: Format) -> u32 {
    format.block_bits.max(LOW_BITS)
}

/// Writes a value of at most 16 bits at bit `at`. The bits must be zero before.
fn put_bits(bytes: &mut [u8], at: usize, value: u32) {
    let value = value << (at % 8);
    let there = bytes.iter_mut().skip(at / 8);
    for (byte, value) in there.zip(value.to_le_bytes()) {
        *byte |= value;
    }
}

/// Returns whether a compacted index is possible: its offsets have at most 14 bits.
pub const fn can_compact(block_bits: u32) -> bool {
    block_bits <= 14
}

#[cfg(test)]
mod tests {
    use super::super::data::Extent;
    use super::*;

    const FORMAT: Format = Format {
        block_bits: 12,
        big: false,
        full: false,
        algorithm: 0,
    };

    fn packed(extents: &[(u64, ExtentKind, u32, u32)]) -> Packed {
        let extents = extents.iter().map(|&(at, kind, block, blocks)| Extent {
            at,
            kind,
            block,
            blocks,
        });
        Packed {
            extents: extents.collect(),
            ..Packed::default()
        }
    }

    #[test]
    fn every_block_has_an_entry() {
        use ExtentKind::{Compressed, Plain};
        let packed = packed(&[
            (0, Compressed, 0, 1),
            (9000, Plain, 1, 1),
            (13096, Plain, 2, 1),
        ]);
        let entries = entries(FORMAT, &packed, 16000, 10);
        let head = |kind, offset, block| Entry::Head {
            kind,
            offset,
            block,
        };
        let behind = Entry::Behind {
            back: 1,
            ahead: 1,
            blocks: 1,
        };
        let expected = [
            head(HEAD, 0, 10),
            behind,
            head(PLAIN, 808, 11),
            head(PLAIN, 808, 12),
        ];
        assert_eq!(entries, expected);
    }

    #[test]
    fn lengths_are_those_of_the_bytes() {
        for blocks in 1..80_u64 {
            for head in (32..128).step_by(4) {
                for (full, block_bits) in [(false, 12), (true, 12), (false, 13), (false, 9)] {
                    let format = Format {
                        full,
                        block_bits,
                        ..FORMAT
                    };
                    let size = (blocks << block_bits) - 1;
                    let packed = packed(&[(0, ExtentKind::Compressed, 0, 1)]);
                    let bytes = encode(format, &packed, head, size, 1);
                    let len = len(format, &packed, head, size);
                    assert_eq!(u64_from(bytes.len()), len, "{blocks} {head}");
                }
            }
        }
    }
}
