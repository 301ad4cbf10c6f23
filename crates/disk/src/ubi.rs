//! UBI: the physical erase blocks of flash. Each stores the number of its volume and its block
//! number within the volume.
//!
//! Linux's `drivers/mtd/ubi` is the definition. Of several copies of a block, the one with the
//! highest sequence number is used, unless its write was interrupted.

use std::collections::BTreeMap;

use forerun_io::{ReadAt, u64_from, usize_from};
use forerun_vfs::{Extent, Held, Limits, Result, on_disk};
use zerocopy::FromBytes;
use zerocopy::big_endian::{U16, U32, U64};

use crate::crc::crc;
use crate::error::Check;
use crate::map::{Map, Place};
use crate::{Disk, DiskKind, Volume, read};

on_disk! {
    /// The erase counter header, at the start of each erase block.
    EcHeader, 64 {
        magic: [u8; 4],
        version: u8,
        padding1: [u8; 3],
        ec: U64,
        vid_hdr_offset: U32,
        data_offset: U32,
        image_seq: U32,
        padding2: [u8; 32],
        hdr_crc: U32,
    }
}

on_disk! {
    VidHeader, 64 {
        magic: [u8; 4],
        version: u8,
        vol_type: u8,
        copy_flag: u8,
        compat: u8,
        vol_id: U32,
        lnum: U32,
        padding1: [u8; 4],
        data_size: U32,
        used_ebs: U32,
        data_pad: U32,
        data_crc: U32,
        padding2: [u8; 4],
        sqnum: U64,
        padding3: [u8; 12],
        hdr_crc: U32,
    }
}

on_disk! {
    Record, 172 {
        reserved_pebs: U32,
        alignment: U32,
        data_pad: U32,
        vol_type: u8,
        upd_marker: u8,
        name_len: U16,
        name: [u8; 128],
        flags: u8,
        padding: [u8; 23],
        crc: U32,
    }
}

const STATIC: u8 = 2;
const DYNAMIC: u8 = 1;
/// Number of the volume that stores two copies of the volume table.
const LAYOUT: u32 = 0x7fff_efff;
const VOLUMES: usize = 128;
const PEB_MAX: u64 = 16 << 20;
/// Erase blocks start at multiples of this.
const STEP: u64 = 512;
/// Headers that the detection of the erase block size reads. One may be missing, because flash
/// blocks go bad.
const SAMPLES: usize = 4;
/// Consecutive erase blocks without a header after which the search stops.
const STRANGE: u64 = 1024;
const FORMAT: &str = "ubi";

/// Parses a header that ends with its CRC-32.
fn summed<T: FromBytes>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    let (body, sum) = bytes.split_last_chunk::<4>()?;
    (crc(body) == u32::from_be_bytes(*sum)).then(|| T::read_from_bytes(bytes).ok())?
}

/// Parses a header of version 1 with this magic number.
fn parse_header<T: FromBytes>(bytes: &[u8], magic: &[u8; 4]) -> Option<T> {
    let is_known = bytes.starts_with(magic) && bytes.get(4) == Some(&1);
    is_known.then(|| summed(bytes))?
}

fn ec_header(bytes: &[u8]) -> Option<EcHeader> {
    parse_header(bytes, b"UBI#")
}

/// Returns whether `head` is the start of an erase block.
pub fn is_header(head: &[u8]) -> bool {
    ec_header(head).is_some()
}

/// Reads the headers of all erase blocks, and the volume table.
pub fn open(source: &dyn ReadAt, limits: &Limits) -> Result<Disk> {
    let mut held = Held::new(limits);
    let flash = Flash::of(source)?;
    let blocks = flash.blocks(&mut held)?;
    let records = flash.table(&blocks)?;
    let mut map = Map::new([0xff; 4]);
    let mut volumes = Vec::new();
    for (number, record) in records {
        let volume = flash.volume(number, &record, &blocks.by_place, &mut map, &mut held)?;
        volumes.push(volume);
    }
    Ok(Disk {
        kind: DiskKind::Ubi,
        stored_len: blocks.end,
        volumes,
        map,
    })
}

struct Flash<'s> {
    source: &'s dyn ReadAt,
    peb: u64,
    first: EcHeader,
}

/// A logical block and the offset of its data.
#[derive(Clone, Copy, Debug)]
struct Block {
    data: u64,
    vid: VidHeader,
}

