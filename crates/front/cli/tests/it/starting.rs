//! What it costs to start the program.

use std::fs;
use std::process::Command;

use forerun_testkit::{children, require};

use crate::common::Fixture;

/// System calls from exec(2) to the end of `ls` of a small image. 278 were measured; deeper control
/// groups add a few.
const MOST_CALLS: usize = 300;

#[test]
fn ls_of_a_small_image_takes_few_system_calls() {
    let (Some(strace), Some(fixture)) = (require::program("strace"), Fixture::new()) else {
        return;
    };
    let listing = fixture.command(&["ls", "a.img"]);
    let mut traced = Command::new(strace);
    // The standard library checks descriptors with fcntl(2) in programs without optimisations.
    traced.args(["-f", "-qq", "-e", "trace=!fcntl", "-o", "calls"]);
    // Cargo sets this path, along which the loader looks for libraries.
    traced.env_remove("LD_LIBRARY_PATH");
    traced.arg(listing.get_program()).args(listing.get_args());
    let output = children::output(traced.current_dir(fixture.dir.path())).unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = fs::read_to_string(fixture.path("calls")).unwrap();
    let calls = text.lines().filter(|line| line.contains('('));
    assert!(calls.count() <= MOST_CALLS, "{text}");
    // For the limit of memory, for the number of CPUs, and by the cache of blobs, which counts the
    // CPUs itself.
    let groups = text.lines().filter(|line| line.contains("self/cgroup"));
    assert!(groups.count() <= 3, "{text}");
    let mounts = text.lines().filter(|line| line.contains("self/mountinfo"));
    assert!(mounts.count() <= 1, "{text}");
}
