//! Repairs the entry of the allocation bitmap, and finds the clusters of the bitmap or creates a
//! new one.

use std::rc::Rc;

use forerun_io::usize_from;
use forerun_vfs::Result;
use zerocopy::{FromZeros, IntoBytes};

use super::report::{Finding, Kind};
use super::room::Free;
use super::slots::Room;
use super::system::{change, disguised, in_a_row, only, system_chain};
use super::unnamed;
use super::work::Work;
use crate::bits::{Bits, clusters};
use crate::chain::Chain;
use crate::clusters;
use crate::dir::position;
use crate::entry_set::Allocation;
use crate::error::Check;
use crate::fat::Fat;
use crate::ondisk::{BAD_CLUSTER, BitmapEntry, ENTRY, FIRST_CLUSTER, kind};
use crate::volume::Volume;

/// The name of the allocation bitmap in findings.
pub const NAME: &str = "allocation bitmap";

/// The condition of the allocation bitmap.
pub enum FoundBitmap {
    Whole(Chain),
    /// Nothing usable remains. The offset of its entry, if there is one.
    Lost(Option<u64>),
    /// The user declined the repair.
    Declined,
}

/// The bitmap entry that the repair uses.
struct Entry {
    /// Offset of the entry.
    at: u64,
    fields: BitmapEntry,
    /// Length and clusters fit the volume.
    is_sound: bool,
    /// The entry has the type of another entry.
    is_disguised: bool,
}

impl Entry {
    /// Returns the error that the length is not `need` bytes.
    fn wrong_length(&self, need: u64) -> Check {
        let found = self.fields.data_length.get();
        Check::SystemLen {
            what: NAME,
            found,
            need,
        }
    }
}

/// Repairs the entry, and finds the clusters of the bitmap.
pub fn settle(work: &mut Work<'_, '_>, root: &Chain) -> Result<FoundBitmap> {
    let need = bitmap_len(&work.volume);
    let Some(mut found) = find_bitmap(work, root)? else {
        return without_entry(work, root);
    };
    if found.is_disguised {
        let at = (Check::Missing { what: NAME }, found.at);
        if !work.ask(Kind::BitmapEntry, None, at, "take this entry for its") {
            return Ok(FoundBitmap::Declined);
        }
        work.edit(found.at, found.fields.as_bytes())?;
    }
    let first = found.fields.first_cluster.get();
    let (chain, is_its_own) = bitmap_chain(work, first, need)?;
    found.is_sound &= is_its_own;
    let chain = chain.filter(|chain| !clusters(chain).any(|c| work.claimed.has(c)));
    let Some(chain) = chain else {
        return Ok(FoundBitmap::Lost(Some(found.at)));
    };
    if !found.is_sound && !rewrite_bitmap(work, found, &chain, need)? {
        return Ok(FoundBitmap::Declined);
    }
    Ok(FoundBitmap::Whole(chain))
}

/// Looks for the bitmap in the first clusters, where formatters put it. Writes a new entry if the
/// bytes there mark all clusters that entries refer to.
fn without_entry(work: &mut Work<'_, '_>, root: &Chain) -> Result<FoundBitmap> {
    let Some(chain) = in_a_row(work, FIRST_CLUSTER, bitmap_len(&work.volume))? else {
        return Ok(FoundBitmap::Lost(None));
    };
    change(work, |volume| volume.bitmap = chain.clone());
    let room = work.room_in_root(root, 1)?;
    if !marks_all(work, &chain)? || (room == Room::Grown && !work.has_room(1)?) {
        change(work, |volume| volume.bitmap = Chain::default());
        return Ok(FoundBitmap::Lost(None));
    }
    let at = (Check::Missing { what: NAME }, 0);
    let remedy = "write an entry for the one in the first clusters";
    if !work.ask(Kind::BitmapEntry, None, at, remedy) {
        return Ok(FoundBitmap::Declined);
    }
    let Some(at) = work.entries_at(root, room, 1)? else {
        work.desk.undo(Kind::BitmapEntry);
        return Ok(FoundBitmap::Declined);
    };
    write_entry(work, at, &chain)?;
    Ok(FoundBitmap::Whole(chain))
}

/// Returns whether the bitmap marks its own clusters and all clusters that entries refer to, and no
/// bits after the last cluster.
fn marks_all(work: &Work<'_, '_>, chain: &Chain) -> Result<bool> {
    let volume = &work.volume;
    let (count, len) = (volume.boot.clusters, bitmap_len(volume));
    let mut own = Bits::new(count)?;
    own.set_all(chain);
    let mut free = Free::new(volume);
    for index in 0..len {
        let met = own.byte(index) | work.met_byte(index);
        if met & !free.byte(index)? != 0 {
            return Ok(false);
        }
    }
    let mut behind = vec![0; usize_from(volume.boot.cluster_size())];
    let whole = u64::from(chain.clusters() - 1) * volume.boot.cluster_size();
    volume.read_chain(chain, whole, &mut behind)?;
    let (bits, rest) = behind.split_at(usize_from(len - whole));
    let is_plain = match count % 8 {
        0 => true,
        inside => bits.last().is_some_and(|byte| byte >> inside == 0),
    };
    Ok(is_plain && rest.iter().all(|&byte| byte == 0))
}