/// The logical blocks found, by volume and block number.
#[derive(Default)]
struct Blocks {
    by_place: BTreeMap<(u32, u32), Block>,
    end: u64,
}

impl<'s> Flash<'s> {
    /// Detects the size of the erase blocks: the smallest distance between the first headers.
    fn of(source: &'s dyn ReadAt) -> Result<Self> {
        let mut head = [0; 64];
        read(source, 0, &mut head)?;
        let first = ec_header(&head).ok_or_else(|| Check::OneBlock.at(FORMAT, 0))?;
        let key = |header: &EcHeader| (header.vid_hdr_offset, header.data_offset, header.image_seq);
        let (mut at, mut last, mut peb) = (STEP, 0, None::<u64>);
        let mut left = SAMPLES;
        while left > 0 && at - last <= PEB_MAX && at + 64 <= source.len() {
            read(source, at, &mut head)?;
            if ec_header(&head).is_some_and(|it| key(&it) == key(&first)) {
                peb = Some(peb.map_or(at, |peb| peb.min(at - last)));
                (last, left) = (at, left - 1);
            }
            at += STEP;
        }
        let peb = peb.ok_or_else(|| Check::OneBlock.at(FORMAT, 0))?;
        let (vid, data) = (first.vid_hdr_offset.get(), first.data_offset.get());
        let is_valid = vid >= 64 && u64::from(vid) + 64 <= u64::from(data) && u64::from(data) < peb;
        if is_valid {
            Ok(Self { source, peb, first })
        } else {
            Err(Check::Geometry { peb, vid, data }.at(FORMAT, 0))
        }
    }

    /// Returns the number of data bytes in an erase block.
    fn leb(&self) -> u64 {
        self.peb - u64::from(self.first.data_offset.get())
    }

    /// Reads the headers of all erase blocks, up to the start of another flash or of other data.
    fn blocks(&self, held: &mut Held) -> Result<Blocks> {
        let mut found = Blocks::default();
        let (vid_at, data_at) = (self.first.vid_hdr_offset, self.first.data_offset);
        let seq = self.first.image_seq;
        let mut at = 0;
        while at + self.peb <= self.source.len() && at - found.end <= STRANGE * self.peb {
            let mut head = [0; 64];
            read(self.source, at, &mut head)?;
            let header = ec_header(&head);
            if let Some(header) = header {
                if header.image_seq != seq && header.image_seq != 0 && seq != 0 {
                    break;
                }
                if (header.vid_hdr_offset, header.data_offset) != (vid_at, data_at) {
                    let (vid, data) = (header.vid_hdr_offset.get(), header.data_offset.get());
                    return Err(Check::OtherGeometry { vid, data }.at(FORMAT, at));
                }
            }
            let is_erased = head == [0xff; 64] && found.end == at;
            let mut vid = [0; 64];
            read(self.source, at + u64::from(vid_at.get()), &mut vid)?;
            // The erase counter header may be lost while the volume header is sound.
            let vid: Option<VidHeader> = parse_header(&vid, b"UBI!");
            if header.is_some() || vid.is_some() || is_erased {
                found.end = at + self.peb;
            }
            if let Some(vid) = vid {
                let data = at + u64::from(data_at.get());
                self.add(Block { data, vid }, &mut found, held)?;
            }
            at += self.peb;
        }
        Ok(found)
    }

    /// Adds a block, or replaces an older copy of it.
    fn add(&self, block: Block, found: &mut Blocks, held: &mut Held) -> Result<()> {
        let place = (block.vid.vol_id.get(), block.vid.lnum.get());
        let Some(other) = found.by_place.get(&place).copied() else {
            // The tree's memory is about twice that of its entries.
            held.add(2 * size_of::<(u32, u32, Block)>())?;
            found.by_place.insert(place, block);
            return Ok(());
        };
        let (newer, older) = if block.vid.sqnum.get() > other.vid.sqnum.get() {
            (block, other)
        } else {
            (other, block)
        };
        // A copy made by wear-levelling counts only if it was written completely.
        let is_whole = newer.vid.copy_flag == 0 || self.has_crc(&newer)?;
        found
            .by_place
            .insert(place, if is_whole { newer } else { older });
        Ok(())
    }

