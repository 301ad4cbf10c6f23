//! Repairs the data of entry sets: their lengths and clusters must be consistent, and no cluster
//! may have two owners.
//!
//! The first set in the walk keeps its clusters. A later set with the same clusters gets a copy of
//! all its data in free clusters: both chains share words of the FAT, so no word can be changed for
//! only one of them. A directory that shares clusters with another directory is truncated instead:
//! its entries are already reachable there, and a directory inside itself would never end.

use std::rc::Rc;

use forerun_io::{u64_from, usize_from};
use forerun_vfs::{FileType, Result};

use super::extent;
use super::fields::{Doubt, SetPlace, edited, path_of};
use super::report::Kind;
use super::work::{TAKE, Work};
use crate::bits::clusters;
use crate::boot::Boot;
use crate::chain::Chain;
use crate::entry_set::{Allocation, EntrySet};
use crate::error::Check;
use crate::follow::{Followed, Stop, follow};
use crate::ondisk::{ENTRY, FIRST_CLUSTER};

const VALID_AT: usize = ENTRY + 8;
/// Bytes that are copied at once.
const COPIED: u64 = 1 << 20;

/// A set with its clusters after the repair.
pub struct Settled {
    pub set: EntrySet,
    /// The clusters of a directory to walk.
    pub chain: Option<Chain>,
}

/// A set with the clusters that its length needs.
pub struct Sized {
    pub set: EntrySet,
    pub chain: Chain,
    /// The first cluster that something else has claimed, and its index in the chain.
    pub shared: Option<(u32, u32)>,
    /// The cluster after which the chain must be truncated.
    pub end: Option<u32>,
}

/// Repairs lengths and clusters of a set, and claims the clusters.
pub fn settle(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    set: EntrySet,
    doubt: Doubt,
) -> Result<Settled> {
    let path = path_of(here, &set);
    let set = first_cluster(work, here, &path, set)?;
    let set = match doubt {
        Doubt::None => set,
        Doubt::Damaged | Doubt::Nameless => extent::kind(work, here, &path, set)?,
    };
    let data = set.data();
    let is_directory = set.file_type() == FileType::Directory;
    if data.len == 0 || !work.volume.boot.has_cluster(data.first) {
        let is_empty = data.len == 0 && data.first == 0;
        let set = valid_length(work, here, &path, set);
        return if is_directory && is_empty {
            Ok(empty_directory(work, here, &path, set)?)
        } else {
            Ok(Settled { set, chain: None })
        };
    }
    let sized = length(work, here, &path, set)?;
    let sized = extent::written(work, here, &path, sized, doubt)?;
    let (set, chain) = alone(work, here, &path, sized)?;
    let set = valid_length(work, here, &path, set);
    work.claimed.set_all(&chain);
    if is_directory {
        work.directories.set_all(&chain);
    }
    let chain = Some(chain).filter(|chain| is_directory && chain.clusters() > 0);
    Ok(Settled { set, chain })
}

/// Repairs a set if only one of length and first cluster is 0, or if its first cluster is not on
/// the volume.
fn first_cluster(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    set: EntrySet,
) -> Result<EntrySet> {
    let data = set.data();
    let boot = &work.volume.boot;
    let is_there = boot.has_cluster(data.first);
    let (check, to) = match (data.len, data.first) {
        (0, 0) => return Ok(set),
        (0, cluster) => {
            let check = Check::UnusedClusters { cluster };
            let is_directory = set.file_type() == FileType::Directory;
            if is_directory && is_there && !work.claimed.has(cluster) {
                let chain = follow(&work.volume, cluster, None)?.chain;
                let len = u64::from(chain.clusters()) << work.volume.boot.cluster_bits;
                let remedy = format!("make the directory {len} bytes long");
                if work.ask(Kind::Length, Some(path), (check, here.at), remedy) {
                    let mut set = set;
                    let contiguous = false;
                    set.set_data(
                        Allocation {
                            len,
                            contiguous,
                            ..data
                        },
                        len,
                    );
                    return Ok(set);
                }
                return Ok(set);
            }
            (check, "say that it has no cluster")
        }
        (len, 0) => (Check::NoCluster { len }, "make it empty"),
        (_, cluster) if !is_there => {
            let (what, count) = ("data", boot.clusters);
            let check = Check::ClusterRange {
                what,
                cluster,
                count,
            };
            (check, "make it empty")
        }
        _ => return Ok(set),
    };
    if !work.ask(Kind::Length, Some(path), (check, here.at), to) {
        return Ok(set);
    }
    let mut set = set;
    work.desk.gave_up |= data.len > 0;
    set.set_data(Allocation::default(), 0);
    Ok(set)
}

