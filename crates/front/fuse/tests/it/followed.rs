//! Requests are taken on the CPU of the requesting program.

use std::fs::{self, File};
use std::io::Read;

use forerun_fuse::Operation;
use forerun_testkit::eventually;

use crate::volume::{Test, pattern};

/// Checks that requests of a program that reads small files one by one are taken on its CPU. On a
/// volume each file needs OPEN, READ and RELEASE, each of which used to wake a thread on another
/// CPU.
#[test]
fn a_reader_of_small_files_is_followed_to_its_cpu() {
    const FILES: usize = 1000;
    let Some(test) = Test::new("rw_followed") else {
        return;
    };
    let content = pattern(1, 4000);
    let written = |n: usize| fs::write(test.path(&format!("{n:04}")), &content);
    (0..FILES).for_each(|n| written(n).unwrap());
    let before = test.mount.requests();
    for n in 0..FILES {
        let file = File::open(test.path(&format!("{n:04}"))).unwrap();
        // Written data is still in the page cache.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let mut bytes = Vec::new();
        (&file).read_to_end(&mut bytes).unwrap();
        assert!(bytes == content);
    }
    let after = test.mount.requests();
    let of = |kind| after.get(kind) - before.get(kind);
    let reads = of(Operation::Read);
    assert!(reads >= FILES as u64, "{reads} requests");
    let followed = of(Operation::Followed);
    // With one CPU there is nothing to choose.
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert!(
            followed > reads,
            "{followed} requests followed, {reads} reads"
        );
    }
}

/// Checks that a server follows a program that writes small files to its CPU. Each WRITE used to
/// count as a large request, and enough of these made the server stop following.
#[test]
fn a_writer_of_small_files_is_followed_to_its_cpu() {
    const FILES: usize = 1000;
    let Some(test) = Test::new("rw_followed_writer") else {
        return;
    };
    let content = pattern(1, 4000);
    let before = test.mount.requests();
    for n in 0..FILES {
        fs::write(test.path(&format!("{n:04}")), &content).unwrap();
    }
    let after = test.mount.requests();
    let of = |kind| after.get(kind) - before.get(kind);
    // A CREATE and a WRITE per file; this process waits for both.
    let waited = 2 * FILES as u64;
    let (writes, followed) = (of(Operation::Write), of(Operation::Followed));
    assert!(writes >= waited, "{writes} requests");
    if std::thread::available_parallelism().unwrap().get() > 1 {
        assert!(
            followed > waited,
            "{followed} requests followed, {waited} that a program waited for"
        );
    }
}

/// Returns the names of this process's threads that are pinned, except request threads.
fn pinned_threads() -> Vec<String> {
    let line = |status: &str, key: &str| {
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(key));
        value.unwrap_or_default().trim().to_string()
    };
    let all = line(
        &fs::read_to_string("/proc/self/status").unwrap(),
        "Cpus_allowed:",
    );
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    // Threads may end meanwhile.
    let statuses = tasks.filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
    let pinned = statuses.filter(|status| line(status, "Cpus_allowed:") != all);
    let names = pinned.map(|status| line(&status, "Name:"));
    names.filter(|name| !name.starts_with("fuser-")).collect()
}

/// Checks threads started while the answering thread is pinned to the reader's CPU: they must not
/// inherit the pinning.
#[test]
fn threads_that_answers_start_may_run_anywhere() {
    const FILES: usize = 300;
    let Some(test) = Test::new("rw_free") else {
        return;
    };
    let followed = || test.mount.requests().get(Operation::Followed);
    // Each missing name is one request; nothing has changed yet.
    for n in 0..FILES {
        assert!(!test.path(&format!("none{n}")).exists());
    }
    let before = followed();
    assert!(before > 0 || std::thread::available_parallelism().unwrap().get() == 1);
    fs::write(
        test.path("first"),
        "the first change starts the thread that commits",
    )
    .unwrap();
    eventually("no thread is pinned but those that take requests", || {
        pinned_threads().is_empty()
    });
}
