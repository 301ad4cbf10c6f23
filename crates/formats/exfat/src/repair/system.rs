//! Repairs the structures that the rest of a repair needs: the root directory's chain, allocation
//! bitmap, up-case table.

use std::rc::Rc;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::Result;
use zerocopy::IntoBytes;

use super::bitmap_entry::FoundBitmap;
use super::report::Kind;
use super::slots::Room;
use super::work::{TAKE, Work};
use super::{bitmap_entry, extent};
use crate::chain::Chain;
use crate::default_upcase;
use crate::dir::{Found, Slots, position};
use crate::error::Check;
use crate::fat::Fat;
use crate::follow::{Stop, follow};
use crate::ondisk::{END_OF_CHAIN, ENTRY, FIRST_CLUSTER, LabelEntry, UpcaseEntry, kind};
use crate::upcase::{self, Upcase};
use crate::volume::Volume;

/// FAT word of cluster 0: the media type. The word of cluster 1 is an end of chain.
const MEDIA: u32 = 0xFFFF_FFF8;

/// Slot and bytes of an entry of the root directory.
pub type RootEntry = (u32, [u8; ENTRY]);

/// Repairs these structures, and returns the clusters of the root directory. Returns `None` if a
/// structure stays damaged that the rest of the repair needs.
pub fn settle(work: &mut Work<'_, '_>) -> Result<Option<Chain>> {
    fat_head(work)?;
    let Some(root) = root(work)? else {
        return Ok(None);
    };
    let is_cut = is_cut(&work.volume, &root)?;
    // Files with entries in the lost part of the root directory are kept.
    work.desk.gave_up |= is_cut;
    let at = match bitmap_entry::settle(work, &root)? {
        FoundBitmap::Whole(bitmap) => {
            work.claimed.set_all(&bitmap);
            end_chain(work, bitmap_entry::NAME, &bitmap)?;
            change(work, |volume| volume.bitmap = bitmap);
            None
        }
        FoundBitmap::Lost(at) => Some(at),
        FoundBitmap::Declined => return Ok(None),
    };
    let Some(upcase) = table(work, &root)? else {
        return Ok(None);
    };
    change(work, |volume| volume.upcase = upcase);
    if let Some(at) = at {
        // The next round uses the new bitmap.
        bitmap_entry::rebuild(work, &root, at, is_cut)?;
        return Ok(None);
    }
    label(work, &root)?;
    Ok(Some(root))
}

/// Returns whether the start of the root directory is lost: all formatters put the entries of the
/// bitmap and the up-case table there.
fn is_cut(volume: &Volume, root: &Chain) -> Result<bool> {
    let mut is_there = false;
    for wanted in [kind::BITMAP, kind::UPCASE] {
        each(volume, root, wanted, &mut |_, _| {
            is_there = true;
            Ok(())
        })?;
    }
    Ok(!is_there)
}

/// Changes the description of the volume.
pub fn change(work: &mut Work<'_, '_>, change: impl FnOnce(&mut Volume)) {
    // No other `Rc` exists yet.
    if let Some(volume) = Rc::get_mut(&mut work.volume) {
        change(volume);
    }
}

/// Truncates a chain that continues beyond its length.
fn end_chain(work: &mut Work<'_, '_>, what: &'static str, chain: &Chain) -> Result<()> {
    let Some(last) = chain.last() else {
        return Ok(());
    };
    if Fat::new(&work.volume).next(last)? != END_OF_CHAIN {
        let need = chain.clusters().into();
        let at = (Check::SystemLong { what, need }, work.fat_at(last));
        if work.ask(Kind::ChainLong, None, at, "cut it there") {
            work.cuts.push(last);
        }
    }
    Ok(())
}

fn fat_head(work: &mut Work<'_, '_>) -> Result<()> {
    let at = work.volume.boot.active_fat();
    let mut words = [0; 8];
    work.volume.read(at, &mut words)?;
    let expected = [MEDIA.to_le_bytes(), END_OF_CHAIN.to_le_bytes()].concat();
    if words.as_slice() != expected {
        let found = u64::from_le_bytes(words);
        let check = Check::FatHead { found };
        if work.ask(Kind::FatHead, None, (check, at), "write them anew") {
            work.write(TAKE, at, &expected)?;
        }
    }
    Ok(())
}

