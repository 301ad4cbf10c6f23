//! Decides which part of an allocation to trust: the part that was written. A wrong length beyond
//! it must not take clusters from other entry sets.

use std::rc::Rc;

use forerun_vfs::{FileType, Result};

use super::data::{Sized, first_shared, valid_of};
use super::fields::{Doubt, SetPlace};
use super::report::Kind;
use super::room::Free;
use super::salvage::{self, Read};
use super::work::Work;
use crate::bits::clusters;
use crate::chain::Chain;
use crate::dir::Slots;
use crate::entry_set::{Allocation, EntrySet};
use crate::error::Check;
use crate::ondisk::{ENTRY_LEN, attribute, kind};
use crate::volume::Volume;

/// Entries at the start of a cluster that are searched for a set, as a sign of a directory.
const LOOKED_AT: u32 = 40;

/// Truncates a set at the first cluster that it never wrote and that another entry refers to as
/// well.
pub fn written(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    sized: Sized,
    doubt: Doubt,
) -> Result<Sized> {
    if doubt == Doubt::None && sized.shared.is_none() {
        return Ok(sized);
    }
    work.look_around()?;
    let written = clusters_written(work, &sized.set, &sized.chain)?;
    let found = {
        let mut numbered = clusters(&sized.chain).zip(0_u32..);
        numbered.find(|&(cluster, index)| index >= written && work.is_disputed(cluster))
    };
    let Some((cluster, index)) = found else {
        return Ok(sized);
    };
    let check = Check::CrossLink { cluster };
    let remedy = "cut it off: nothing was ever written there";
    if !work.ask(Kind::CrossLink, Some(path), (check, here.at), remedy) {
        return Ok(sized);
    }
    let mut sized = sized;
    sized.chain.truncate(index);
    let len = shorter_len(work, &sized.set, index);
    let data = sized.set.data();
    let valid = valid_of(&sized.set, len);
    sized.set.set_data(Allocation { len, ..data }, valid);
    sized.shared = first_shared(work, &sized.chain);
    sized.end = sized.chain.last().filter(|_| !data.contiguous);
    Ok(sized)
}

/// Returns a length for `count` clusters: the valid length if it needs that many.
fn shorter_len(work: &Work<'_, '_>, set: &EntrySet, count: u32) -> u64 {
    let there = u64::from(count) << work.volume.boot.cluster_bits;
    let size = work.volume.boot.cluster_size();
    let valid = set.valid_len();
    match set.file_type() {
        FileType::Regular if valid <= there && valid > there.saturating_sub(size) => valid,
        _ => set.data().len.min(there),
    }
}

/// Returns the plausible part of a run with an impossible length: the clusters that were written,
/// and the following ones that are marked used and that no other entry refers to.
pub fn likely(work: &mut Work<'_, '_>, set: &EntrySet, chain: Chain) -> Result<Chain> {
    work.look_around()?;
    let written = clusters_written(work, set, &chain)?;
    // A directory that fills its clusters has no end marker before clusters of others.
    let (written, most) = match set.file_type() {
        FileType::Directory => (1, written),
        _ => (written, u32::MAX),
    };
    let volume = Rc::clone(&work.volume);
    let mut free = Free::new(&volume);
    let mut count = 0;
    for cluster in clusters(&chain) {
        let is_likely = !work.is_disputed(cluster) && free.is_used(cluster)?;
        if count >= most || (count >= written && !is_likely) {
            break;
        }
        count += 1;
    }
    let mut chain = chain;
    chain.truncate(count);
    Ok(chain)
}

/// Returns the number of clusters of an allocation that were written, at least one.
fn clusters_written(work: &Work<'_, '_>, set: &EntrySet, chain: &Chain) -> Result<u32> {
    match set.file_type() {
        FileType::Directory => used_of_directory(&work.volume, chain),
        _ => Ok(count_of(&work.volume, chain, set.valid_len())),
    }
}

/// Returns the number of clusters of a directory up to its end.
pub fn used_of_directory(volume: &Volume, chain: &Chain) -> Result<u32> {
    let mut slots = Slots::new(volume, chain, None);
    let mut slot = 0_u32;
    while slots
        .entry(slot)?
        .is_some_and(|entry| entry[0] != kind::END)
    {
        slot += 1;
    }
    let len = (u64::from(slot) + 1) * ENTRY_LEN;
    Ok(count_of(volume, chain, len))
}

fn count_of(volume: &Volume, chain: &Chain, len: u64) -> u32 {
    let most = chain.clusters().max(1);
    let count = u32::try_from(volume.boot.clusters_for(len));
    count.map_or(most, |count| count.clamp(1, most))
}

/// Returns a damaged set as the set of a file or of a directory, depending on the contents of its
/// first cluster.
pub fn kind(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    set: EntrySet,
) -> Result<EntrySet> {
    let data = set.data();
    if data.len == 0 || !work.volume.boot.has_cluster(data.first) {
        return Ok(set);
    }
    let is_directory = set.file_type() == FileType::Directory;
    let has_entries = holds_entries(&work.volume, data.first)?;
    let is_even = data.len.is_multiple_of(work.volume.boot.cluster_size());
    let is_whole = set.stream().valid_data_length.get() == data.len;
    let (should_be, remedy) = match (is_directory, has_entries) {
        (true, Some(false)) => (false, "take it for a file"),
        (true, None) if !is_even && !is_whole => (false, "take it for a file"),
        (false, Some(true)) if is_even && is_whole => (true, "take it for a directory"),
        _ => return Ok(set),
    };
    let found = set.file().file_attributes.get();
    let check = Check::WrongKind { found };
    let mut set = set;
    if work.ask(Kind::SetForm, Some(path), (check, here.at), remedy) {
        set.set_attribute(attribute::DIRECTORY, should_be);
    }
    Ok(set)
}

/// Returns whether a cluster begins like a directory; `None` if it is empty.
pub fn holds_entries(volume: &Volume, cluster: u32) -> Result<Option<bool>> {
    let chain = Chain::contiguous(cluster, 1);
    let mut slots = Slots::new(volume, &chain, None);
    let mut is_empty = true;
    for slot in 0..LOOKED_AT {
        let Some(entry) = slots.entry(slot)? else {
            break;
        };
        is_empty &= entry.iter().all(|&byte| byte == 0);
        if entry[0] == kind::FILE
            && let Read::Set(taken) = salvage::read(&mut slots, slot)?
            && taken.wrong.is_none()
        {
            return Ok(Some(true));
        }
    }
    Ok((!is_empty).then_some(false))
}