    /// Returns whether the data of a block matches its CRC-32.
    fn has_crc(&self, block: &Block) -> Result<bool> {
        let len = u64::from(block.vid.data_size.get());
        if len > self.leb() {
            return Ok(false);
        }
        let mut bytes = vec![0; usize_from(len)];
        read(self.source, block.data, &mut bytes)?;
        Ok(crc(&bytes) == block.vid.data_crc.get())
    }

    fn table(&self, blocks: &Blocks) -> Result<Vec<(u32, Record)>> {
        let len = size_of::<Record>();
        let slots = usize_from(self.leb() / u64_from(len)).min(VOLUMES);
        for copy in 0..2 {
            let Some(block) = blocks.by_place.get(&(LAYOUT, copy)) else {
                continue;
            };
            let mut bytes = vec![0; slots * len];
            read(self.source, block.data, &mut bytes)?;
            let records: Option<Vec<Record>> = bytes.chunks_exact(len).map(summed).collect();
            if let Some(records) = records {
                let records = (0..).zip(records);
                return Ok(records.filter(|(_, it)| it.reserved_pebs != 0).collect());
            }
        }
        Err(Check::NoTable.at(FORMAT, 0))
    }

    /// Adds a volume to the map, after the volumes before it.
    fn volume(
        &self,
        number: u32,
        record: &Record,
        blocks: &BTreeMap<(u32, u32), Block>,
        map: &mut Map,
        held: &mut Held,
    ) -> Result<Volume> {
        let wrong = |field, value: u64| {
            let volume = number;
            Err(Check::Record {
                volume,
                field,
                value,
            }
            .at(FORMAT, 0))
        };
        let pad = u64::from(record.data_pad.get());
        let name_len = record.name_len.get();
        let Some(leb) = self.leb().checked_sub(pad).filter(|&leb| leb > 0) else {
            return wrong("padding", pad);
        };
        let Some(name) = record.name.get(..usize::from(name_len)) else {
            return wrong("the length of the name", name_len.into());
        };
        let own = || blocks.range((number, 0)..=(number, u32::MAX));
        let is_static = match record.vol_type {
            STATIC => true,
            DYNAMIC => false,
            other => return wrong("the type", other.into()),
        };
        let count = match own().next() {
            Some((_, first)) if is_static => first.vid.used_ebs.get(),
            None if is_static => 0,
            _ => record.reserved_pebs.get(),
        };
        let offset = map.len();
        let too_long = || Check::TooLong.at(FORMAT, 0);
        // Fewer than 2^32 blocks of less than 2^24 bytes.
        let most = u64::from(count) * leb;
        let end = offset.checked_add(most);
        end.filter(|end| *end <= Extent::LAST)
            .ok_or_else(too_long)?;
        let (mut next, mut end) = (0, offset);
        for (&(_, lnum), block) in own() {
            let at = block.data;
            if lnum >= count {
                let (volume, leb, most) = (number, lnum, u64::from(count));
                return Err(Check::Outside { volume, leb, most }.at(FORMAT, at));
            }
            let start = offset + u64::from(lnum) * leb;
            if !is_static {
                map.add(start..start + leb, Place::Stored(at), held)?;
                continue;
            }
            let (one, other) = (count, block.vid.used_ebs.get());
            if one != other {
                let volume = number;
                return Err(Check::Count { volume, one, other }.at(FORMAT, at));
            }
            let len = u64::from(block.vid.data_size.get());
            let is_last = lnum + 1 == count;
            if len > leb || (len < leb && !is_last) {
                let (volume, found) = (number, block.vid.data_size.get());
                let check = Check::DataLen {
                    volume,
                    leb: lnum,
                    found,
                    expected: leb,
                };
                return Err(check.at(FORMAT, at));
            }
            map.add(offset + u64::from(next) * leb..start, Place::Missing, held)?;
            let crc = block.vid.data_crc.get();
            map.add(start..start + len, Place::Summed { offset: at, crc }, held)?;
            (next, end) = (lnum + 1, start + len);
        }
        if is_static && next < count {
            map.add(end..offset + most, Place::Missing, held)?;
            end = offset + most;
        }
        if !is_static {
            end = offset + most;
        }
        map.extend(end);
        Ok(Volume {
            number,
            name: name.to_vec(),
            offset,
            len: end - offset,
            is_static,
            is_torn: record.upd_marker != 0,
        })
    }
}
