//! The samples that one way of doing some work takes in all rounds, and their medians.

use anyhow::{Error, Result};

use super::run::Run;
use super::statistics::{Summary, middle};

/// Runs that came to their end, and the errors of the others.
#[derive(Debug, Default)]
pub struct Samples {
    pub runs: Vec<Run>,
    /// Why nothing came out.
    pub failures: Vec<Error>,
}

impl Samples {
    /// Adds a run, or why there is none.
    pub fn push(&mut self, run: Result<Run>) {
        match run {
            Ok(run) => self.runs.push(run),
            Err(error) => self.failures.push(error),
        }
    }

    /// Sums up the times; `None` where there are no runs.
    pub fn summary(&self) -> Option<Summary> {
        let values: Vec<f64> = self.runs.iter().map(|run| run.seconds).collect();
        Summary::of(&values)
    }

    /// Returns the data that all runs found, or `None` where they differ.
    pub fn found(&self) -> Option<&str> {
        let first = &self.runs.first()?.found;
        let is_same = self.runs.iter().all(|run| run.found == *first);
        is_same.then_some(first)
    }

    /// Returns the most memory of all runs.
    pub fn peak(&self) -> Option<u64> {
        self.runs.iter().filter_map(|run| run.peak).max()
    }

    /// Returns the median of a counter; `None` where no run has counters. A counter that a run does
    /// not name is 0.
    pub fn counter(&self, name: &str) -> Option<u64> {
        let counters = self.runs.iter().map(|run| &run.counters);
        let counted = counters.filter(|counters| !counters.is_empty());
        middle(counted.map(|counters| counters.get(name).copied().unwrap_or(0)))
    }

    /// Returns the mean number of bytes of a request to the image.
    pub fn request_len(&self) -> Option<u64> {
        let bytes = self.counter("source_bytes")?;
        bytes.checked_div(self.counter("source_requests")?)
    }

    /// Returns the number of messages of the FUSE protocol.
    pub fn messages(&self) -> Option<u64> {
        let of = |run: &Run| {
            let named = run.counters.iter();
            let named = named.filter(|(name, _)| name.starts_with("fuse_"));
            named.map(|(_, count)| count).sum::<u64>()
        };
        middle(self.runs.iter().map(of)).filter(|&count| count > 0)
    }

    /// Returns the errors, for programs.
    pub fn errors(&self) -> Vec<String> {
        self.failures.iter().map(|e| format!("{e:#}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seconds: f64, counters: &[(&str, u64)]) -> Result<Run> {
        let counters = counters.iter().map(|(name, n)| ((*name).to_string(), *n));
        Ok(Run {
            seconds,
            counters: counters.collect(),
            ..Run::default()
        })
    }

    #[test]
    fn a_counter_that_is_not_told_is_0_where_others_are() {
        let mut samples = Samples::default();
        samples.push(run(1.0, &[]));
        assert_eq!(samples.counter("opens"), None);
        samples.push(run(1.0, &[("source_requests", 2), ("source_bytes", 10)]));
        assert_eq!(samples.counter("opens"), Some(0));
        assert_eq!(samples.request_len(), Some(5));
    }

    #[test]
    fn failures_are_no_runs() {
        let mut samples = Samples::default();
        samples.push(run(2.0, &[]));
        samples.push(Err(anyhow::anyhow!("inner").context("outer")));
        assert_eq!(samples.summary().unwrap().median, 2.0);
        assert_eq!(samples.errors(), ["outer: inner"]);
    }
}