/// Adds a cluster to an empty directory, because each directory needs one.
fn empty_directory(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    set: EntrySet,
) -> Result<Settled> {
    let check = Check::NoCluster { len: 0 };
    let mut set = set;
    if !work.has_room(1)? {
        work.leave(Kind::Length, Some(path), check, here.at);
    } else if work.ask(
        Kind::Length,
        Some(path),
        (check, here.at),
        "give it a cluster",
    ) && let Some(chain) = new_cluster(work, &mut set)?
    {
        work.directories.set_all(&chain);
    }
    Ok(Settled { set, chain: None })
}

/// Returns the clusters that the length needs, or a set with a length that fits its clusters.
fn length(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    set: EntrySet,
) -> Result<Sized> {
    let volume = Rc::clone(&work.volume);
    let data = set.data();
    let most = volume.boot.heap_len();
    let (followed, check) = followed_to_length(work, &set)?;
    if followed.is_beyond_limits() {
        let check = check.unwrap_or(Check::DataLen {
            len: data.len,
            most,
        });
        work.leave(Kind::Unreadable, Some(path), check, here.at);
        let (chain, shared, end) = (followed.chain, None, None);
        return Ok(Sized {
            set,
            chain,
            shared,
            end,
        });
    }
    let too_long = (data.len > most).then_some(Check::DataLen {
        len: data.len,
        most,
    });
    let shared = first_shared(work, &followed.chain);
    let (mut set, mut end) = (set, None);
    if let Some(check) = too_long.or(check) {
        end = shorten(work, here, path, (&mut set, &followed), check);
    } else if shared.is_none() && !data.contiguous && followed.goes_on(&volume)? {
        let need = clusters_on_the_volume(&volume.boot, data.len).into();
        let at = (Check::ChainLong { need }, here.at);
        if work.ask(Kind::ChainLong, Some(path), at, "cut it there") {
            end = followed.chain.last();
        }
    }
    let chain = followed.chain;
    even(work, here, path, &mut set, &chain);
    Ok(Sized {
        set,
        chain,
        shared,
        end,
    })
}

/// Returns the number of clusters for a length, limited to the clusters of the volume.
fn clusters_on_the_volume(boot: &Boot, len: u64) -> u32 {
    u32::try_from(boot.clusters_for(len)).map_or(boot.clusters, |count| count.min(boot.clusters))
}

/// Returns the clusters of a set, at most as many as its length needs, and the damage.
fn followed_to_length(
    work: &mut Work<'_, '_>,
    set: &EntrySet,
) -> Result<(Followed, Option<Check>)> {
    let volume = Rc::clone(&work.volume);
    let boot = &volume.boot;
    let data = set.data();
    let need = clusters_on_the_volume(boot, data.len);
    if !data.contiguous {
        let followed = follow(&volume, data.first, Some(need))?;
        let check = followed.check(need);
        return Ok((followed, check));
    }
    let wanted = boot.clusters_for(data.len);
    let end = boot.clusters + FIRST_CLUSTER;
    let count = need.min(end - data.first);
    let check = (u64::from(count) < wanted).then_some(Check::RunRange {
        first: data.first,
        count: wanted,
        clusters: boot.clusters,
    });
    let chain = Chain::contiguous(data.first, count);
    let chain = match check {
        Some(_) => extent::likely(work, set, chain)?,
        None => chain,
    };
    let stop = Stop::Whole;
    Ok((Followed { chain, stop }, check))
}