/// Creates a new bitmap of the clusters that entries refer to. If the start of the root directory
/// is lost (`is_cut`), also marks the clusters of directories without a name. `at` is the offset of
/// the old entry, if there is one. Another round must follow.
pub fn rebuild(work: &mut Work<'_, '_>, root: &Chain, at: Option<u64>, is_cut: bool) -> Result<()> {
    let volume = Rc::clone(&work.volume);
    let len = bitmap_len(&volume);
    work.look_around()?;
    let mut fat = Fat::new(&volume);
    for cluster in work.claimed.all() {
        if work.is_led_to(cluster) || fat.next(cluster)? == BAD_CLUSTER {
            work.claimed.set(cluster);
        }
    }
    if is_cut {
        unnamed::find(&volume, root, &mut work.claimed)?;
    }
    let room = match at {
        Some(at) => Room::Within(at),
        None => work.room_in_root(root, 1)?,
    };
    let at = at.unwrap_or(0);
    let count = clusters_of(&volume);
    if !work.has_room(count + u32::from(room == Room::Grown))? {
        work.leave(Kind::BitmapEntry, None, Check::NoRoomFor { what: NAME }, at);
        return Ok(());
    }
    let check = Check::Missing { what: NAME };
    let remedy = "make one that marks what files and directories have";
    if !work.ask(Kind::BitmapEntry, None, (check, at), remedy) {
        return Ok(());
    }
    let Some((chain, at)) = work.take(count)?.zip(work.entries_at(root, room, 1)?) else {
        work.desk.undo(Kind::BitmapEntry);
        return Ok(());
    };
    let bytes: Vec<u8> = (0..len).map(|index| work.claimed.byte(index)).collect();
    for cluster in clusters(&chain) {
        work.clear_cluster(cluster)?;
    }
    work.write_to(&chain, &bytes)?;
    work.again = true;
    write_entry(work, at, &chain)
}

/// Writes the entry of a bitmap in these clusters, and their chain.
fn write_entry(work: &mut Work<'_, '_>, at: u64, chain: &Chain) -> Result<()> {
    let mut fields = BitmapEntry::new_zeroed();
    fields.entry_type = kind::BITMAP;
    fields.first_cluster = chain.first().into();
    fields.data_length = bitmap_len(&work.volume).into();
    work.write_chain(chain)?;
    work.edit(at, fields.as_bytes())
}

/// Finds the entry of the bitmap, or an entry that differs from it only in type.
fn find_bitmap(work: &mut Work<'_, '_>, root: &Chain) -> Result<Option<Entry>> {
    let need = bitmap_len(&work.volume);
    let is_sound = |volume: &Volume, entry: &[u8; ENTRY]| {
        let entry: BitmapEntry = zerocopy::transmute!(*entry);
        let chain = system_chain(volume, entry.first_cluster.get(), need)?;
        let most = volume.boot.clusters_for(need) << volume.boot.cluster_bits;
        // A repaired volume has one FAT.
        let is_of_first = entry.bitmap_flags & 1 == 0;
        Ok(is_of_first && (need..=most).contains(&entry.data_length.get()) && chain.is_some())
    };
    let (slot, entry, is_sound, is_disguised) =
        match only(work, root, kind::BITMAP, NAME, &is_sound)? {
            Some(((slot, entry), is_sound)) => (slot, entry, is_sound, false),
            None => match disguised(work, root, kind::BITMAP, &is_bitmap)? {
                Some((slot, entry)) => (slot, entry, true, true),
                None => return Ok(None),
            },
        };
    Ok(position(&work.volume, root, slot).map(|at| Entry {
        at,
        fields: zerocopy::transmute!(entry),
        is_sound,
        is_disguised,
    }))
}

/// Returns the clusters of the bitmap, and whether they form a chain in the FAT.
fn bitmap_chain(work: &mut Work<'_, '_>, first: u32, need: u64) -> Result<(Option<Chain>, bool)> {
    let own = system_chain(&work.volume, first, need)?;
    if own.as_ref().is_some_and(Chain::is_contiguous) {
        return Ok((own, true));
    }
    // If a fragmented chain goes through clusters of other entries, the chain is the damage.
    work.look_around()?;
    match own.filter(|own| !clusters(own).any(|c| work.is_led_to(c))) {
        Some(chain) => Ok((Some(chain), true)),
        None => Ok((in_a_row(work, first, need)?, false)),
    }
}

/// Writes the chain of the bitmap and its length, if the user agrees. Returns whether the user
/// agreed.
fn rewrite_bitmap(work: &mut Work<'_, '_>, found: Entry, chain: &Chain, need: u64) -> Result<bool> {
    let at = found.at;
    let followed = clusters::chain(
        &work.volume,
        None,
        at,
        Allocation {
            first: found.fields.first_cluster.get(),
            len: need,
            contiguous: false,
        },
    );
    let error = followed.err();
    let finding = Finding {
        kind: Kind::BitmapEntry,
        path: None,
        error: error.unwrap_or_else(|| found.wrong_length(need).at(None, at)),
        remedy: Some("write its chain and length anew".into()),
    };
    if !work.desk.ask(finding) {
        return Ok(false);
    }
    work.write_chain(chain)?;
    let mut fields = found.fields;
    fields.bitmap_flags = 0;
    fields.data_length = need.into();
    work.edit(at, fields.as_bytes())?;
    Ok(true)
}

fn bitmap_len(volume: &Volume) -> u64 {
    u64::from(volume.boot.clusters).div_ceil(8)
}

fn clusters_of(volume: &Volume) -> u32 {
    // A bitmap has fewer bytes than the volume has clusters.
    u32::try_from(volume.boot.clusters_for(bitmap_len(volume))).unwrap_or(volume.boot.clusters)
}

fn is_bitmap(volume: &Volume, entry: &[u8; ENTRY]) -> Result<bool> {
    let entry: BitmapEntry = zerocopy::transmute!(*entry);
    let need = bitmap_len(volume);
    let is_long = entry.data_length.get() == need && entry.bitmap_flags == 0;
    let is_plain = entry.reserved == [0; 18];
    Ok(is_long && is_plain && system_chain(volume, entry.first_cluster.get(), need)?.is_some())
}
