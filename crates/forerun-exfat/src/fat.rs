//! The FAT: which cluster comes after which.

use forerun_io::{saturating_usize, u64_from};
use forerun_vfs::{Error, NodeId, Result};

use crate::chain::Chain;
use crate::entry_set::Allocation;
use crate::error::Check;
use crate::ondisk::{END_OF_CHAIN, MAX_DIRECTORY};
use crate::volume::Volume;

/// What is read of the FAT at once.
const WINDOW: u64 = 4096;
/// Most runs of one chain that are kept in memory: 48 MiB of them.
const MAX_RUNS: usize = 4 << 20;

/// Reads the FAT in windows, so that chains of neighbours cost few reads.
pub struct Fat<'a> {
    volume: &'a Volume,
    start: u64,
    window: Vec<u8>,
}

impl<'a> Fat<'a> {
    /// Nothing is read yet.
    pub const fn new(volume: &'a Volume) -> Self {
        Self {
            volume,
            start: 0,
            window: Vec::new(),
        }
    }

    /// The word of a cluster that the volume has.
    ///
    /// # Errors
    /// Those of reading.
    pub fn next(&mut self, cluster: u32) -> Result<u32> {
        let at = u64::from(cluster) * 4;
        let inside = at.checked_sub(self.start).map(saturating_usize);
        if let Some(word) = inside.and_then(|at| self.window.get(at..at.checked_add(4)?)) {
            return Ok(word.try_into().map_or(0, u32::from_le_bytes));
        }
        let boot = &self.volume.boot;
        let start = at - at % WINDOW;
        let end = (start + WINDOW).min(boot.fat_len);
        // A window at the most.
        let mut window = vec![0; saturating_usize(end.saturating_sub(start))];
        self.volume.read(boot.active_fat() + start, &mut window)?;
        let word = window.get(saturating_usize(at - start)..);
        let word = word.and_then(|word| word.first_chunk::<4>());
        let word = word.map_or(0, |word| u32::from_le_bytes(*word));
        self.start = start;
        self.window = window;
        Ok(word)
    }
}

/// The clusters of an allocation that `what` names, as many as its length takes. Where it is
/// contiguous the FAT is not looked at.
///
/// # Errors
/// `Corrupt` where it is not on the volume, the chain is too short or comes back to itself, `Limit`.
pub fn chain(volume: &Volume, node: Option<NodeId>, at: u64, data: Allocation) -> Result<Chain> {
    let fail = |check: Check| Err(check.at(node, at));
    let boot = &volume.boot;
    let (len, most) = (data.len, boot.heap_len());
    if len > most {
        return fail(Check::DataLen { len, most });
    }
    let need = boot.clusters_for(len);
    if need == 0 {
        return match data.first {
            0 => Ok(Chain::default()),
            cluster => fail(Check::UnusedClusters { cluster }),
        };
    }
    if data.first == 0 {
        return fail(Check::NoCluster { len });
    }
    // At most as many as the volume has.
    let need = u32::try_from(need).unwrap_or(u32::MAX);
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

/// The chain of the root directory, which alone tells how long that is.
///
/// # Errors
/// As [`chain`].
pub fn root_chain(volume: &Volume) -> Result<Chain> {
    follow(volume, None, 0, volume.boot.root, None)
}

/// Follows a chain for `need` clusters, or to its end.
fn follow(
    volume: &Volume,
    node: Option<NodeId>,
    at: u64,
    first: u32,
    need: Option<u32>,
) -> Result<Chain> {
    let fail = |check: Check| Err(check.at(node, at));
    let boot = &volume.boot;
    if !boot.has_cluster(first) {
        return fail(Check::ClusterRange {
            what: "data",
            cluster: first,
            count: boot.clusters,
        });
    }
    let longest = boot.clusters_for(MAX_DIRECTORY);
    let mut fat = Fat::new(volume);
    let mut chain = Chain::contiguous(first, 1);
    let mut cluster = first;
    while need.is_none_or(|need| chain.clusters() < need) {
        let found = u64::from(chain.clusters());
        let next = fat.next(cluster)?;
        match next {
            END_OF_CHAIN if need.is_none() => break,
            END_OF_CHAIN => {
                let need = need.unwrap_or(0).into();
                return fail(Check::ChainShort { found, need });
            }
            next if boot.has_cluster(next) => {}
            next => {
                return fail(Check::ChainLink {
                    cluster,
                    found,
                    next,
                });
            }
        }
        let runs = chain.runs().len();
        chain.push(next, 1);
        cluster = next;
        // Each time around a loop begins a run, so that one is found soon.
        let grown = chain.runs().len() > runs;
        if grown && chain.runs().len().is_power_of_two() {
            no_loop(&chain).map_err(|check| check.at(node, at))?;
        }
        if chain.runs().len() > MAX_RUNS {
            return Err(Error::limit("pieces of a file", u64_from(MAX_RUNS)));
        }
        if need.is_none() && u64::from(chain.clusters()) > longest {
            no_loop(&chain).map_err(|check| check.at(node, at))?;
            return fail(Check::DirectoryLen {
                limit: MAX_DIRECTORY,
            });
        }
    }
    no_loop(&chain).map_err(|check| check.at(node, at))?;
    Ok(chain)
}

fn no_loop(chain: &Chain) -> std::result::Result<(), Check> {
    match chain.double() {
        Some(cluster) => Err(Check::ChainLoop { cluster }),
        None => Ok(()),
    }
}