/// Shortens a set to the clusters that were found. Returns the cluster after which the chain must
/// be truncated, if it does not end there.
fn shorten(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    (set, followed): (&mut EntrySet, &Followed),
    check: Check,
) -> Option<u32> {
    let data = set.data();
    let there = u64::from(followed.chain.clusters()) * work.volume.boot.cluster_size();
    let len = data.len.min(there);
    let remedy = format!("make it {len} bytes long");
    if !work.ask(Kind::Chain, Some(path), (check, here.at), remedy) {
        return None;
    }
    set.set_data(Allocation { len, ..data }, valid_of(set, len));
    work.desk.gave_up = true;
    let is_open = !matches!(followed.stop, Stop::Whole | Stop::Early);
    followed.chain.last().filter(|_| is_open)
}

/// Extends the length of a directory to whole clusters.
fn even(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    set: &mut EntrySet,
    chain: &Chain,
) {
    let (data, cluster) = (set.data(), work.volume.boot.cluster_size());
    if set.file_type() != FileType::Directory || data.len.is_multiple_of(cluster) {
        return;
    }
    let there = u64::from(chain.clusters()) * cluster;
    let check = Check::DirectoryUneven {
        len: data.len,
        cluster,
    };
    let remedy = format!("make it {there} bytes long");
    if work.ask(Kind::Length, Some(path), (check, here.at), remedy) {
        set.set_data(Allocation { len: there, ..data }, there);
    }
}

/// Returns the first cluster that is already claimed, and its index.
pub fn first_shared(work: &Work<'_, '_>, chain: &Chain) -> Option<(u32, u32)> {
    let mut numbered = clusters(chain).zip(0_u32..);
    numbered.find(|&(cluster, _)| work.claimed.has(cluster))
}

/// Returns the set with clusters that nothing else has.
fn alone(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    sized: Sized,
) -> Result<(EntrySet, Chain)> {
    let (set, chain) = (sized.set, sized.chain);
    let Some((cluster, index)) = sized.shared else {
        work.cuts.extend(sized.end);
        return Ok((set, chain));
    };
    let check = Check::CrossLink { cluster };
    let is_directory = set.file_type() == FileType::Directory;
    if is_directory && work.directories.has(cluster) {
        let remedy = "end it before what another directory has";
        if work.ask(Kind::CrossLink, Some(path), (check, here.at), remedy) {
            return cut(work, set, chain, index);
        }
        // The walk visits its entries in the directory that owns the clusters.
        return Ok((set, before(chain, index)));
    }
    if work.has_room(chain.clusters())? {
        let remedy = format!("give it a copy of its {} clusters", chain.clusters());
        if !work.ask(Kind::CrossLink, Some(path), (check, here.at), remedy) {
            return Ok((set, chain));
        }
        return copied(work, set, chain);
    }
    let remedy = "there is no room for a copy: cut off what is shared";
    if work.ask(Kind::CrossLinkCut, Some(path), (check, here.at), remedy) {
        return cut(work, set, chain, index);
    }
    Ok((set, chain))
}

/// Returns the set with a copy of its data in new clusters.
fn copied(work: &mut Work<'_, '_>, set: EntrySet, chain: Chain) -> Result<(EntrySet, Chain)> {
    let Some(copy) = work.take(chain.clusters())? else {
        work.desk.undo(Kind::CrossLink);
        return Ok((set, chain));
    };
    let is_directory = set.file_type() == FileType::Directory;
    let len = set.data().len;
    let valid = if is_directory { len } else { set.valid_len() };
    duplicate(work, &chain, &copy, valid)?;
    let mut set = set;
    let data = Allocation {
        first: copy.first(),
        len,
        contiguous: copy.is_contiguous(),
    };
    set.set_data(data, set.stream().valid_data_length.get());
    // A dry run does not write the copy, so it cannot be read.
    Ok((set, if work.dry { chain } else { copy }))
}

