//! The work of the measured processes, done by this program.

use std::path::Path;

use anyhow::{Result, ensure};
use forerun_measure::run::{self, Worker};

use super::tree::BIG_LEN;

/// Reads the large file.
pub fn cat(path: &Path) -> Result<String> {
    let len = run::cat(path)?;
    ensure!(len == BIG_LEN.to_string(), "{len} bytes, not {BIG_LEN}");
    Ok(len)
}

/// Runs some work of this program's own in a process of its own.
pub fn own(work: &[&str], path: &Path) -> Result<String> {
    worker()?.run(work, path)
}

/// Reads all files with four processes.
pub fn four(path: &Path) -> Result<String> {
    worker()?.share(path, 4)
}

fn worker() -> Result<Worker> {
    Worker::this_program(&["bench", "work"])
}
