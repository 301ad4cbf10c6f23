//! The clusters of a file in order, as runs of adjacent clusters.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first cluster of the run within the file.
    pub index: u32,
    /// Number of the first cluster of the run on the volume.
    pub cluster: u32,
    pub count: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    runs: Vec<Run>,
    clusters: u32,
}

impl Chain {
    pub fn contiguous(cluster: u32, count: u32) -> Self {
        let mut chain = Self::default();
        chain.push(cluster, count);
        chain
    }

    pub const fn clusters(&self) -> u32 {
        self.clusters
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub fn is_contiguous(&self) -> bool {
        self.runs.len() <= 1
    }

    /// Returns the first cluster, or 0 for an empty chain, as directory entries store it.
    pub fn first(&self) -> u32 {
        self.runs.first().map_or(0, |run| run.cluster)
    }

    pub fn last(&self) -> Option<u32> {
        self.runs.last().map(|run| run.cluster + (run.count - 1))
    }

    pub fn push(&mut self, cluster: u32, count: u32) {
        if count == 0 {
            return;
        }
        match self.runs.last_mut() {
            Some(run) if run.cluster + run.count == cluster => run.count += count,
            _ => self.runs.push(Run {
                index: self.clusters,
                cluster,
                count,
            }),
        }
        self.clusters += count;
    }

    /// Returns the volume's number of cluster `index` of the file, and how many clusters of its run
    /// follow from there, itself included.
    pub fn locate(&self, index: u32) -> Option<(u32, u32)> {
        let after = self.runs.partition_point(|run| run.index <= index);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let skip = index - run.index;
        (skip < run.count).then(|| (run.cluster + skip, run.count - skip))
    }

    /// Keeps the first `clusters`, and returns the runs that were removed.
    pub fn truncate(&mut self, clusters: u32) -> Vec<(u32, u32)> {
        let mut cut = Vec::new();
        while let Some(run) = self.runs.last_mut()
            && self.clusters > clusters
        {
            let keep = clusters.saturating_sub(run.index).min(run.count);
            cut.push((run.cluster + keep, run.count - keep));
            self.clusters = run.index + keep;
            run.count = keep;
            if keep == 0 {
                self.runs.pop();
            }
        }
        cut.reverse();
        cut
    }

    /// Returns a cluster that two of the runs contain.
    pub fn double(&self) -> Option<u32> {
        let mut runs: Vec<(u32, u32)> = self.runs.iter().map(|r| (r.cluster, r.count)).collect();
        runs.sort_unstable();
        let mut pairs = runs.windows(2);
        pairs.find_map(|pair| match pair {
            [(first, count), (next, _)] if first + (count - 1) >= *next => Some(*next),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(runs: &[(u32, u32)]) -> Chain {
        let mut chain = Chain::default();
        for &(cluster, count) in runs {
            chain.push(cluster, count);
        }
        chain
    }

    #[test]
    fn runs_are_merged_found_and_cut() {
        let mut c = chain(&[(10, 2), (12, 1), (20, 3), (2, 1)]);
        assert_eq!((c.runs().len(), c.clusters()), (3, 7));
        assert_eq!(c.locate(2), Some((12, 1)));
        assert_eq!(c.locate(3), Some((20, 3)));
        assert_eq!(c.locate(6), Some((2, 1)));
        assert_eq!(c.locate(7), None);
        assert_eq!(c.last(), Some(2));
        assert_eq!(c.truncate(4), [(21, 2), (2, 1)]);
        assert_eq!((c.clusters(), c.last()), (4, Some(20)));
        assert_eq!(c.truncate(0), [(10, 3), (20, 1)]);
        assert_eq!((c.first(), c.last()), (0, None));
    }

    #[test]
    fn double_clusters() {
        assert_eq!(chain(&[(10, 2), (20, 3), (12, 1)]).double(), None);
        assert_eq!(chain(&[(10, 2), (20, 3), (11, 1)]).double(), Some(11));
    }
}
