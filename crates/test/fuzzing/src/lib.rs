//! The fuzz targets, as plain functions over bytes.
//!
//! libFuzzer calls them from `fuzz/`, and a test of this crate calls them with the stored inputs,
//! so nothing here needs libFuzzer, a sanitizer or a nightly compiler. [`TARGETS`] is the only list
//! of targets. `fuzz/` has one program for each, which a test checks.
//!
//! A target panics if the code under test violates an invariant. Returned errors are not findings.

mod images;
mod input;
pub mod kept;
mod options;
mod targets;
mod trees;

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

pub use forerun_testkit::mutate::{TIME, in_time};
pub use targets::TARGETS;

/// Seeds. Each has a name that is unique in its target.
pub type Seeds = Vec<(String, Vec<u8>)>;

#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub name: &'static str,
    run: fn(&[u8]),
    seeds: fn() -> Result<Seeds, Box<dyn Error>>,
}

impl Target {
    const fn new(
        name: &'static str,
        run: fn(&[u8]),
        seeds: fn() -> Result<Seeds, Box<dyn Error>>,
    ) -> Self {
        Self { name, run, seeds }
    }

    /// Runs the target over `bytes`.
    ///
    /// # Panics
    /// On a finding: the code under test violates an invariant or takes longer than [`TIME`].
    pub fn run(&self, bytes: &[u8]) {
        in_time(|| (self.run)(bytes));
    }

    /// Runs the target over `bytes`. Returns how long it took, or the message of the panic.
    pub fn replay(&self, bytes: &[u8]) -> Result<Duration, String> {
        let began = Instant::now();
        match catch_unwind(AssertUnwindSafe(|| self.run(bytes))) {
            Ok(()) => Ok(began.elapsed()),
            Err(panic) => Err(message_of(panic.as_ref())),
        }
    }

    /// Makes the seeds. The writers make them, so that they follow the formats.
    pub fn seeds(&self) -> Result<Seeds, Box<dyn Error>> {
        (self.seeds)()
    }
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let message = panic.downcast_ref::<String>().cloned();
    let message = message.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    message.unwrap_or_else(|| "a panic without a message".to_string())
}

#[must_use]
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Runs the target called `name` over `bytes`, for the programs in `fuzz/`.
///
/// # Panics
/// Like [`Target::run`], and if there is no such target.
pub fn run(name: &str, bytes: &[u8]) {
    let target = find(name);
    assert!(target.is_some(), "no fuzz target {name}");
    if let Some(target) = target {
        target.run(bytes);
    }
}
