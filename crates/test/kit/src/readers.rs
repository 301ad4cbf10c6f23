//! Processes that each read a different part of a file, bypassing the page cache.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{children, eventually};

/// A reader that takes longer is assumed to hang.
const READER_TIMEOUT: Duration = Duration::from_secs(60);

/// The processes. Dropping kills them.
#[derive(Debug)]
pub struct DirectReaders(Vec<Child>);

impl DirectReaders {
    /// Starts `count` processes that each read one block. Returns when all of them wait for it.
    pub fn waiting(file: &Path, block: usize, count: usize) -> Self {
        assert_eq!(file.canonicalize().unwrap(), file);
        let reader = |part| {
            let mut dd = Command::new("dd");
            dd.args(["of=/dev/null", "count=1", "iflag=direct"])
                .args([format!("bs={block}"), format!("skip={part}")])
                .arg(format!("if={}", file.display()));
            dd.stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            children::spawn(&mut dd).unwrap()
        };
        let readers = Self((0..count).map(reader).collect());
        for reader in &readers.0 {
            eventually("the reader waits", || waits_for(reader.id(), file));
        }
        readers
    }

    pub fn kill(&mut self) {
        for reader in &mut self.0 {
            reader.kill().unwrap();
        }
    }

    /// Waits until all have ended. Returns how many have read their block.
    pub fn wait(mut self) -> usize {
        let until = Instant::now() + READER_TIMEOUT;
        let mut succeeded = 0;
        while let Some(reader) = self.0.last_mut() {
            if let Some(status) = reader.try_wait().unwrap() {
                succeeded += usize::from(status.success());
                self.0.pop();
                continue;
            }
            assert!(Instant::now() < until, "{} readers are left", self.0.len());
            thread::sleep(Duration::from_millis(5));
        }
        succeeded
    }
}

impl Drop for DirectReaders {
    fn drop(&mut self) {
        for reader in &mut self.0 {
            let _has_ended = reader.kill();
        }
    }
}

/// Returns whether a process sleeps after it has opened `path` as its standard input, the last step
/// of `dd` before it reads.
fn waits_for(pid: u32, path: &Path) -> bool {
    let input = fs::read_link(format!("/proc/{pid}/fd/0"));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let sleeps = stat.contains(") S ") || stat.contains(") D ");
    input.is_ok_and(|input| input == path) && sleeps
}
