//! Lost clusters, which belong to nothing, kept as files of a new directory.
//!
//! A chain in the FAT becomes one file, and so do adjacent clusters without words in the FAT, as
//! contiguous files leave them. A chain with entries of a directory becomes a directory again. Directories
//! come first: most other lost clusters belong to files in them, which the next round finds. The new
//! directory becomes visible by one entry, when all its entries are written.

use std::collections::HashSet;
use std::rc::Rc;

use forerun_vfs::Result;

use super::bits::Bits;
use super::extent::holds_entries;
use super::names;
use super::salvage::{self, Read};
use super::work::{TAKE, Work, commit};
use crate::chain::Chain;
use crate::dir::Slots;
use crate::entry_set::{Allocation, EntrySet};
use crate::fat::Fat;
use crate::ondisk::{END_OF_CHAIN, ENTRY_LEN, attribute, kind};
use crate::time::Stamp;
use crate::volume::Volume;

/// Name of the directory. A number is added if the name is taken.
const NAME: &str = "FORERUN.LOST";
/// Most files of one directory. The next round keeps the rest.
const MOST: usize = 65_536;
/// Entries of a set with a name of up to fifteen units.
const ENTRIES_OF_SET: u32 = 3;

/// Keeps the clusters, and returns whether there was room for that.
///
/// # Errors
/// `Io`, `Write`, `Limit`.
pub fn keep(work: &mut Work<'_, '_>, root: &Chain, lost: Bits) -> Result<bool> {
    let volume = Rc::clone(&work.volume);
    let mut chains = chains(&volume, lost)?;
    let directories = directories(&volume, &chains)?;
    let is_first = !directories.is_empty();
    if is_first {
        chains = directories;
    }
    let now = Stamp::from_timestamp(work.now, 0);
    let mut bytes = Vec::new();
    for chain in &chains {
        bytes.extend(file(&volume, chain, is_first, now).bytes());
    }
    let size = volume.boot.cluster_size();
    let clusters = volume
        .boot
        .clusters_for(forerun_io::u64_from(bytes.len()) + 32);
    let clusters = u32::try_from(clusters).unwrap_or(u32::MAX);
    let name = names::fresh(&volume, root, &NAME.encode_utf16().collect::<Vec<_>>())?;
    let mut set = EntrySet::new(&name, attribute::DIRECTORY, now, &volume.upcase);
    let Some(at) = work.entries_for(root, ENTRIES_OF_SET)? else {
        return Ok(false);
    };
    let Some(directory) = work.take(clusters)? else {
        return Ok(false);
    };
    for cluster in super::bits::clusters(&directory) {
        work.clear_cluster(cluster)?;
    }
    let mut rest = bytes.as_slice();
    let len = forerun_io::u64_from(bytes.len());
    for (offset, len) in volume.pieces(&directory, 0, len) {
        let (now, after) = rest
            .split_at_checked(forerun_io::saturating_usize(len))
            .unwrap_or_default();
        work.write(TAKE, offset, now)?;
        rest = after;
    }
    for chain in chains.iter().filter(|chain| !chain.is_contiguous()) {
        let last = chain.last().unwrap_or(0);
        work.write(TAKE, work.fat_at(last), &END_OF_CHAIN.to_le_bytes())?;
    }
    let data = Allocation {
        first: directory.first(),
        len: u64::from(clusters) * size,
        contiguous: directory.is_contiguous(),
    };
    set.set_data(data, data.len);
    work.edit(at, set.bytes())?;
    work.desk.summary.kept_in = Some(crate::name::to_bytes(&name));
    work.again = true;
    work.catch_up()?;
    commit(&work.back, super::GROUPS)?;
    Ok(true)
}

/// Returns the chains that hold entries of directories, without those that others of them refer to.
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
    let (name, attributes) = match is_directory {
        true => ("dir", attribute::DIRECTORY),
        false => ("cluster", attribute::ARCHIVE),
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

/// Returns chains of the clusters: first the chains whose first cluster has no link to it, then the
/// chains that go in circles.
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
        let neighbour = cluster.saturating_add(1);
        let next = if lost.has(next) {
            next
        } else if next != END_OF_CHAIN
            && chain.is_contiguous()
            && lost.has(neighbour)
            && !led_to.has(neighbour)
            && !is_link(fat, neighbour, lost)?
            && !(is_directory && has_end(volume, cluster)?)
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