/// Copies the first `len` bytes, rounded up to whole clusters.
fn duplicate(work: &mut Work<'_, '_>, from: &Chain, to: &Chain, len: u64) -> Result<()> {
    if work.dry {
        return Ok(());
    }
    let volume = Rc::clone(&work.volume);
    let size = volume.boot.cluster_size();
    let len = volume.boot.clusters_for(len) * size;
    let mut buffer = vec![0; usize_from(len.min(COPIED))];
    let mut at = 0;
    while at < len {
        let now = usize_from((len - at).min(COPIED));
        let bytes = &mut buffer[..now];
        volume.read_chain(from, at, bytes)?;
        let mut rest: &[u8] = bytes;
        for (offset, len) in volume.pieces(to, at, u64_from(now)) {
            let (piece, after) = rest.split_at(usize_from(len));
            work.write(TAKE, offset, piece)?;
            rest = after;
        }
        work.breathe()?;
        at += u64_from(now);
    }
    Ok(())
}

/// Returns the set without its clusters from number `index` on.
fn cut(
    work: &mut Work<'_, '_>,
    set: EntrySet,
    chain: Chain,
    index: u32,
) -> Result<(EntrySet, Chain)> {
    let data = set.data();
    let there = u64::from(index) << work.volume.boot.cluster_bits;
    let chain = before(chain, index);
    let mut set = set;
    work.desk.gave_up = true;
    if index > 0 {
        let len = data.len.min(there);
        set.set_data(Allocation { len, ..data }, valid_of(&set, len));
        if let Some(last) = chain.last().filter(|_| !data.contiguous) {
            work.cuts.push(last);
        }
        return Ok((set, chain));
    }
    set.set_data(Allocation::default(), 0);
    if set.file_type() == FileType::Directory
        && let Some(new) = new_cluster(work, &mut set)?
    {
        return Ok((set, new));
    }
    Ok((set, Chain::default()))
}

/// Allocates a cluster of zeros for an empty directory.
fn new_cluster(work: &mut Work<'_, '_>, set: &mut EntrySet) -> Result<Option<Chain>> {
    let Some(chain) = work.take(1)? else {
        return Ok(None);
    };
    work.clear_cluster(chain.first())?;
    let len = work.volume.boot.cluster_size();
    let data = Allocation {
        first: chain.first(),
        len,
        contiguous: true,
    };
    set.set_data(data, len);
    Ok(Some(chain))
}

fn before(chain: Chain, index: u32) -> Chain {
    let mut chain = chain;
    chain.truncate(index);
    chain
}

/// Returns the `ValidDataLength` for data that is now `len` bytes long.
pub fn valid_of(set: &EntrySet, len: u64) -> u64 {
    match set.file_type() {
        FileType::Directory => len,
        _ => set.stream().valid_data_length.get(),
    }
}

fn valid_length(
    work: &mut Work<'_, '_>,
    here: &SetPlace<'_>,
    path: &[u8],
    set: EntrySet,
) -> EntrySet {
    let (valid, len) = (set.stream().valid_data_length.get(), set.data().len);
    let is_directory = set.file_type() == FileType::Directory;
    if valid <= len && (!is_directory || valid == len) {
        return set;
    }
    let check = Check::ValidLen { valid, len };
    let remedy = format!("say that all {len} bytes are valid");
    if work.ask(Kind::Length, Some(path), (check, here.at), remedy) {
        edited(set, &[(VALID_AT, &len.to_le_bytes())])
    } else {
        set
    }
}
