//! An open volume: its description, and reads of metadata. It does not change while the volume is
//! open.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use forerun_io::{Limits, ReadAt, u64_from, usize_from};
use forerun_vfs::{Error, Ownership, Result};

use crate::boot::Boot;
use crate::chain::Chain;
use crate::name;
use crate::ondisk::{ENTRY_LEN, MAX_SLOTS, volume_flag};
use crate::upcase::Upcase;

pub struct Volume {
    pub boot: Boot,
    pub source: Arc<dyn ReadAt>,
    pub limits: Limits,
    pub ownership: Ownership,
    pub upcase: Upcase,
    pub bitmap: Chain,
    pub guid: Option<[u8; 16]>,
    /// `VolumeDirty` was set when the volume was opened, so moves of sets may be incomplete.
    pub recovers: bool,
    /// The backup boot region was used.
    pub from_backup: bool,
    /// Rescue mode: the driver skips damage and reads what it can.
    pub rescue: bool,
    /// Damage that was skipped when the volume was opened.
    pub passed_over: Vec<Error>,
    /// Type of a critical entry of the root that this driver does not know.
    pub unknown_entry: Option<u8>,
    hasher: RandomState,
}

impl Volume {
    /// Returns a volume of which only the boot sector is known: no bitmap, and an up-case table for
    /// ASCII. Opening and repair then read the rest.
    pub(crate) fn bare(source: Arc<dyn ReadAt>, limits: Limits, boot: Boot) -> Self {
        Self {
            recovers: boot.flags & volume_flag::VOLUME_DIRTY != 0,
            boot,
            source,
            limits,
            ownership: Ownership::default(),
            upcase: Upcase::ascii(),
            bitmap: Chain::default(),
            guid: None,
            from_backup: false,
            rescue: false,
            passed_over: Vec::new(),
            unknown_entry: None,
            hasher: RandomState::new(),
        }
    }

    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let len = out.len();
        let read = self.source.read_exact_at(offset, out);
        read.map_err(|error| Error::io(offset, len, error))
    }

    /// Returns the key of a name in directory indexes. Names that differ only in case share a key.
    /// The hash has a random seed, so that no image can contain many names that collide.
    pub fn name_key(&self, name: &[u16]) -> u32 {
        let mut hasher = self.hasher.build_hasher();
        for &unit in name {
            hasher.write_u16(self.upcase.unit(unit));
        }
        let [a, b, c, d, ..] = hasher.finish().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Returns the form that all spellings of a name share: upper case, no dots at the end.
    pub fn fold(&self, name: &[u8]) -> Vec<u8> {
        let Some(units) = name::to_units(name) else {
            return name.to_vec();
        };
        let dots = units.iter().rev().take_while(|&&unit| unit == 0x2E).count();
        match &units[..units.len() - dots] {
            [] => name.to_vec(),
            kept => name::to_bytes(&self.upcase.name(kept)),
        }
    }

    /// Returns offset and length of the contiguous ranges that hold `len` bytes of a chain from
    /// `from` on.
    pub fn pieces(&self, chain: &Chain, from: u64, len: u64) -> Vec<(u64, u64)> {
        let size = self.boot.cluster_size();
        let mut pieces = Vec::new();
        let (mut at, end) = (from, from + len);
        while at < end {
            let index = u32::try_from(at / size).ok();
            let Some((cluster, count)) = index.and_then(|index| chain.locate(index)) else {
                break;
            };
            let inside = at % size;
            let room = u64::from(count) * size - inside;
            let now = room.min(end - at);
            pieces.push((self.boot.cluster_at(cluster) + inside, now));
            at += now;
        }
        pieces
    }

    pub fn read_chain(&self, chain: &Chain, from: u64, out: &mut [u8]) -> Result<()> {
        let mut out = out;
        for (offset, len) in self.pieces(chain, from, u64_from(out.len())) {
            let (now, rest) = out.split_at_mut(usize_from(len));
            self.read(offset, now)?;
            out = rest;
        }
        Ok(())
    }

    /// Returns the number of slots of a directory with these clusters.
    pub fn slots(&self, chain: &Chain) -> u32 {
        let len = u64::from(chain.clusters()) << self.boot.cluster_bits;
        u32::try_from(len / ENTRY_LEN).map_or(MAX_SLOTS, |slots| slots.min(MAX_SLOTS))
    }

    pub fn count_free(&self) -> Result<u64> {
        let (mut at, mut used) = (0_u64, 0_u64);
        let len = u64::from(self.boot.clusters).div_ceil(8);
        let mut bytes = vec![0; usize_from(len.min(1 << 20))];
        while at < len {
            let now = usize_from((len - at).min(1 << 20));
            let now = &mut bytes[..now];
            self.read_chain(&self.bitmap, at, now)?;
            if at + u64_from(now.len()) == len
                && let (inside @ 1.., Some(last)) = (self.boot.clusters % 8, now.last_mut())
            {
                // Bits after the last cluster mean nothing.
                *last &= (1_u8 << inside) - 1;
            }
            used += now
                .iter()
                .map(|byte| u64::from(byte.count_ones()))
                .sum::<u64>();
            at += u64_from(now.len());
        }
        Ok(u64::from(self.boot.clusters) - used)
    }
}
