//! Extent records, with addresses and lengths in bytes.
//!
//! A record of 4 bytes holds the stored length; extents are contiguous from one address, which
//! precedes the records. A record of 8 bytes holds an address too. In both, extents have one fixed
//! length in the file. Longer records also hold the start of the extent in the file, and are found
//! by binary search.

use std::ops::{ControlFlow, Range};

use forerun_vfs::{NodeId, Result};

use super::Piece;
use super::bytes::Bytes;
use super::check::ZmapCheck;
use super::header;
use super::place::{Algorithm, Placing, Source};
use super::sums;

/// Mask of the length in a record's length field; its flags are above.
const LEN: u32 = (1 << 24) - 1;
const PARTIAL: u32 = 1 << 27;
const FORMAT_SHIFT: u32 = 28;

/// Length of the address before records of 4 bytes.
const BASE: u64 = 8;

#[derive(Clone, Copy)]
struct ExtentRecord {
    /// Stored length with its flags.
    len: u32,
    address: u64,
    start: u64,
}

struct Table<'m> {
    node: NodeId,
    bytes: Bytes<'m>,
    start: u64,
    count: u64,
    shape: RecordFields,
    bits: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordFields {
    Length,
    Address,
    Start32,
    Start64,
}

/// Returns the offset after the records.
pub fn end(placing: &Placing<'_>, header: &header::Records) -> Result<u64> {
    let table = Table::new(placing, header)?;
    Ok(table.offset(table.count))
}

