//! Finds the clusters of an allocation, and those of the root directory.

use forerun_io::u64_from;
use forerun_vfs::{Bound, Error, NodeId, Result};

use crate::chain::Chain;
use crate::entry_set::Allocation;
use crate::error::Check;
use crate::follow::{MAX_RUNS, Stop, follow as follow_to_damage};
use crate::ondisk::{FIRST_CLUSTER, MAX_DIRECTORY};
use crate::volume::Volume;

/// Returns the clusters of an allocation, as many as its length needs. Does not read the FAT for a
/// contiguous allocation. An empty allocation has no clusters, even if it names a first one. Rescue
/// mode returns the clusters up to the first damage; otherwise damage is an error.
pub fn chain(volume: &Volume, node: Option<NodeId>, at: u64, data: Allocation) -> Result<Chain> {
    match whole(volume, node, at, data) {
        Err(Error::Corrupt(_)) if volume.rescue => to_damage(volume, data),
        chain => chain,
    }
}

/// Returns the clusters of a directory that is only read. If its length is wrong, returns the clusters up to
/// the first damage.
///
/// # Errors
/// The errors of [`chain`].
pub fn directory_chain(
    volume: &Volume,
    node: Option<NodeId>,
    at: u64,
    data: Allocation,
) -> Result<Chain> {
    let boot = &volume.boot;
    let mut wanted = data;
    if data.unused().is_some() {
        wanted.len = if data.contiguous {
            boot.cluster_size()
        } else {
            MAX_DIRECTORY.min(boot.heap_len())
        };
    }
    match whole(volume, node, at, wanted) {
        Err(error @ Error::Corrupt(_)) => {
            wanted.len = wanted.len.min(MAX_DIRECTORY);
            let chain = to_damage(volume, wanted)?;
            if chain.clusters() == 0 && !volume.rescue {
                Err(error)
            } else {
                Ok(chain)
            }
        }
        chain => chain,
    }
}

/// Returns the clusters of an allocation up to the first damage; an empty chain if the first
/// cluster is invalid.
fn to_damage(volume: &Volume, data: Allocation) -> Result<Chain> {
    let boot = &volume.boot;
    if data.len == 0 || !boot.has_cluster(data.first) {
        return Ok(Chain::default());
    }
    let most = u64::from(boot.clusters + FIRST_CLUSTER - data.first);
    let need = boot.clusters_for(data.len).min(if data.contiguous {
        most
    } else {
        boot.clusters.into()
    });
    // At most the clusters of the volume.
    let need = u32::try_from(need).unwrap_or(boot.clusters);
    if data.contiguous {
        Ok(Chain::contiguous(data.first, need))
    } else {
        Ok(follow_to_damage(volume, data.first, Some(need))?.chain)
    }
}

fn whole(volume: &Volume, node: Option<NodeId>, at: u64, data: Allocation) -> Result<Chain> {
    let fail = |check: Check| Err(check.at(node, at));
    let boot = &volume.boot;
    let (len, most) = (data.len, boot.heap_len());
    if len > most {
        return fail(Check::DataLen { len, most });
    }
    let need = boot.clusters_for(len);
    if need == 0 {
        return Ok(Chain::default());
    }
    if data.first == 0 {
        return fail(Check::NoCluster { len });
    }
    let Ok(need) = u32::try_from(need) else {
        return fail(Check::DataLen { len, most });
    };
    if !data.contiguous {
        return follow(volume, node, at, data.first, Some(need));
    }
    let end = u64::from(data.first) + u64::from(need);
    if !boot.has_cluster(data.first) || end > u64::from(boot.clusters) + 2 {
        return fail(Check::RunRange {
            first: data.first,
            count: need.into(),
            clusters: boot.clusters,
        });
    }
    Ok(Chain::contiguous(data.first, need))
}

/// Returns the chain of the root directory. Only the chain itself gives its length.
pub fn root_chain(volume: &Volume) -> Result<Chain> {
    match follow(volume, None, 0, volume.boot.root, None) {
        Err(Error::Corrupt(_)) if volume.rescue => Ok(root_chain_to_damage(volume)?.0),
        chain => chain,
    }
}

/// Returns the chain of the root directory up to the first damage, and that damage. Fails only if
/// the first cluster is invalid or a read fails.
pub fn root_chain_to_damage(volume: &Volume) -> Result<(Chain, Option<Error>)> {
    let first = volume.boot.root;
    if !volume.boot.has_cluster(first) {
        return follow(volume, None, 0, first, None).map(|chain| (chain, None));
    }
    let followed = follow_to_damage(volume, first, None)?;
    let error = followed.check(0).map(|check| check.at(None, 0));
    Ok((followed.chain, error))
}

/// Follows a chain for `need` clusters, or to its end if `need` is `None`.
fn follow(
    volume: &Volume,
    node: Option<NodeId>,
    at: u64,
    first: u32,
    need: Option<u32>,
) -> Result<Chain> {
    let boot = &volume.boot;
    if !boot.has_cluster(first) {
        let check = Check::ClusterRange {
            what: "data",
            cluster: first,
            count: boot.clusters,
        };
        return Err(check.at(node, at));
    }
    let followed = follow_to_damage(volume, first, need)?;
    match followed.stop {
        Stop::InPieces => Err(Error::limit(
            Bound::Other,
            "pieces of a file",
            u64_from(MAX_RUNS),
        )),
        _ => match followed.check(need.unwrap_or(0)) {
            Some(check) => Err(check.at(node, at)),
            None => Ok(followed.chain),
        },
    }
}
