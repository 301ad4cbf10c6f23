//! Requests that are taken on the CPU of the program that sends them.

use std::fs::{self, File};
use std::io::Read;

use forerun_fuse::Operation;

use crate::volume::{Test, pattern};

/// Checks that requests of a program that reads small files one after the other are taken on its CPU. A volume of
/// which each file takes an OPEN, a READ and a RELEASE woke a thread on another CPU for each of them.
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
        // What was written is in the page cache.
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