pub fn map(
    placing: &Placing<'_>,
    header: &header::Records,
    range: Range<u64>,
    visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<()> {
    let (node, size) = (placing.inode.node, placing.inode.size);
    let mut table = Table::new(placing, header)?;
    let (mut index, mut record) = table.before(placing, range.start)?;
    while record.start < range.end {
        let next = index + 1;
        let following = if next < table.count {
            Some(table.record(next, Some(record))?)
        } else {
            None
        };
        let end = following.map_or(size, |following| following.start.min(size));
        let offset = table.offset(index);
        if end <= record.start {
            let check = ZmapCheck::RecordOrder {
                record: next,
                start: end,
                before: record.start,
            };
            return Err(check.at(node, offset));
        }
        let logical = record.start..end;
        if end > range.start {
            let is_last = following.is_none();
            let given = give(placing, header, record, logical, is_last, visit);
            if given.map_err(|failed| failed.at(node, offset))?.is_break() {
                return Ok(());
            }
        }
        match following {
            Some(following) if following.start < size => (index, record) = (next, following),
            Some(_) | None => return Ok(()),
        }
    }
    Ok(())
}

fn give(
    placing: &Placing<'_>,
    header: &header::Records,
    record: ExtentRecord,
    logical: Range<u64>,
    is_last: bool,
    visit: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, super::place::Failed> {
    if is_last && header.fragment {
        // The length field holds the low half of the offset in the packed inode.
        let high = if header.len > 4 {
            record.address << 32
        } else {
            0
        };
        let offset = u64::from(record.len) | high;
        return Ok(visit(Piece::Fragment { logical, offset }));
    }
    let stored = u64::from(record.len & LEN);
    if stored == 0 {
        let place = forerun_vfs::Place::Zero;
        return Ok(visit(Piece::Extent(forerun_vfs::Extent { logical, place })));
    }
    let block = (1_u64 << placing.config.block_bits) - 1;
    let algorithm = match u8::try_from(record.len >> FORMAT_SHIFT).unwrap_or(0) {
        0 if header.interlaced && (record.address | stored) & block == 0 => Algorithm::Interlaced,
        0 => Algorithm::Plain,
        format => Algorithm::Id(format - 1),
    };
    let end = record.address.checked_add(stored);
    let end = end.ok_or_else(|| too_far(record.address))?;
    let source = Source::Data(record.address..end);
    placing.give(logical, source, algorithm, record.len & PARTIAL != 0, visit)
}

fn too_far(address: u64) -> ZmapCheck {
    let range = address..u64::MAX;
    ZmapCheck::DataOutside { range }
}

impl<'m> Table<'m> {
    fn new(placing: &Placing<'m>, header: &header::Records) -> Result<Self> {
        let shape = match header.len {
            4 => RecordFields::Length,
            8 => RecordFields::Address,
            16 => RecordFields::Start32,
            _ => RecordFields::Start64,
        };
        let base = if shape == RecordFields::Length {
            BASE
        } else {
            0
        };
        let count = match shape {
            RecordFields::Length | RecordFields::Address => {
                placing.inode.size.div_ceil(1 << header.bits)
            }
            RecordFields::Start32 | RecordFields::Start64 => header.count,
        };
        let aligned = header.end.checked_next_multiple_of(header.len);
        let start = aligned.and_then(|start| start.checked_add(base));
        let len = count.checked_mul(header.len);
        let end = start.and_then(|start| start.checked_add(len?));
        let meta = placing.meta.len();
        match (start, end) {
            (Some(start), Some(end)) if end <= meta && count > 0 => Ok(Self {
                node: placing.inode.node,
                bytes: Bytes::new(placing.meta, start - base, end),
                start,
                count,
                shape,
                bits: header.bits,
            }),
            _ => {
                let (end, len) = (end.unwrap_or(u64::MAX), meta);
                let clusters = count;
                let check = ZmapCheck::IndexOutside { clusters, end, len };
                Err(check.at(placing.inode.node, header.end))
            }
        }
    }

    const fn record_len(&self) -> u64 {
        match self.shape {
            RecordFields::Length => 4,
            RecordFields::Address => 8,
            RecordFields::Start32 => 16,
            RecordFields::Start64 => 32,
        }
    }

    const fn offset(&self, index: u64) -> u64 {
        self.start + index * self.record_len()
    }

    /// Reads a record, which must be below the count. A record that holds only a length gets its
    /// address from the previous record, `before`.
    fn record(&mut self, index: u64, before: Option<ExtentRecord>) -> Result<ExtentRecord> {
        let offset = self.offset(index);
        let fixed = index << self.bits;
        Ok(match self.shape {
            RecordFields::Length => {
                let address = match before {
                    Some(before) => {
                        let end = before.address.checked_add(u64::from(before.len & LEN));
                        end.ok_or_else(|| too_far(before.address).at(self.node, offset))?
                    }
                    None => u64::from_le_bytes(self.bytes.get(self.start - BASE)?),
                };
                self.length(index, address)?
            }
            RecordFields::Address => {
                let [len, address] = words(self.bytes.get::<8>(offset)?);
                ExtentRecord {
                    len,
                    address: u64::from(address),
                    start: fixed,
                }
            }
            RecordFields::Start32 => {
                let [len, address, high, start] = words(self.bytes.get::<16>(offset)?);
                ExtentRecord {
                    len,
                    address: u64::from(address) | u64::from(high) << 32,
                    start: u64::from(start),
                }
            }
            RecordFields::Start64 => {
                let [len, address, high, start, start_high, ..]: [u32; 8] =
                    words(self.bytes.get::<32>(offset)?);
                ExtentRecord {
                    len,
                    address: u64::from(address) | u64::from(high) << 32,
                    start: u64::from(start) | u64::from(start_high) << 32,
                }
            }
        })
    }

    /// Reads a record whose address is the sum of the lengths before it. Sums from the last known
    /// address.
    fn summed(&mut self, placing: &Placing<'_>, wanted: u64) -> Result<(u64, ExtentRecord)> {
        let (sums, node) = (placing.config.sums, placing.inode.node);
        let step = sums::step(self.count);
        let (mut index, mut record) = match sums.before(node, step, wanted) {
            Some((index, address)) => (index, self.length(index, address)?),
            None => (0, self.record(0, None)?),
        };
        sums.learn(node, step, index, record.address);
        while index < wanted {
            index += 1;
            record = self.record(index, Some(record))?;
            sums.learn(node, step, index, record.address);
        }
        Ok((index, record))
    }

    /// Reads a record that holds only a length, and gives it `address`.
    fn length(&mut self, index: u64, address: u64) -> Result<ExtentRecord> {
        Ok(ExtentRecord {
            len: u32::from_le_bytes(self.bytes.get(self.offset(index))?),
            address,
            start: index << self.bits,
        })
    }

    /// Finds the record of the extent that holds `position`.
    fn before(&mut self, placing: &Placing<'_>, position: u64) -> Result<(u64, ExtentRecord)> {
        match self.shape {
            RecordFields::Address => {
                let index = position >> self.bits;
                Ok((index, self.record(index, None)?))
            }
            RecordFields::Length => self.summed(placing, position >> self.bits),
            RecordFields::Start32 | RecordFields::Start64 => {
                let first = self.record(0, None)?;
                if first.start > position {
                    let check = ZmapCheck::NoExtent { position };
                    return Err(check.at(placing.inode.node, self.start));
                }
                let (mut low, mut high, mut found) = (0, self.count, first);
                while high - low > 1 {
                    let middle = low + (high - low) / 2;
                    let record = self.record(middle, None)?;
                    if record.start <= position {
                        (low, found) = (middle, record);
                    } else {
                        high = middle;
                    }
                }
                Ok((low, found))
            }
        }
    }
}

fn words<const N: usize, const B: usize>(bytes: [u8; B]) -> [u32; N] {
    let mut words = [0; N];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = chunk
            .first_chunk()
            .map_or(0, |&four| u32::from_le_bytes(four));
    }
    words
}
