//! Follows chains up to the first damage.

use std::collections::BTreeMap;

use forerun_vfs::Result;

use crate::chain::Chain;
use crate::error::Check;
use crate::fat::Fat;
use crate::ondisk::{END_OF_CHAIN, MAX_DIRECTORY};
use crate::volume::Volume;

/// Maximum number of runs of one chain in memory (48 MiB).
pub const MAX_RUNS: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The chain has the requested number of clusters, or ended where no number was requested.
    Whole,
    /// The chain ends too early.
    Early,
    /// The last cluster links to an invalid cluster.
    Link { next: u32 },
    /// The chain returns to one of its own clusters.
    Loop { cluster: u32 },
    /// The chain is longer than a directory may be.
    TooLong,
    /// The chain has more runs than are kept in memory.
    InPieces,
}

/// The sound part of a chain: each cluster is on the volume, and occurs once.
pub struct Followed {
    pub chain: Chain,
    pub stop: Stop,
}

impl Followed {
    /// Returns whether the chain exceeds the driver's limits of length or runs.
    pub const fn is_beyond_limits(&self) -> bool {
        matches!(self.stop, Stop::TooLong | Stop::InPieces)
    }

    /// Returns whether the chain continues after the requested clusters.
    pub fn goes_on(&self, volume: &Volume) -> Result<bool> {
        match (self.stop, self.chain.last()) {
            (Stop::Whole, Some(last)) => Ok(Fat::new(volume).next(last)? != END_OF_CHAIN),
            _ => Ok(false),
        }
    }

    /// Returns the error that the driver would report for the chain; `None` for a complete one.
    pub fn check(&self, need: u32) -> Option<Check> {
        let found = u64::from(self.chain.clusters());
        let need = u64::from(need);
        match self.stop {
            Stop::Whole => None,
            Stop::Early => Some(Check::ChainShort { found, need }),
            Stop::Link { next } => Some(Check::ChainLink {
                cluster: self.chain.last().unwrap_or(0),
                found,
                next,
            }),
            Stop::Loop { cluster } => Some(Check::ChainLoop { cluster }),
            Stop::TooLong | Stop::InPieces => Some(Check::DirectoryLen {
                limit: MAX_DIRECTORY,
            }),
        }
    }
}

/// Follows the chain from `first` for `need` clusters, or to its end if `need` is `None`. `first`
/// must be on the volume.
pub fn follow(volume: &Volume, first: u32, need: Option<u32>) -> Result<Followed> {
    let longest = volume.boot.clusters_for(MAX_DIRECTORY);
    let mut fat = Fat::new(volume);
    let mut chain = Chain::contiguous(first, 1);
    let (mut cluster, mut stop) = (first, Stop::Whole);
    while need.is_none_or(|need| chain.clusters() < need) {
        let next = fat.next(cluster)?;
        if next == END_OF_CHAIN {
            stop = need.map_or(Stop::Whole, |_| Stop::Early);
            break;
        }
        if !volume.boot.has_cluster(next) {
            stop = Stop::Link { next };
            break;
        }
        let runs = chain.runs().len();
        chain.push(next, 1);
        cluster = next;
        let len = chain.runs().len();
        // Each round of a loop begins a new run, so this test finds a loop soon.
        if len > runs && len.is_power_of_two() && chain.double().is_some() {
            break;
        }
        if len > MAX_RUNS {
            stop = Stop::InPieces;
            break;
        }
        if need.is_none() && u64::from(chain.clusters()) > longest {
            stop = Stop::TooLong;
            break;
        }
    }
    if let Some(cluster) = cut_loop(&mut chain) {
        stop = Stop::Loop { cluster };
    }
    Ok(Followed { chain, stop })
}

/// Truncates a chain before the first cluster that occurs twice, and returns that cluster.
fn cut_loop(chain: &mut Chain) -> Option<u32> {
    chain.double()?;
    let mut seen = BTreeMap::new();
    let mut found = None;
    for run in chain.runs() {
        let end = run.cluster + run.count;
        let before = seen.range(..=run.cluster).next_back();
        let at = match before {
            Some((_, &seen_end)) if seen_end > run.cluster => Some(run.cluster),
            _ => seen.range(run.cluster..end).next().map(|(&start, _)| start),
        };
        if let Some(at) = at {
            found = Some((run.index + (at - run.cluster), at));
            break;
        }
        seen.insert(run.cluster, end);
    }
    let (index, cluster) = found?;
    chain.truncate(index);
    Some(cluster)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_cut_where_they_close() {
        let mut chain = Chain::default();
        for (cluster, count) in [(10, 3), (20, 2), (8, 4)] {
            chain.push(cluster, count);
        }
        assert_eq!(cut_loop(&mut chain), Some(10));
        assert_eq!((chain.clusters(), chain.last()), (7, Some(9)));
        assert_eq!(cut_loop(&mut chain), None);
    }
}
