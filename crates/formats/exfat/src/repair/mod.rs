//! Repairs volumes: corrects as many findings of `check` as possible, and loses no reachable data.
//!
//! A repair works on bytes, because the driver refuses damaged volumes. It runs in rounds over the
//! volume. Each round finds damage, asks, and writes. The last round finds nothing that it may
//! repair; its findings stay unrepaired.
//!
//! `work.rs` describes the order of writes: after a power cut at any moment, another run repairs
//! the volume to the same files. `VolumeDirty` is set before the first write. It is cleared after
//! the last write if the volume is then consistent.

mod bitmap;
mod bitmap_entry;
mod boot;
mod data;
mod extent;
mod fields;
mod lost;
mod names;
mod report;
mod room;
mod salvage;
mod secondary;
mod slots;
mod system;
mod tree;
mod unnamed;
mod work;

use std::sync::Arc;

use forerun_io::{BlockDevice, Group, Observer, ReadAt, WriteBack, u64_from};
use forerun_vfs::repair::Repair;
pub use forerun_vfs::repair::{Answer, RepairOptions};
use forerun_vfs::{Error, Result};

use crate::boot::{Boot, FLAGS_AT, PERCENT_AT, PERCENT_UNKNOWN};
use crate::error::Check;
use crate::ondisk::volume_flag;
use crate::volume::Volume;
use report::Desk;
use work::{BOOT, CLEAR, CUTS, ENTRIES, LINK, MARK, TAKE, Work, commit};

pub use report::{Finding, Kind, Summary};

/// All groups except those that free clusters and clear marks.
const GROUPS: &[Group] = &[BOOT, MARK, TAKE, LINK, ENTRIES, CUTS];
/// Maximum number of rounds. More rounds are unlikely to repair the remaining damage.
const ROUNDS: u32 = 10;

/// The registry entry of the repair of exFAT.
pub const REPAIR: Repair = Repair {
    format: crate::FORMAT.name,
    recognises: has_backup,
    repair: repair_shown,
    after_a_kill,
};

fn repair_shown(
    device: &Arc<dyn BlockDevice>,
    observer: &Arc<Observer>,
    options: &RepairOptions,
    decide: &mut dyn FnMut(&forerun_vfs::repair::Finding) -> Answer,
) -> Result<forerun_vfs::repair::Summary> {
    let decide = &mut |finding: &Finding| decide(&finding.to_shown());
    repair(device, observer, options, decide).map(Summary::into_shown)
}

/// Repairs only the effects of an interrupted commit. Other damage stays, and so does
/// `VolumeDirty`.
fn after_a_kill(
    device: &Arc<dyn BlockDevice>,
    observer: &Arc<Observer>,
    options: &RepairOptions,
) -> Result<forerun_vfs::repair::Summary> {
    let decide = &mut |finding: &Finding| match finding.kind {
        Kind::Leaked
        | Kind::ChainLong
        | Kind::Move
        | Kind::LostEntry
        | Kind::BehindEnd
        | Kind::Percent
        | Kind::Dirty => Answer::Yes,
        _ => Answer::No,
    };
    repair(device, observer, options, decide).map(Summary::into_shown)
}

/// Returns whether the source is a volume with a sound backup boot region, even if the main one is
/// unrecognizable.
#[must_use]
pub fn has_backup(source: &dyn ReadAt) -> bool {
    crate::boot_region::backup_region(source).is_some()
}

/// Repairs the volume on a device that nothing else has open. `decide` gets each finding and
/// answers whether to repair it.
///
/// # Errors
/// [`Error::Unsupported`] and [`Error::ReadOnly`] for volumes that forerun does not change.
/// [`Error::Io`] or [`Error::Write`] if the device fails: the completed writes leave the volume no
/// worse, with `VolumeDirty` set.
pub fn repair(
    device: &Arc<dyn BlockDevice>,
    observer: &Arc<Observer>,
    options: &RepairOptions,
    decide: &mut dyn FnMut(&Finding) -> Answer,
) -> Result<Summary> {
    let back = WriteBack::new(Arc::clone(device), Arc::clone(observer), 8 << 20);
    let back = Arc::new(back);
    let mut desk = Desk::new(decide);
    let mut flags = None;
    for round in 1..=ROUNDS {
        desk.begin();
        let Some(boot) = boot::settle(&back, &mut desk, options.dry_run)? else {
            break;
        };
        let found = *flags.get_or_insert(boot.flags);
        let Some(mut work) = begin(&back, &mut desk, boot, found, options)? else {
            // A boot region may have been repaired.
            commit(&back, &[BOOT])?;
            break;
        };
        one_round(&mut work)?;
        let is_settled = work.desk.repaired == 0 && !work.again;
        if is_settled || work.is_stuck || options.dry_run {
            finish(&mut work, found)?;
            break;
        }
        if round == ROUNDS {
            work.leave(Kind::Unreadable, None, Check::NoEnd, 0);
        }
    }
    Ok(desk.summary)
}

