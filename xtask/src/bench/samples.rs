//! The runs of one piece of work in one way, and medians of them.

use anyhow::{Error, Result};

use super::mount::Counters;

/// Runs that came to their end, and the errors of the others.
pub struct Samples<T> {
    /// The results.
    pub runs: Vec<T>,
    /// Why nothing came out.
    pub failures: Vec<Error>,
}

impl<T> Samples<T> {
    /// Creates samples without runs.
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
            Err(error) => {
                eprintln!("FAILED: {error:#}");
                self.failures.push(error);
            }
        }
    }

    /// Returns the median of a time; `None` where there are no runs.
    pub fn time(&self, of: impl Fn(&T) -> f64) -> Option<f64> {
        let mut values: Vec<f64> = self.runs.iter().map(of).collect();
        (!values.is_empty()).then(|| median(&mut values))
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
    pub fn errors(&self) -> Vec<String> {
        self.failures.iter().map(|e| format!("{e:#}")).collect()
    }
}

/// Returns the value in the middle, or the upper of the two.
pub fn middle(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Returns the middle value, or the mean of the two in the middle; 0 where there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.len() % 2, values.get(middle)) {
        (1, Some(value)) => *value,
        (_, Some(value)) => f64::midpoint(values[middle - 1], *value),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(&mut []), 0.0);
        assert_eq!(middle([5, 1, 3].into_iter()), Some(3));
        assert_eq!(middle([].into_iter()), None);
    }

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
}
