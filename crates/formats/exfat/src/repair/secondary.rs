//! Repairs secondary entries other than stream extension and name: vendor entries, and entries of
//! unknown type.

use forerun_vfs::{Error, Result};

use super::fields::{self, SetPlace};
use super::report::{Finding, Kind};
use super::salvage;
use super::work::Work;
use crate::entry_set::{Allocation, EntrySet, secondary_allocation};
use crate::error::Check;
use crate::ondisk::{ENTRY, kind};
use crate::volume::Volume;

/// Returns the set without critical entries of unknown type. A driver must not read or change a
/// file with such an entry (8.2).
pub fn unknown(work: &mut Work<'_, '_>, here: &SetPlace<'_>, set: EntrySet) -> EntrySet {
    let Some(found) = set.unrecognized() else {
        return set;
    };
    let path = fields::path_of(here, &set);
    let at = (Check::UnknownSecondary { found }, here.at);
    if !work.ask(
        Kind::UnknownSecondary,
        Some(&path),
        at,
        "remove the entry and keep the file",
    ) {
        return set;
    }
    let known = |entry: &[u8]| {
        !entry
            .first()
            .is_some_and(|&kind| EntrySet::is_unknown(kind))
    };
    let (head, others) = set.bytes().split_at(2 * ENTRY);
    let mut kept = head.to_vec();
    for entry in others.chunks_exact(ENTRY) {
        match known(entry) {
            true => kept.extend_from_slice(entry),
            // Its clusters have no owner from now on, and may hold data.
            false => work.desk.gave_up |= secondary_allocation(entry).is_some(),
        }
    }
    salvage::shorter(kept).unwrap_or(set)
}

/// Claims the clusters of further secondary entries. Returns the set without the entries whose
/// clusters are damaged or already claimed.
pub fn vendors(
    work: &mut Work<'_, '_>,
    volume: &Volume,
    here: &SetPlace<'_>,
    set: EntrySet,
) -> Result<EntrySet> {
    if set.other_allocations().is_empty() {
        return Ok(set);
    }
    let path = fields::path_of(here, &set);
    let mut kept = Vec::new();
    for entry in set.bytes().chunks_exact(ENTRY) {
        let is_own = matches!(
            entry.first(),
            Some(&(kind::FILE | kind::STREAM | kind::NAME))
        );
        let data = secondary_allocation(entry).filter(|_| !is_own);
        if let Some(data) = data
            && claim(work, volume, data, &path, here.at)?
        {
            continue;
        }
        kept.extend_from_slice(entry);
    }
    Ok(salvage::shorter(kept).unwrap_or(set))
}

/// Claims the clusters of a vendor entry, and returns whether to remove the entry.
pub fn claim(
    work: &mut Work<'_, '_>,
    volume: &Volume,
    data: Allocation,
    path: &[u8],
    at: u64,
) -> Result<bool> {
    let ask = |work: &mut Work<'_, '_>, error| {
        work.desk.ask(Finding {
            kind: Kind::Vendor,
            path: Some(path.to_vec()),
            error,
            remedy: Some("remove the entry that says so".into()),
        })
    };
    let chain = match crate::clusters::chain(volume, None, at, data) {
        Ok(chain) => chain,
        Err(error @ Error::Corrupt(_)) => return Ok(ask(work, error)),
        Err(error) => return Err(error),
    };
    let shared = crate::bits::clusters(&chain).find(|&cluster| work.claimed.has(cluster));
    if let Some(cluster) = shared {
        let error = Check::CrossLink { cluster }.at(None, at);
        if ask(work, error) {
            return Ok(true);
        }
    }
    work.claimed.set_all(&chain);
    Ok(false)
}
