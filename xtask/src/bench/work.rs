//! The work of the measured processes, done by this program.

use std::fs::File;
use std::path::Path;
use std::thread;

use anyhow::{Result, ensure};
use forerun_measure::caches;
use forerun_measure::run::{self, Run, Worker};

use super::tree::BIG_LEN;

/// The user, and the group, as which a bench starts a program that is to have no rights.
pub const NOBODY: u32 = 65534;

/// Reads the large file.
pub fn cat(path: &Path) -> Result<String> {
    let len = run::cat(path)?;
    ensure!(len == BIG_LEN.to_string(), "{len} bytes, not {BIG_LEN}");
    Ok(len)
}

/// Adds the time until what was written to the filesystem of `out` is on its device: a program that leaves more of
/// it to the page cache is not faster.
pub fn until_stored(mut run: Run, out: &Path) -> Result<Run> {
    let dir = File::open(out)?;
    let (seconds, ()) = run::timed(|| Ok(rustix::fs::syncfs(&dir)?))?;
    run.seconds += seconds;
    Ok(run)
}

/// Does some work in two threads at a time: as many as forerun uses on the machines that the bars are for.
pub fn in_threads<T: Send>(work: impl Fn() -> Result<T> + Copy + Send) -> Result<Vec<T>> {
    thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ended.collect()
    })
}

/// Runs some work of this program's own in a process of its own.
pub fn own(work: &[&str], path: &Path) -> Result<String> {
    worker()?.run(work, path)
}

/// Reads all files with four processes.
pub fn four(path: &Path) -> Result<String> {
    worker()?.share(path, 4)
}

/// Empties all caches and has memory at hand: [`caches::drop_all`].
pub fn drop_all() -> Result<()> {
    caches::drop_all(&worker()?)
}

/// Returns this program as the one that does the work.
pub fn worker() -> Result<Worker> {
    Worker::this_program(&["bench", "work"])
}
