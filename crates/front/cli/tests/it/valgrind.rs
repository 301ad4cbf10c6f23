//! The program under valgrind, which hides the vDSO from it.

use std::process::Command;

use forerun_testkit::require;

use crate::common::{Fixture, command, ran};

#[test]
fn the_program_runs_under_valgrind() {
    let (Some(valgrind), Some(fixture)) = (require::program("valgrind"), Fixture::new()) else {
        return;
    };
    let plain = fixture.run(&["ls", "-R", "a.img"]).ok();
    let program = command(&["ls"]);
    let watched = Command::new(valgrind)
        // Optimised code branches on values that do not matter, some of them undefined.
        .args(["--quiet", "--undef-value-errors=no", "--error-exitcode=99"])
        .arg(program.get_program())
        // Valgrind makes system calls from within the process.
        .args(["--no-sandbox", "ls", "-R", "a.img"])
        .current_dir(fixture.dir.path())
        .output()
        .unwrap();
    let watched = ran(watched);
    assert_eq!(watched.code, Some(0), "{}", watched.stderr);
    assert_eq!(watched.stdout, plain.stdout);
}
