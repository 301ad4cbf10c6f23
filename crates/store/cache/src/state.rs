//! The state file: which chunks are durable. A crash leaves either the old state or the new one.
//!
//! The file is a list of pairs of 4 KiB blocks. Both blocks of a pair hold a bit for each of the
//! same 32,256 chunks, a sequence number, and a digest of the block. The valid block with the
//! higher number counts. A change overwrites the other block and is synced before the pair changes
//! again, so a torn write loses only that change.
//!
//! The caller sets a bit only after it has verified and synced the chunk's bytes. Changes of
//! several processes are merged under a lock on the file.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;

use forerun_io::{Unpoisoned, usize_from};

use crate::bitmap::Bitmap;
use crate::lock::LockFile;
use crate::records::read_up_to;
use crate::{CacheError, Digest, Result};

const BLOCK: usize = 4096;
const BLOCK_U64: u64 = 4096;
const HEAD: usize = 64;
/// Number of chunks in a block; a multiple of 64.
const CHUNKS: u64 = 8 * (4096 - 64);
const MAGIC: [u8; 8] = *b"frstate1";

#[derive(Clone)]
struct StateBlock {
    sequence: u64,
    /// Position in the pair, 0 or 1.
    slot: u64,
    bits: [u8; BLOCK - HEAD],
}

#[derive(Debug)]
pub(crate) struct StateFile {
    lock: LockFile,
    chunks: u64,
    /// For each pair, the last sequence number that this process has written and synced.
    synced: Mutex<HashMap<u64, u64>>,
}

impl StateFile {
    /// Opens or creates the file for an image with this number of chunks.
    pub(crate) fn open(path: &Path, chunks: u64) -> Result<Self> {
        Ok(Self {
            lock: LockFile::open(path)?,
            chunks,
            synced: Mutex::default(),
        })
    }

    /// Returns the durable chunks. A pair without a valid block has none.
    pub(crate) fn load(&self) -> io::Result<Bitmap> {
        let durable = Bitmap::new(self.chunks);
        for index in 0..self.chunks.div_ceil(CHUNKS) {
            let Some(block) = self.newest(index)? else {
                continue;
            };
            let (words, _) = block.bits.as_chunks::<8>();
            for (word, bytes) in (index * CHUNKS / 64..).zip(words) {
                durable.set_word(word, u64::from_le_bytes(*bytes));
            }
        }
        Ok(durable)
    }

    /// Sets and clears bits durably. The caller must have synced the chunks whose bits are set.
    pub(crate) fn change(&self, set: &[Range<u64>], clear: &[Range<u64>]) -> Result<()> {
        let guard = self.lock.lock()?;
        let failed = CacheError::io("write", self.lock.path());
        self.change_locked(set, clear).map_err(failed)?;
        drop(guard);
        Ok(())
    }

    fn change_locked(&self, set: &[Range<u64>], clear: &[Range<u64>]) -> io::Result<()> {
        let file = self.lock.file();
        let mut synced = self.synced.lock().unpoisoned();
        let mut changed = Vec::new();
        for index in touched(set, clear, self.chunks) {
            let old = self.newest(index)?;
            // Another process wrote the newer block, and may have died before syncing it. The older
            // block, which is overwritten next, may then be the only durable one: sync first.
            if let Some(old) = &old
                && synced.get(&index) != Some(&old.sequence)
            {
                file.sync_data()?;
            }
            let mut new = old.unwrap_or(StateBlock {
                sequence: 0,
                slot: 1,
                bits: [0; BLOCK - HEAD],
            });
            let before = new.bits;
            apply(&mut new.bits, index, set, true);
            apply(&mut new.bits, index, clear, false);
            if new.bits == before {
                continue;
            }
            new.slot ^= 1;
            new.sequence += 1;
            file.write_all_at(&encode(index, &new), offset(index, new.slot))?;
            changed.push((index, new.sequence));
        }
        if !changed.is_empty() {
            file.sync_data()?;
            synced.extend(changed);
        }
        Ok(())
    }

    /// Returns the valid block of a pair with the higher sequence number.
    fn newest(&self, index: u64) -> io::Result<Option<StateBlock>> {
        let mut pair = [0; 2 * BLOCK];
        let got = read_up_to(self.lock.file(), &mut pair, offset(index, 0))?;
        let (slots, _) = pair.get(..got).unwrap_or_default().as_chunks::<BLOCK>();
        let valid = (0..)
            .zip(slots)
            .filter_map(|(slot, bytes)| decode(index, slot, bytes));
        Ok(valid.max_by_key(|block| block.sequence))
    }
}

const fn offset(index: u64, slot: u64) -> u64 {
    (index * 2 + slot) * BLOCK_U64
}

/// Returns the numbers of the pairs that hold any of these chunks.
fn touched(set: &[Range<u64>], clear: &[Range<u64>], chunks: u64) -> Vec<u64> {
    let mut indexes: Vec<u64> = set
        .iter()
        .chain(clear)
        .map(|run| run.start..run.end.min(chunks))
        .filter(|run| !run.is_empty())
        .flat_map(|run| run.start / CHUNKS..run.end.div_ceil(CHUNKS))
        .collect();
    indexes.sort_unstable();
    indexes.dedup();
    indexes
}