/// Begins a round on the current volume, if it can be changed.
fn begin<'w, 'd>(
    back: &Arc<WriteBack>,
    desk: &'w mut Desk<'d>,
    mut boot: Boot,
    flags: u16,
    options: &RepairOptions,
) -> Result<Option<Work<'w, 'd>>> {
    if let Some(revision) = boot.unknown_revision() {
        return Err(Error::Unsupported(revision));
    }
    boot.fit(ReadAt::len(&**back));
    if boot.fats > 1 {
        return Err(Error::ReadOnly("it has two FATs (TexFAT)".into()));
    }
    let (len, image) = (boot.volume_len, ReadAt::len(&**back));
    if len > image {
        let error = Check::ShortImage { len, image }.at(None, 0);
        desk.leave(Kind::Unreadable, None, error);
        return Ok(None);
    }
    let source: Arc<dyn ReadAt> = Arc::<WriteBack>::clone(back);
    let mut volume = Volume::bare(source, options.limits.clone(), boot);
    // The flag as before the first round, which may have set it.
    volume.recovers = flags & volume_flag::VOLUME_DIRTY != 0;
    let back = Arc::clone(back);
    Work::new(volume, back, desk, options).map(Some)
}

fn one_round(work: &mut Work<'_, '_>) -> Result<()> {
    let Some(root) = system::settle(work)? else {
        return work.settle();
    };
    tree::walk(work, root.clone())?;
    work.catch_up()?;
    bitmap::mark_used(work)?;
    work.settle()?;
    bitmap::give_back(work, &root)
}

/// Repairs the percentage in use and the flags of the boot sector, after everything else.
fn finish(work: &mut Work<'_, '_>, found: u16) -> Result<()> {
    let flags = work.volume.boot.flags;
    if found & volume_flag::MEDIA_FAILURE != 0 {
        work.leave(Kind::MediaFailure, None, Check::MediaFailure, 0);
    }
    let declared = work.volume.boot.length_check(ReadAt::len(&*work.back));
    if let Some(check) = declared {
        work.leave(Kind::VolumeLength, None, check, 0);
    }
    let (percent, at) = (work.volume.boot.percent, u64_from(PERCENT_AT));
    let is_odd = percent > 100 && percent != PERCENT_UNKNOWN;
    let actual = percent_in_use(work)?;
    let check = Check::Percent {
        found: percent,
        actual,
    };
    let sets = is_odd && work.ask(Kind::Percent, None, (check, at), "correct it");
    let was_dirty = found & volume_flag::VOLUME_DIRTY != 0;
    let mut clears = work.desk.is_consistent();
    if was_dirty && !clears {
        work.leave(Kind::Dirty, None, Check::Dirty, u64_from(FLAGS_AT));
    } else if was_dirty {
        let at = (Check::Dirty, u64_from(FLAGS_AT));
        clears = work.ask(Kind::Dirty, None, at, "clear the mark");
    }
    if work.dry {
        return Ok(());
    }
    let is_dirty = flags & volume_flag::VOLUME_DIRTY != 0;
    if sets || (clears && is_dirty) {
        work::put(&work.back, CLEAR, at, &[actual])?;
    }
    if clears && is_dirty {
        let flags = (flags & !volume_flag::VOLUME_DIRTY).to_le_bytes();
        work::put(&work.back, CLEAR, u64_from(FLAGS_AT), &flags)?;
    }
    commit(&work.back, GROUPS)?;
    commit(&work.back, &[CLEAR])
}

fn percent_in_use(work: &Work<'_, '_>) -> Result<u8> {
    if work.volume.bitmap.clusters() == 0 {
        return Ok(PERCENT_UNKNOWN);
    }
    let clusters = u64::from(work.volume.boot.clusters);
    let free = work.volume.count_free()?;
    let percent = (clusters - free) * 100 / clusters;
    Ok(u8::try_from(percent).unwrap_or(PERCENT_UNKNOWN))
}
