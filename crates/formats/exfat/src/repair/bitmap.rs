//! Compares the allocation bitmap with the claimed clusters, and repairs the differences.

use std::rc::Rc;

use forerun_vfs::Result;

use super::lost::{self, Lost};
use super::report::Kind;
use super::room::Free;
use super::work::{FREE, Work, commit};
use crate::bits::Bits;
use crate::chain::Chain;
use crate::error::Check;
use crate::ondisk::FIRST_CLUSTER;

/// Dirty bytes above which frees are committed.
const MOST_DIRTY: u64 = 16 << 20;

/// First cluster and count.
type MismarkedRun = (u32, u32);

/// Marks claimed clusters used.
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

/// Frees lost clusters, or makes files of them.
pub fn give_back(work: &mut Work<'_, '_>, root: &Chain) -> Result<()> {
    let is_certain = work.desk.is_certain();
    let keeps = is_certain && (work.keeps_lost || work.desk.gave_up);
    let has_room = !keeps || {
        let lost = leaked(work, |_, _, _| Ok(true))?;
        Lost::of(&Rc::clone(&work.volume), lost)?.has_room(work, root)?
    };
    // Damage that this round repairs may have hidden free space.
    let is_settled = work.desk.repaired == 0 && !work.again;
    if !has_room && !is_settled && !work.dry {
        work.again = true;
        return commit(&work.back, &[FREE]);
    }
    let has_room = has_room || !is_settled;
    let mut kept = false;
    let lost = leaked(work, |work, first, count| {
        let check = if has_room {
            Check::Leaked { first, count }
        } else {
            Check::NoRoomToKeep { first, count }
        };
        let position = work.bit_at(first).map_or(0, |(at, _)| at);
        if !is_certain || !has_room {
            // Not certain: they may belong to a file or directory that could not be read.
            work.leave(Kind::Leaked, None, check, position);
            return Ok(false);
        }
        let remedy = if keeps {
            "keep them as files"
        } else {
            "mark them free"
        };
        let yes = work.ask(Kind::Leaked, None, (check, position), remedy);
        kept |= yes && keeps;
        if yes && !keeps {
            for cluster in first..first + count {
                work.mark_cluster(cluster, false)?;
            }
            if work.back.dirty_bytes() > MOST_DIRTY {
                commit(&work.back, &[FREE])?;
            }
        }
        Ok(yes)
    })?;
    if kept {
        let lost = Lost::of(&Rc::clone(&work.volume), lost)?;
        if !lost::keep(work, root, &lost)? {
            work.desk.undo(Kind::Leaked);
        }
    }
    commit(&work.back, &[FREE])
}

/// Returns the lost clusters in the runs that `wants` accepts.
fn leaked(
    work: &mut Work<'_, '_>,
    mut wants: impl FnMut(&mut Work<'_, '_>, u32, u32) -> Result<bool>,
) -> Result<Bits> {
    let volume = Rc::clone(&work.volume);
    let mut free = Free::new(&volume);
    let mut lost = Bits::new(volume.boot.clusters)?;
    let mut at = FIRST_CLUSTER;
    while let Some((first, count)) = next_run(work, &mut free, &mut at, true)? {
        if wants(work, first, count)? {
            (first..first + count).for_each(|cluster| lost.set(cluster));
        }
    }
    Ok(lost)
}

/// Returns the next run of lost clusters (`leaked`), or of claimed clusters that are marked free.
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
                *at = cluster + 8;
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
        *at = cluster + 1;
    }
    Ok(run)
}
