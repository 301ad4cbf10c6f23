//! Keeps lost clusters, which belong to nothing, as files of a new directory.
//!
//! A chain in the FAT becomes one file. Adjacent clusters without words in the FAT, as contiguous
//! files leave them, also become one file. A chain with entries of a directory becomes a directory
//! again. Directories come first: most other lost clusters belong to files in them, which the next
//! round finds. The new directory becomes visible through one entry, after all its entries are
//! written. A later round that keeps more files writes a longer copy, and changes that entry to
//! point to the copy.

use std::collections::HashSet;
use std::rc::Rc;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{FileType, Result, Zone};

use super::extent::holds_entries;
use super::names;
use super::salvage::{self, Read};
use super::slots::Room;
use super::unnamed::begins_as_directory;
use super::work::{TAKE, Work, commit};
use crate::bits::Bits;
use crate::chain::Chain;
use crate::clusters;
use crate::dir::{Found, Slots};
use crate::entry_set::{Allocation, EntrySet};
use crate::fat::Fat;
use crate::ondisk::{END_OF_CHAIN, ENTRY, ENTRY_LEN, MAX_DIRECTORY, attribute, kind};
use crate::time::Stamp;
use crate::volume::Volume;

/// Name of the directory. A number is appended if the name exists.
const NAME: &str = "FORERUN.LOST";
/// Maximum number of files of one directory. The next round keeps the rest.
const MOST: usize = 65_536;
/// Entries of a set with a name of up to fifteen units.
const ENTRIES_OF_SET: u32 = 3;

/// The files and directories that are made of lost clusters.
pub struct Lost {
    chains: Vec<Chain>,
    are_directories: bool,
}

impl Lost {
    /// Sorts lost clusters into directories, or into files if there are no directories.
    pub fn of(volume: &Volume, lost: Bits) -> Result<Self> {
        let chains = chains(volume, lost)?;
        let directories = directories(volume, &chains)?;
        let are_directories = !directories.is_empty();
        Ok(Self {
            chains: if are_directories { directories } else { chains },
            are_directories,
        })
    }

    /// Returns whether the volume has space for the directory of lost files.
    pub fn has_room(&self, work: &mut Work<'_, '_>, root: &Chain) -> Result<bool> {
        let old = kept_before(work, root)?;
        let grows = old.is_none() && work.room_in_root(root, ENTRIES_OF_SET)? == Room::Grown;
        let kept = old.map_or(0, |old| old.entries.len());
        let len = kept + self.chains.len() * ENTRY * usize_from(ENTRIES_OF_SET.into());
        let Some(clusters) = clusters_of(&work.volume, len) else {
            return Ok(false);
        };
        work.has_room(clusters + u32::from(grows))
    }
}

/// The directory that an earlier round of this repair created.
struct KeptBefore {
    at: u64,
    set: EntrySet,
    chain: Chain,
    entries: Vec<u8>,
}

/// Keeps the clusters as files. Returns whether there was space.
pub fn keep(work: &mut Work<'_, '_>, root: &Chain, lost: &Lost) -> Result<bool> {
    let volume = Rc::clone(&work.volume);
    let now = Stamp::from_timestamp(work.now, &Zone::default());
    let old = kept_before(work, root)?;
    let mut bytes = old
        .as_ref()
        .map_or_else(Vec::new, |old| old.entries.clone());
    for chain in &lost.chains {
        bytes.extend(file(&volume, chain, lost.are_directories, now).bytes());
    }
    let Some(clusters) = clusters_of(&volume, bytes.len()) else {
        return Ok(false);
    };
    let (at, mut set) = match &old {
        Some(old) => (Some(old.at), old.set.clone()),
        None => {
            let units: Vec<u16> = NAME.encode_utf16().collect();
            let name = names::fresh(&volume, root, &units)?;
            let room = work.room_in_root(root, ENTRIES_OF_SET)?;
            let at = work.entries_at(root, room, ENTRIES_OF_SET)?;
            (
                at,
                EntrySet::new(&name, attribute::DIRECTORY, now, &volume.upcase),
            )
        }
    };
    let Some((at, directory)) = at.zip(work.take(clusters)?) else {
        return Ok(false);
    };
    for cluster in crate::bits::clusters(&directory) {
        work.clear_cluster(cluster)?;
    }
    work.write_to(&directory, &bytes)?;
    for chain in lost.chains.iter().filter(|chain| !chain.is_contiguous()) {
        if let Some(last) = chain.last() {
            work.write(TAKE, work.fat_at(last), &END_OF_CHAIN.to_le_bytes())?;
        }
    }
    let data = Allocation {
        first: directory.first(),
        len: u64::from(clusters) * volume.boot.cluster_size(),
        contiguous: directory.is_contiguous(),
    };
    set.set_data(data, data.len);
    work.edit(at, set.bytes())?;
    work.desk.summary.kept_in = Some(crate::name::to_bytes(&set.name()));
    work.again = true;
    work.catch_up()?;
    commit(&work.back, super::GROUPS)?;
    if let Some(old) = old {
        for cluster in crate::bits::clusters(&old.chain) {
            work.mark_cluster(cluster, false)?;
        }
    }
    Ok(true)
}

/// Returns the number of clusters of a directory with these entries; `None` if it would be too
/// long.
fn clusters_of(volume: &Volume, len: usize) -> Option<u32> {
    // Includes an entry for the end marker.
    let len = u64_from(len) + ENTRY_LEN;
    let clusters = volume.boot.clusters_for(len);
    u32::try_from(clusters)
        .ok()
        .filter(|_| len <= MAX_DIRECTORY)
}