fn root(work: &mut Work<'_, '_>) -> Result<Option<Chain>> {
    let first = work.volume.boot.root;
    let followed = follow(&work.volume, first, None)?;
    let at = work.fat_at(followed.chain.last().unwrap_or(first));
    if let Some(check) = followed.check(0) {
        if followed.is_beyond_limits() {
            work.leave(Kind::Unreadable, Some(b""), check, at);
            return Ok(None);
        }
        if work.ask(Kind::Chain, Some(b""), (check, at), "end it there") {
            work.desk.gave_up = true;
            work.cuts.extend(followed.chain.last());
        }
    }
    let chain = without_others(work, followed.chain)?;
    work.claimed.set_all(&chain);
    work.directories.set_all(&chain);
    Ok(Some(chain))
}

/// Returns the root directory's chain, truncated before clusters beyond its end that other entries
/// refer to.
fn without_others(work: &mut Work<'_, '_>, chain: Chain) -> Result<Chain> {
    let used = extent::used_of_directory(&work.volume, &chain)?;
    if used == chain.clusters() {
        return Ok(chain);
    }
    work.look_around()?;
    let found = {
        let mut numbered = crate::bits::clusters(&chain).zip(0_u32..);
        numbered.find(|&(cluster, index)| index >= used && work.is_disputed(cluster))
    };
    let Some((cluster, index)) = found else {
        return Ok(chain);
    };
    let at = (Check::CrossLink { cluster }, work.fat_at(cluster));
    let mut chain = chain;
    if work.ask(Kind::CrossLink, Some(b""), at, "end it before that") {
        chain.truncate(index);
        work.cuts.extend(chain.last());
    }
    Ok(chain)
}

/// Returns the first sound entry of a kind, or the first one if none is sound. Marks the others of
/// that kind unused.
pub fn only(
    work: &mut Work<'_, '_>,
    root: &Chain,
    wanted: u8,
    what: &'static str,
    is_sound: &dyn Fn(&Volume, &[u8; ENTRY]) -> Result<bool>,
) -> Result<Option<(RootEntry, bool)>> {
    let volume = &work.volume;
    let mut best: Option<(RootEntry, bool)> = None;
    let mut several = false;
    each(volume, root, wanted, &mut |slot, entry| {
        several |= best.is_some();
        if !best.is_some_and(|(_, sound)| sound) {
            let sound = is_sound(volume, &entry)?;
            if sound || best.is_none() {
                best = Some(((slot, entry), sound));
            }
        }
        Ok(())
    })?;
    let Some(((kept, _), _)) = best.filter(|_| several) else {
        return Ok(best);
    };
    let mut others = Vec::new();
    each(volume, root, wanted, &mut |slot, _| {
        // Bounds the memory. No real directory has so many.
        if slot != kept && others.len() < 1024 {
            others.push(slot);
        }
        Ok(())
    })?;
    for slot in others {
        let at = position(&work.volume, root, slot).unwrap_or(0);
        let check = Check::Double { what };
        if work.ask(Kind::Double, Some(b""), (check, at), "mark it unused") {
            work.edit(at, &[wanted & !kind::IN_USE])?;
        }
    }
    Ok(best)
}

/// Visits the entries of a kind in the root directory.
fn each(
    volume: &Volume,
    root: &Chain,
    wanted: u8,
    visit: &mut dyn FnMut(u32, [u8; ENTRY]) -> Result<()>,
) -> Result<()> {
    let mut slots = Slots::new(volume, root, None);
    let mut slot = 0;
    while let Some((found, next)) = slots.next_item(slot)? {
        if let Found::Other { entry } = found
            && entry[0] == wanted
        {
            visit(slot, entry)?;
        }
        slot = next;
    }
    Ok(())
}

/// Returns an entry that is sound for `kind` in everything except its type.
pub fn disguised(
    work: &Work<'_, '_>,
    root: &Chain,
    wanted: u8,
    is_sound: &dyn Fn(&Volume, &[u8; ENTRY]) -> Result<bool>,
) -> Result<Option<RootEntry>> {
    let mut slots = Slots::new(&work.volume, root, None);
    let mut slot = 0;
    while let Some(mut entry) = slots.entry(slot)? {
        if entry[0] == kind::END {
            break;
        }
        entry[0] = wanted;
        if is_sound(&work.volume, &entry)? {
            return Ok(Some((slot, entry)));
        }
        slot += 1;
    }
    Ok(None)
}