fn apply(bits: &mut [u8], index: u64, runs: &[Range<u64>], value: bool) {
    let first = index * CHUNKS;
    for run in runs {
        for chunk in run.start.max(first)..run.end.min(first + CHUNKS) {
            let bit = chunk - first;
            if let Some(byte) = bits.get_mut(usize_from(bit / 8)) {
                let mask = 1 << (bit % 8);
                *byte = if value { *byte | mask } else { *byte & !mask };
            }
        }
    }
}

fn encode(index: u64, block: &StateBlock) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&index.to_le_bytes());
    bytes[16..24].copy_from_slice(&block.sequence.to_le_bytes());
    bytes[HEAD..].copy_from_slice(&block.bits);
    let digest = Digest::of(&bytes);
    bytes[32..HEAD].copy_from_slice(&digest.0);
    bytes
}

fn decode(index: u64, slot: u64, bytes: &[u8; BLOCK]) -> Option<StateBlock> {
    let mut plain = *bytes;
    plain[32..HEAD].fill(0);
    let number = |at: usize| {
        plain
            .get(at..)?
            .first_chunk()
            .copied()
            .map(u64::from_le_bytes)
    };
    let sequence = number(16)?;
    // Cheap tests first: most blocks of a sparse file are zeros.
    let right = plain.starts_with(&MAGIC)
        && number(8) == Some(index)
        && sequence < u64::MAX
        && bytes[32..HEAD] == Digest::of(&plain).0;
    right.then(|| {
        let mut bits = [0; BLOCK - HEAD];
        bits.copy_from_slice(&plain[HEAD..]);
        StateBlock {
            sequence,
            slot,
            bits,
        }
    })
}

/// Corrects the digests of blocks, so that a fuzzer gets past them.
#[cfg(feature = "fuzzing")]
pub(crate) fn seal(bytes: &mut [u8]) {
    for block in bytes.as_chunks_mut::<BLOCK>().0 {
        block[..8].copy_from_slice(&MAGIC);
        block[32..HEAD].fill(0);
        let digest = Digest::of(block);
        block[32..HEAD].copy_from_slice(&digest.0);
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    const MANY: u64 = 3 * CHUNKS + 100;

    fn durable(state: &StateFile) -> Vec<Range<u64>> {
        state.load().unwrap().runs(0..MANY, true)
    }

    #[test]
    fn changes_of_several_are_merged_across_blocks() {
        let dir = forerun_testkit::temp_dir("state");
        let path = dir.path().join("state");
        let (one, two) = (
            StateFile::open(&path, MANY).unwrap(),
            StateFile::open(&path, MANY).unwrap(),
        );
        assert_eq!(durable(&one), []);
        one.change(&[10..20, CHUNKS - 1..CHUNKS + 1], &[]).unwrap();
        two.change(&[20..30, 2 * CHUNKS..MANY + 500], &[]).unwrap();
        one.change(&[0..1], &[15..16]).unwrap();
        let expected = [
            0..1,
            10..15,
            16..30,
            CHUNKS - 1..CHUNKS + 1,
            2 * CHUNKS..MANY,
        ];
        for state in [&one, &two, &StateFile::open(&path, MANY).unwrap()] {
            assert_eq!(durable(state), expected);
        }
        two.change(&[], &[0..MANY]).unwrap();
        assert_eq!(durable(&one), []);
        // Fewer chunks than the file has bits for.
        one.change(&[0..MANY], &[]).unwrap();
        let few = StateFile::open(&path, 5).unwrap();
        assert_eq!(few.load().unwrap().count(), 5);
    }

    #[test]
    fn a_change_never_overwrites_the_copy_that_counts() {
        let dir = forerun_testkit::temp_dir("state");
        let path = dir.path().join("state");
        let state = StateFile::open(&path, MANY).unwrap();
        let mut slots = Vec::new();
        for chunk in 0..6 {
            state
                .change(std::slice::from_ref(&(chunk..chunk + 1)), &[])
                .unwrap();
            slots.push(state.newest(0).unwrap().unwrap().slot);
        }
        assert_eq!(slots, [0, 1, 0, 1, 0, 1]);
        // A change without effect is not written.
        state.change(&[0..6], &[100..200]).unwrap();
        assert_eq!(state.newest(0).unwrap().unwrap().sequence, 6);
    }

    #[test]
    fn blocks_of_other_places_and_without_successors_do_not_count() {
        let block = StateBlock {
            sequence: 5,
            slot: 0,
            bits: [0xff; BLOCK - HEAD],
        };
        let bytes = encode(3, &block);
        assert!(decode(3, 0, &bytes).is_some() && decode(2, 0, &bytes).is_none());
        for at in (0..BLOCK).step_by(7) {
            let mut bad = bytes;
            bad[at] ^= 4;
            assert!(decode(3, 0, &bad).is_none(), "{at}");
        }
        let last = StateBlock {
            sequence: u64::MAX,
            ..block
        };
        assert!(decode(3, 0, &encode(3, &last)).is_none());
    }
}
