//! Finds directories without a name when the allocation bitmap is missing, and the clusters of
//! their contents.
//!
//! A cluster of a removed or overwritten directory may look the same. So a directory counts only if
//! no file in it shares a cluster with something else.

use forerun_vfs::{FileType, Result};

use super::extent::holds_entries;
use super::room::lenient;
use super::salvage::{self, Read};
use crate::bits::{Bits, clusters};
use crate::chain::Chain;
use crate::dir::Slots;
use crate::entry_set::EntrySet;
use crate::fat::Fat;
use crate::follow::{Stop, follow};
use crate::ondisk::{BAD_CLUSTER, kind};
use crate::volume::Volume;

/// Adds the clusters of nameless directories, and of everything below them, to `used`. Sets beyond
/// the end of the root directory are treated like contents of such a directory.
pub fn find(volume: &Volume, root: &Chain, used: &mut Bits) -> Result<()> {
    // The clusters of named files and directories, and of directories that were skipped.
    let mut named = Bits::new(volume.boot.clusters)?;
    let all = used.all();
    all.clone()
        .filter(|&cluster| used.has(cluster))
        .for_each(|cluster| named.set(cluster));
    below(volume, root.clone(), used)?;
    let mut fat = Fat::new(volume);
    for cluster in all {
        if used.has(cluster)
            || named.has(cluster)
            || !begins_as_directory(volume, cluster)?
            || fat.next(cluster)? == BAD_CLUSTER
        {
            continue;
        }
        let chain = extent(volume, cluster, used)?;
        if is_apart(volume, &chain, &named)? {
            used.set_all(&chain);
            below(volume, chain, used)?;
        } else {
            // Not examined again: a damaged FAT may lead there from many clusters.
            named.set_all(&chain);
        }
    }
    Ok(())
}

/// Adds the clusters of the sets in a directory, and of all directories below it. Skips sets with
/// clusters that are already used.
fn below(volume: &Volume, directory: Chain, used: &mut Bits) -> Result<()> {
    let mut left = vec![directory];
    while let Some(directory) = left.pop() {
        each_set(volume, &directory, &mut |set| {
            let mut chains = Vec::new();
            for data in set.other_allocations().into_iter().chain([set.data()]) {
                if data.len > 0 && volume.boot.has_cluster(data.first) {
                    chains.push(lenient(volume, data)?);
                }
            }
            if chains
                .iter()
                .flat_map(clusters)
                .any(|cluster| used.has(cluster))
            {
                return Ok(true);
            }
            chains.iter().for_each(|chain| used.set_all(chain));
            if set.file_type() == FileType::Directory {
                left.extend(chains.pop());
            }
            Ok(true)
        })?;
    }
    Ok(())
}

/// Returns whether no sound set of a directory begins in a cluster of `named`.
fn is_apart(volume: &Volume, directory: &Chain, named: &Bits) -> Result<bool> {
    let mut is_apart = true;
    each_set(volume, directory, &mut |set| {
        is_apart &= !named.has(set.data().first);
        Ok(is_apart)
    })?;
    Ok(is_apart)
}

/// Visits the sound sets in these clusters, even beyond the end of the directory, until `visit`
/// returns false.
fn each_set(
    volume: &Volume,
    directory: &Chain,
    visit: &mut dyn FnMut(&EntrySet) -> Result<bool>,
) -> Result<()> {
    let mut slots = Slots::new(volume, directory, None);
    let mut slot = 0;
    while let Some(entry) = slots.entry(slot)? {
        let mut next = slot + 1;
        if entry[0] == kind::FILE
            && let Read::Set(taken) = salvage::read(&mut slots, slot)?
            && taken.wrong.is_none()
        {
            next = slot + taken.entries;
            if !visit(&taken.set)? {
                return Ok(());
            }
        }
        slot = next;
    }
    Ok(())
}

/// Returns whether a cluster may begin a directory: its first byte fits, and a sound set is among
/// its first entries.
pub fn begins_as_directory(volume: &Volume, cluster: u32) -> Result<bool> {
    let mut first = [0];
    volume.read(volume.boot.cluster_at(cluster), &mut first)?;
    let [first] = first.map(|first| first | kind::IN_USE);
    let is_entry = matches!(first, kind::FILE | kind::STREAM | kind::NAME);
    Ok(is_entry && holds_entries(volume, cluster)? == Some(true))
}

/// Returns the clusters of a directory of unknown length: its chain, or the adjacent clusters that
/// look like a directory.
fn extent(volume: &Volume, first: u32, used: &Bits) -> Result<Chain> {
    let followed = follow(volume, first, None)?;
    if followed.stop == Stop::Whole && followed.chain.clusters() > 1 {
        return Ok(followed.chain);
    }
    let mut chain = Chain::contiguous(first, 1);
    let mut next = first + 1;
    while volume.boot.has_cluster(next) && !used.has(next) && begins_as_directory(volume, next)? {
        chain.push(next, 1);
        next += 1;
    }
    Ok(chain)
}
