//! Finds directories that no entry names, without an allocation bitmap, and the clusters of what is in
//! them.
//!
//! A cluster of a removed or overwritten directory may look the same. So a directory counts only if no
//! file in it has a cluster that something else has.

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

/// Adds the clusters of directories without a name, and of all that is below them, to `used`. Sets behind
/// the end of the root directory count as below such a directory.
///
/// # Errors
/// `Io`, `Limit`.
pub fn find(volume: &Volume, root: &Chain, used: &mut Bits) -> Result<()> {
    // The clusters of what has a name, and of directories that were passed over.
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
            // Not looked at again: a damaged FAT may lead there from many clusters.
            named.set_all(&chain);
        }
    }
    Ok(())
}

/// Adds the clusters of the sets in a directory, and of all directories below it. Leaves out sets with
/// clusters that are used already.
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

/// Visits the sound sets in these clusters, also those behind the end of the directory, until `visit`
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

/// Returns whether the first bytes of a cluster may be those of a directory, and a sound set is among its
/// first entries.
///
/// # Errors
/// `Io`.
pub fn begins_as_directory(volume: &Volume, cluster: u32) -> Result<bool> {
    let mut first = [0];
    volume.read(volume.boot.cluster_at(cluster), &mut first)?;
    let [first] = first.map(|first| first | kind::IN_USE);
    let is_entry = matches!(first, kind::FILE | kind::STREAM | kind::NAME);
    Ok(is_entry && holds_entries(volume, cluster)? == Some(true))
}

/// Returns the clusters of a directory whose length is not known: its chain, or the clusters that follow
/// and begin as directories do.
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
