//! Comparison of the allocation bitmap with the clusters that were claimed, and repair of the differences.

use std::rc::Rc;

use forerun_vfs::Result;

use super::bits::Bits;
use super::lost;
use super::report::Kind;
use super::room::Free;
use super::work::{FREE, Work, commit};
use crate::chain::Chain;
use crate::error::Check;
use crate::ondisk::FIRST_CLUSTER;

/// Dirty bytes above which frees are committed.
const MOST_DIRTY: u64 = 16 << 20;

/// A run of clusters: the first, and their number.
type MismarkedRun = (u32, u32);

/// Marks claimed clusters used.
///
/// # Errors
/// `Io`.
pub fn mark_used(work: &mut Work<'_, '_>) -> Result<()> {
    let volume = Rc::clone(&work.volume);
    let mut free = Free::new(&volume);
    let mut at = FIRST_CLUSTER;
    while let Some((first, count)) = next_run(work, &mut free, &mut at, false)? {
        let check = Check::used_free(first, count);
        let position = work.bit_at(first).map_or(0, |(at, _)| at);
        if work.ask(Kind::UsedFree, None, (check, position), "mark them used") {
            for cluster in first..first + count {
                work.mark_cluster(cluster, true)?;
            }
        }
    }
    Ok(())
}

/// Frees clusters that belong to nothing, or makes files of them.
///
/// # Errors
/// `Io`, `Write`, `Limit`.
pub fn give_back(work: &mut Work<'_, '_>, root: &Chain) -> Result<()> {
    let volume = Rc::clone(&work.volume);
    let mut free = Free::new(&volume);
    let keeps = work.keeps_lost || work.desk.gave_up;
    let mut kept: Option<Bits> = None;
    let mut at = FIRST_CLUSTER;
    while let Some((first, count)) = next_run(work, &mut free, &mut at, true)? {
        let check = Check::Leaked { first, count };
        let position = work.bit_at(first).map_or(0, |(at, _)| at);
        if !work.desk.is_certain() {
            // They may belong to a file or directory that could not be read.
            work.leave(Kind::Leaked, None, check, position);
            continue;
        }
        let remedy = match keeps {
            true => "keep them as files",
            false => "mark them free",
        };
        if !work.ask(Kind::Leaked, None, (check, position), remedy) {
            continue;
        }
        if keeps && kept.is_none() {
            kept = Some(Bits::new(volume.boot.clusters)?);
        }
        for cluster in first..first + count {
            match &mut kept {
                Some(kept) => kept.set(cluster),
                None => work.mark_cluster(cluster, false)?,
            }
        }
        if work.back.dirty_bytes() > MOST_DIRTY {
            commit(&work.back, &[FREE])?;
        }
    }
    if let Some(kept) = kept
        && !lost::keep(work, root, kept)?
    {
        work.desk.undo(Kind::Leaked);
    }
    commit(&work.back, &[FREE])
}

/// Returns the next run of clusters that are marked used and belong to nothing (`leaked`), or of those
/// that are claimed and marked free.
fn next_run(
    work: &Work<'_, '_>,
    free: &mut Free<'_>,
    at: &mut u32,
    leaked: bool,
) -> Result<Option<MismarkedRun>> {
    let end = work.claimed.all().end;
    let mut run: Option<MismarkedRun> = None;
    while *at < end {
        let cluster = *at;
        let index = cluster - FIRST_CLUSTER;
        if run.is_none() && index.is_multiple_of(8) {
            let byte = u64::from(index / 8);
            if work.claimed.byte(byte) == free.byte(byte)? {
                *at = cluster.saturating_add(8);
                continue;
            }
        }
        let (used, claimed) = (free.is_used(cluster)?, work.claimed.has(cluster));
        let wanted = used != claimed && used == leaked;
        let wanted = wanted && !(leaked && free.is_bad(cluster)?);
        match (&mut run, wanted) {
            (Some((_, count)), true) => *count += 1,
            (Some(_), false) => break,
            (None, true) => run = Some((cluster, 1)),
            (None, false) => {}
        }
        *at = cluster.saturating_add(1);
    }
    Ok(run)
}