/// Finds the directory that an earlier round created.
fn kept_before(work: &Work<'_, '_>, root: &Chain) -> Result<Option<KeptBefore>> {
    let Some(name) = &work.desk.summary.kept_in else {
        return Ok(None);
    };
    let volume = &work.volume;
    let mut slots = Slots::new(volume, root, None);
    let mut slot = 0;
    while let Some((found, next)) = slots.next_item(slot)? {
        if let Found::Set(set) = found
            && set.file_type() == FileType::Directory
            && crate::name::to_bytes(&set.name()) == *name
            && let Some(at) = slots.position(slot)
        {
            let chain = clusters::chain(volume, None, at, set.data())?;
            let mut entries = Vec::new();
            let mut below = Slots::new(volume, &chain, None);
            let mut slot = 0;
            while let Some(entry) = below.entry(slot)?.filter(|entry| entry[0] != kind::END) {
                entries.extend(entry);
                slot += 1;
            }
            return Ok(Some(KeptBefore {
                at,
                set,
                chain,
                entries,
            }));
        }
        slot = next;
    }
    Ok(None)
}

/// Returns the chains with entries of directories, except chains that others of them refer to.
fn directories(volume: &Volume, chains: &[Chain]) -> Result<Vec<Chain>> {
    let mut found = Vec::new();
    for chain in chains {
        if holds_entries(volume, chain.first())? == Some(true) {
            found.push(chain.clone());
        }
    }
    let mut below = HashSet::new();
    for chain in &found {
        let mut slots = Slots::new(volume, chain, None);
        let mut slot = 0_u32;
        while let Some(entry) = slots.entry(slot)? {
            slot += 1;
            if entry[0] == kind::FILE
                && let Read::Set(taken) = salvage::read(&mut slots, slot - 1)?
            {
                below.insert(taken.set.data().first);
            }
        }
    }
    let is_top = |chain: &&Chain| !below.contains(&chain.first());
    let top: Vec<Chain> = found.iter().filter(is_top).cloned().collect();
    // Directories that refer to each other in a circle have no top.
    Ok(if top.is_empty() { found } else { top })
}

fn file(volume: &Volume, chain: &Chain, is_directory: bool, now: Stamp) -> EntrySet {
    let (name, attributes) = if is_directory {
        ("dir", attribute::DIRECTORY)
    } else {
        ("cluster", attribute::ARCHIVE)
    };
    let name = format!("{name}{:08}", chain.first());
    let name: Vec<u16> = name.encode_utf16().collect();
    let mut set = EntrySet::new(&name, attributes, now, &volume.upcase);
    let len = u64::from(chain.clusters()) << volume.boot.cluster_bits;
    let data = Allocation {
        first: chain.first(),
        len,
        contiguous: chain.is_contiguous(),
    };
    set.set_data(data, len);
    set
}

/// Returns the chains of the clusters: first the chains whose first cluster has no link to it, then
/// circular ones.
fn chains(volume: &Volume, mut lost: Bits) -> Result<Vec<Chain>> {
    let mut fat = Fat::new(volume);
    let mut led_to = Bits::new(volume.boot.clusters)?;
    for cluster in lost.all() {
        if lost.has(cluster) {
            let next = fat.next(cluster)?;
            if lost.has(next) {
                led_to.set(next);
            }
        }
    }
    let mut chains = Vec::new();
    for circles in [false, true] {
        for cluster in lost.all() {
            if chains.len() >= MOST {
                return Ok(chains);
            }
            if lost.has(cluster) && (circles || !led_to.has(cluster)) {
                chains.push(chain(volume, &mut fat, cluster, &mut lost, &led_to)?);
            }
        }
    }
    Ok(chains)
}

fn chain(
    volume: &Volume,
    fat: &mut Fat<'_>,
    first: u32,
    lost: &mut Bits,
    led_to: &Bits,
) -> Result<Chain> {
    let is_directory = holds_entries(volume, first)? == Some(true);
    let mut chain = Chain::contiguous(first, 1);
    lost.clear(first);
    let mut cluster = first;
    loop {
        let next = fat.next(cluster)?;
        let neighbour = cluster + 1;
        let next = if lost.has(next) {
            next
        } else if next != END_OF_CHAIN
            && chain.is_contiguous()
            && lost.has(neighbour)
            && !led_to.has(neighbour)
            && !is_link(fat, neighbour, lost)?
            && !if is_directory {
                has_end(volume, cluster)?
            } else {
                begins_as_directory(volume, neighbour)?
            }
        {
            neighbour
        } else {
            return Ok(chain);
        };
        chain.push(next, 1);
        lost.clear(next);
        cluster = next;
    }
}

/// Returns whether the last entry of a cluster is zero, so that a directory ends in it.
fn has_end(volume: &Volume, cluster: u32) -> Result<bool> {
    let last = volume.boot.cluster_at(cluster) + volume.boot.cluster_size() - ENTRY_LEN;
    let mut kind = [0];
    volume.read(last, &mut kind)?;
    Ok(kind == [kind::END])
}

/// Returns whether the word of a cluster ends a chain or refers to another lost cluster.
fn is_link(fat: &mut Fat<'_>, cluster: u32, lost: &Bits) -> Result<bool> {
    let next = fat.next(cluster)?;
    Ok(next == END_OF_CHAIN || lost.has(next))
}