/// Returns the clusters of a bitmap or table if its chain is sound.
pub fn system_chain(volume: &Volume, first: u32, len: u64) -> Result<Option<Chain>> {
    let Ok(need) = u32::try_from(volume.boot.clusters_for(len)) else {
        return Ok(None);
    };
    if !volume.boot.has_cluster(first) || need == 0 || need > volume.boot.clusters {
        return Ok(None);
    }
    let followed = follow(volume, first, Some(need))?;
    Ok((followed.stop == Stop::Whole).then_some(followed.chain))
}

/// Returns the clusters of a bitmap or table if they are adjacent, as all formatters write them,
/// and no entry refers to them.
pub fn in_a_row(work: &mut Work<'_, '_>, first: u32, len: u64) -> Result<Option<Chain>> {
    let boot = &work.volume.boot;
    let Ok(need) = u32::try_from(boot.clusters_for(len)) else {
        return Ok(None);
    };
    let end = boot.clusters + FIRST_CLUSTER;
    if !boot.has_cluster(first) || need > end - first {
        return Ok(None);
    }
    let chain = Chain::contiguous(first, need);
    work.look_around()?;
    let is_taken = crate::bits::clusters(&chain).any(|cluster| work.is_led_to(cluster));
    Ok((!is_taken).then_some(chain))
}

fn read_table(volume: &Volume, entry: &[u8; ENTRY]) -> Result<Option<(Chain, Upcase)>> {
    let entry: UpcaseEntry = zerocopy::transmute!(*entry);
    let len = entry.data_length.get();
    if len == 0 || len > upcase::MAX_TABLE {
        return Ok(None);
    }
    let Some(chain) = system_chain(volume, entry.first_cluster.get(), len)? else {
        return Ok(None);
    };
    let mut table = vec![0; usize_from(len)];
    volume.read_chain(&chain, 0, &mut table)?;
    if upcase::checksum(&table) != entry.table_checksum.get() {
        return Ok(None);
    }
    Ok(Upcase::parse(&table).ok().map(|upcase| (chain, upcase)))
}

fn table(work: &mut Work<'_, '_>, root: &Chain) -> Result<Option<Upcase>> {
    let what = "up-case table";
    let is_sound = |volume: &Volume, entry: &[u8; ENTRY]| {
        read_table(volume, entry).map(|found| found.is_some())
    };
    let found = only(work, root, kind::UPCASE, what, &is_sound)?;
    let mut at = None;
    let mut check = Check::Missing { what };
    let mut entry = [0; ENTRY];
    if let Some(((slot, found), _)) = found {
        if let Some((chain, upcase)) = read_table(&work.volume, &found)?
            && !crate::bits::clusters(&chain).any(|cluster| work.claimed.has(cluster))
        {
            work.claimed.set_all(&chain);
            end_chain(work, what, &chain)?;
            return Ok(Some(upcase));
        }
        if let Some(upcase) = unchained(work, &found, (root, slot))? {
            return Ok(Some(upcase));
        }
        at = position(&work.volume, root, slot);
        entry = found;
        check = Check::Table;
    } else if let Some((slot, found)) = disguised(work, root, kind::UPCASE, &is_sound)?
        && let Some((chain, upcase)) = read_table(&work.volume, &found)?
    {
        let at = position(&work.volume, root, slot).unwrap_or(0);
        let remedy = "take this entry for its";
        if !work.ask(Kind::UpcaseTable, None, (check, at), remedy) {
            return Ok(None);
        }
        work.edit(at, &found)?;
        work.claimed.set_all(&chain);
        return Ok(Some(upcase));
    }
    let room = match at {
        Some(at) => Room::Within(at),
        None => work.room_in_root(root, 1)?,
    };
    new_table(work, (root, room), entry, check)
}

/// Returns the table if its bytes are right, and repairs its chain.
fn unchained(
    work: &mut Work<'_, '_>,
    entry: &[u8; ENTRY],
    (root, slot): (&Chain, u32),
) -> Result<Option<Upcase>> {
    let fields: UpcaseEntry = zerocopy::transmute!(*entry);
    let len = fields.data_length.get();
    if len == 0 || len > upcase::MAX_TABLE {
        return Ok(None);
    }
    let Some(chain) = in_a_row(work, fields.first_cluster.get(), len)? else {
        return Ok(None);
    };
    // At most `MAX_TABLE` bytes.
    let mut table = vec![0; usize_from(len)];
    work.volume.read_chain(&chain, 0, &mut table)?;
    let Ok(upcase) = Upcase::parse(&table) else {
        return Ok(None);
    };
    if upcase::checksum(&table) != fields.table_checksum.get() {
        return Ok(None);
    }
    let at = position(&work.volume, root, slot).unwrap_or(0);
    let remedy = "write its chain anew";
    if !work.ask(Kind::UpcaseTable, None, (Check::Table, at), remedy) {
        return Ok(None);
    }
    work.write_chain(&chain)?;
    work.claimed.set_all(&chain);
    Ok(Some(upcase))
}

