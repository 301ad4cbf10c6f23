//! Claims of chunks, so that each is fetched once however many processes want it.
//!
//! The protocol, for each blob:
//! 1. A process that wants missing chunks locks the file `claims` and reads it. It skips chunks
//!    that a living process has claimed, and chunks that are stored according to `records`. It adds
//!    claims for the others and unlocks the file.
//! 2. It fetches and stores its chunks: data, then records. Then it removes its claims.
//! 3. A process that waits for claimed chunks polls `records`. If a claim disappears before its
//!    chunks are stored, the process claims them itself.
//!
//! A claim names a holder, which is a process. It is alive as long as it holds the lock on its file
//! in `holders`; the kernel drops the lock when the process dies. Claims of dead holders are
//! ignored, and the next claim removes them.
//!
//! Claims only save work. If the file is damaged, full, or locked for too long, chunks are fetched
//! twice.

use std::collections::HashMap;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::holder::Holder;
use crate::lock::{LockFile, LockGuard};
use crate::records::read_up_to;
use crate::{CacheError, Result, runs};

const ENTRY: usize = 32;
/// Most claims of one blob at a time.
const ENTRIES: usize = 4096;
const MAGIC: u64 = 0x6d69_616c_636b_7266;

#[derive(Clone, Debug, PartialEq, Eq)]
struct ClaimedRun {
    run: Range<u64>,
    holder: u64,
}

#[derive(Debug)]
pub(crate) struct Claims {
    lock: LockFile,
}

#[derive(Debug, Default)]
pub(crate) struct ClaimedChunks {
    pub(crate) mine: Vec<Range<u64>>,
    pub(crate) busy: Vec<Range<u64>>,
}

impl Claims {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let lock = LockFile::open(path)?;
        Ok(Self { lock })
    }

    /// Claims the chunks of `wanted` that no living holder has claimed and that `missing` still
    /// finds missing. Calls `missing` under the lock, so that no other process can claim meanwhile.
    pub(crate) fn take(
        &self,
        wanted: &[Range<u64>],
        holder: &Holder,
        missing: impl Fn(&Range<u64>) -> Result<Vec<Range<u64>>>,
    ) -> Result<ClaimedChunks> {
        let guard = match self.lock.lock() {
            Ok(guard) => Some(guard),
            Err(error @ CacheError::Locked { .. }) => {
                tracing::warn!(%error, "fetching without a claim");
                None
            }
            Err(error) => return Err(error),
        };
        let mut entries = self.read()?;
        let mut alive = HashMap::new();
        entries.retain(|entry| {
            let known = alive.entry(entry.holder);
            *known.or_insert_with(|| holder.is_alive(entry.holder))
        });
        let claimed: Vec<_> = entries.iter().map(|entry| entry.run.clone()).collect();
        let mut taken = ClaimedChunks::default();
        for run in wanted {
            let (free, busy) = runs::split(run, &claimed);
            for run in free {
                taken.mine.extend(missing(&run)?);
            }
            taken.busy.extend(busy);
        }
        if let Some(guard) = &guard {
            entries.extend(taken.mine.iter().map(|run| ClaimedRun {
                run: run.clone(),
                holder: holder.id(),
            }));
            self.write(&entries, guard)?;
        }
        Ok(taken)
    }

    pub(crate) fn release(&self, mine: &[Range<u64>], holder: u64) -> Result<()> {
        if mine.is_empty() {
            return Ok(());
        }
        let guard = self.lock.lock()?;
        let mut entries = self.read()?;
        for run in mine {
            let ours = |entry: &ClaimedRun| entry.holder == holder && entry.run == *run;
            if let Some(at) = entries.iter().position(ours) {
                entries.swap_remove(at);
            }
        }
        self.write(&entries, &guard)
    }

    /// Returns whether a living process has claimed the chunk. Does not lock the file, so a
    /// concurrent write can make the result wrong; the caller notices when it tries to claim.
    pub(crate) fn is_held(&self, chunk: u64, holder: &Holder) -> Result<bool> {
        let entries = self.read()?;
        let mut covering = entries.iter().filter(|entry| entry.run.contains(&chunk));
        Ok(covering.any(|entry| holder.is_alive(entry.holder)))
    }

    fn read(&self) -> Result<Vec<ClaimedRun>> {
        // Enough for the usual number of claims.
        let mut bytes = vec![0; ENTRY * 128];
        let failed = CacheError::io("read", self.lock.path());
        let mut got = read_up_to(self.lock.file(), &mut bytes, 0).map_err(&failed)?;
        if got == bytes.len() {
            bytes.resize(ENTRY * ENTRIES, 0);
            got = read_up_to(self.lock.file(), &mut bytes, 0).map_err(&failed)?;
        }
        let (entries, _torn) = bytes.get(..got).unwrap_or_default().as_chunks::<ENTRY>();
        Ok(entries.iter().filter_map(decode).collect())
    }

    fn write(&self, entries: &[ClaimedRun], _locked: &LockGuard<'_>) -> Result<()> {
        let entries = entries.iter().take(ENTRIES);
        let bytes: Vec<u8> = entries.flat_map(encode).collect();
        let file = self.lock.file();
        let written = file
            .write_all_at(&bytes, 0)
            .and_then(|()| file.set_len(forerun_io::u64_from(bytes.len())));
        written.map_err(CacheError::io("write", self.lock.path()))
    }
}

fn encode(entry: &ClaimedRun) -> [u8; ENTRY] {
    let (start, end) = (entry.run.start, entry.run.end);
    let fields = [start, end, entry.holder, check(start, end, entry.holder)];
    let mut bytes = [0; ENTRY];
    for (slot, field) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(fields) {
        *slot = field.to_le_bytes();
    }
    bytes
}

fn decode(bytes: &[u8; ENTRY]) -> Option<ClaimedRun> {
    let mut fields = bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|field| u64::from_le_bytes(*field));
    let (start, end, holder) = (fields.next()?, fields.next()?, fields.next()?);
    let right = fields.next()? == check(start, end, holder) && start < end;
    right.then_some(ClaimedRun {
        run: start..end,
        holder,
    })
}

/// Corrects the check words of entries, so that a fuzzer gets past them.
#[cfg(feature = "fuzzing")]
pub(crate) fn seal(bytes: &mut [u8]) {
    for entry in bytes.as_chunks_mut::<ENTRY>().0 {
        let fields = entry.as_chunks::<8>().0;
        let [start, end, holder] =
            [0, 1, 2].map(|at| fields.get(at).copied().map_or(0, u64::from_le_bytes));
        entry[24..].copy_from_slice(&check(start, end, holder).to_le_bytes());
    }
}

const fn check(start: u64, end: u64, holder: u64) -> u64 {
    MAGIC ^ start.rotate_left(17) ^ end.rotate_left(39) ^ holder
}
