//! The runs of one piece of work in one way, and medians of them.

use anyhow::{Error, Result};

use crate::counters::Counters;
use crate::statistics::{Summary, middle};

/// Runs that came to their end, and the errors of the others.
#[derive(Debug)]
pub struct Samples<T> {
    /// The results.
    pub runs: Vec<T>,
    /// Why nothing came out.
    pub failures: Vec<Error>,
}

impl<T> Default for Samples<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Samples<T> {
    /// Creates samples without runs.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            runs: Vec::new(),
            failures: Vec::new(),
        }
    }

    /// Adds a run, or why there is none.
    pub fn push(&mut self, run: Result<T>) {
        match run {
            Ok(run) => self.runs.push(run),
            Err(error) => self.failures.push(error),
        }
    }

    /// Sums up a time; `None` where there are no runs.
    pub fn summary(&self, of: impl Fn(&T) -> f64) -> Option<Summary> {
        let values: Vec<f64> = self.runs.iter().map(of).collect();
        Summary::of(&values)
    }

    /// Returns the median of a time; `None` where there are no runs.
    pub fn time(&self, of: impl Fn(&T) -> f64) -> Option<f64> {
        self.summary(of).map(|summary| summary.median)
    }

    /// Returns the median of a counter; `None` where no run has counters. A counter that a run does
    /// not name is 0.
    pub fn counter(&self, of: impl Fn(&T) -> &Counters, name: &str) -> Option<u64> {
        let counted = self
            .runs
            .iter()
            .map(of)
            .filter(|counters| !counters.is_empty());
        middle(counted.map(|counters| counters.get(name).copied().unwrap_or(0)))
    }

    /// Returns the mean number of bytes of a request to the image.
    pub fn request_len(&self, of: impl Fn(&T) -> &Counters) -> Option<u64> {
        let bytes = self.counter(&of, "source_bytes")?;
        bytes.checked_div(self.counter(&of, "source_requests")?)
    }

    /// Returns the errors, for programs.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        self.failures.iter().map(|e| format!("{e:#}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_is_not_told_is_0_where_others_are() {
        let mut samples = Samples::new();
        samples.push(Ok(Counters::new()));
        assert_eq!(samples.counter(|run| run, "opens"), None);
        let told = [("source_requests", 2), ("source_bytes", 10)];
        samples.push(Ok(told.map(|(k, v)| (k.to_string(), v)).into()));
        assert_eq!(samples.counter(|run| run, "opens"), Some(0));
        assert_eq!(samples.request_len(|run| run), Some(5));
    }

    #[test]
    fn failures_are_no_runs() {
        let mut samples = Samples::new();
        samples.push(Ok(2.0));
        samples.push(Err(anyhow::anyhow!("inner").context("outer")));
        assert_eq!(samples.time(|run| *run), Some(2.0));
        assert_eq!(samples.errors(), ["outer: inner"]);
    }
}