/// Writes the recommended table, in the clusters of the old one if nothing else has them.
fn new_table(
    work: &mut Work<'_, '_>,
    (root, room): (&Chain, Room),
    old: [u8; ENTRY],
    check: Check,
) -> Result<Option<Upcase>> {
    let table = default_upcase::compressed();
    let len = u64_from(table.len());
    let at = match room {
        Room::Within(at) => at,
        Room::Behind { .. } | Room::Grown => 0,
    };
    let mut fields: UpcaseEntry = zerocopy::transmute!(old);
    let own = match fields.first_cluster.get() {
        0 => behind_the_bitmap(work, &table)?,
        first => in_a_row(work, first, len)?,
    };
    let need = match &own {
        Some(_) => 0,
        None => clusters_of_table(&work.volume, len),
    };
    let need = need + u32::from(room == Room::Grown);
    if need > 0 && !work.has_room(need)? {
        let what = "up-case table";
        work.leave(Kind::UpcaseTable, None, Check::NoRoomFor { what }, at);
        return Ok(None);
    }
    let remedy = "write the table that the specification recommends";
    if !work.ask(Kind::UpcaseTable, None, (check, at), remedy) {
        return Ok(None);
    }
    let chain = match own {
        Some(chain) => Some(chain),
        None => work.take(clusters_of_table(&work.volume, len))?,
    };
    let Some(chain) = chain else {
        work.desk.undo(Kind::UpcaseTable);
        return Ok(None);
    };
    work.claimed.set_all(&chain);
    let Some(at) = work.entries_at(root, room, 1)? else {
        work.desk.undo(Kind::UpcaseTable);
        return Ok(None);
    };
    work.write_chain(&chain)?;
    work.write_to(&chain, &table)?;
    fields.entry_type = kind::UPCASE;
    fields.table_checksum = upcase::checksum(&table).into();
    fields.first_cluster = chain.first().into();
    fields.data_length = len.into();
    work.edit(at, fields.as_bytes())?;
    Ok(Some(default_upcase::table()))
}

fn clusters_of_table(volume: &Volume, len: u64) -> u32 {
    // A table has 5,836 bytes.
    u32::try_from(volume.boot.clusters_for(len)).unwrap_or(u32::MAX)
}

/// Returns the clusters after those of the bitmap, where formatters put the table, if they contain
/// it and no entry refers to them.
fn behind_the_bitmap(work: &mut Work<'_, '_>, table: &[u8]) -> Result<Option<Chain>> {
    let Some(last) = work.volume.bitmap.last() else {
        return Ok(None);
    };
    let Some(chain) = in_a_row(work, last + 1, u64_from(table.len()))? else {
        return Ok(None);
    };
    let mut found = vec![0; table.len()];
    work.volume.read_chain(&chain, 0, &mut found)?;
    Ok((found == table).then_some(chain))
}

fn label(work: &mut Work<'_, '_>, root: &Chain) -> Result<()> {
    let is_sound = |_: &Volume, entry: &[u8; ENTRY]| {
        let label: LabelEntry = zerocopy::transmute!(*entry);
        Ok(usize::from(label.character_count) <= label.volume_label.len())
    };
    let found = only(work, root, kind::LABEL, "volume label", &is_sound)?;
    let Some(((slot, entry), false)) = found else {
        return Ok(());
    };
    let at = position(&work.volume, root, slot).unwrap_or(0);
    let label: LabelEntry = zerocopy::transmute!(entry);
    let count = label.character_count;
    let units = label.volume_label.iter();
    let len = units.take_while(|unit| unit.get() != 0).count();
    let remedy = format!("make it {len} characters long");
    if work.ask(Kind::Label, None, (Check::LabelLen { count }, at), remedy) {
        let len = u8::try_from(len).unwrap_or(0);
        work.edit(at + 1, &[len])?;
    }
    Ok(())
}
