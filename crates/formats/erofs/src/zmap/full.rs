//! The full index: eight bytes for each cluster.

use super::check::ZmapCheck;
use super::index::{CBLKCNT, ExtentHead, IndexEntry, Kind};

pub const LEN: u64 = 8;
/// Unused bytes between the header and the index.
pub const GAP: u64 = 8;

const KIND: u16 = 0x0003;
const PARTIAL: u16 = 0x8000;

pub fn entry(raw: [u8; 8], cluster: u64) -> Result<IndexEntry, ZmapCheck> {
    let [a0, a1, o0, o1, d0, d1, _, _] = raw;
    let advice = u16::from_le_bytes([a0, a1]);
    let flags = advice & !(KIND | PARTIAL);
    if flags != 0 {
        return Err(ZmapCheck::EntryFlags { cluster, flags });
    }
    let Some(kind) = Kind::of(u32::from(advice & KIND)) else {
        let delta = u16::from_le_bytes([d0, d1]);
        return Ok(if delta & CBLKCNT == 0 {
            IndexEntry::Inner {
                back: u64::from(delta),
                blocks: None,
            }
        } else {
            IndexEntry::Inner {
                back: 1,
                blocks: Some(u64::from(delta & !CBLKCNT)),
            }
        });
    };
    Ok(IndexEntry::Head(ExtentHead {
        kind,
        offset: u64::from(u16::from_le_bytes([o0, o1])),
        partial: advice & PARTIAL != 0,
    }))
}

pub const fn block(raw: [u8; 8]) -> u32 {
    let [_, _, _, _, b0, b1, b2, b3] = raw;
    u32::from_le_bytes([b0, b1, b2, b3])
}
