//! Programs that a test starts, and how starting them affects other tests.
//!
//! Between `fork` and `exec`, a child has copies of all open files of its process. For that moment
//! a lock stays held and a mount stays busy although the test has closed its last file. A test that
//! would mistake this for a defect calls [`forbid`]. Other tests start their programs with
//! [`spawn`] and [`output`], which wait.
//!
//! Measurements of a whole process, such as memory, need a process without other tests: [`alone`].

use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{RwLock, RwLockReadGuard};

use forerun_io::Unpoisoned;

static STARTS: RwLock<()> = RwLock::new(());
/// Names the test that this process runs alone.
const ALONE: &str = "FORERUN_TEST_ALONE";

/// While this exists, [`spawn`] and [`output`] start no program.
#[derive(Debug)]
pub struct Forbidden {
    _read: RwLockReadGuard<'static, ()>,
}

/// Waits until no child is between `fork` and `exec`, and blocks further starts.
///
/// The same thread must start nothing before it drops the returned value, because it would wait for
/// itself.
pub fn forbid() -> Forbidden {
    let read = STARTS.read().unpoisoned();
    Forbidden { _read: read }
}

/// Starts a program. Returns once the child has executed it and has no copies of open files.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _write = STARTS.write().unpoisoned();
    command.spawn()
}

/// Starts a program like [`spawn`], with empty input. Waits for its end and returns its output.
pub fn output(command: &mut Command) -> io::Result<Output> {
    command.stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn(command)?.wait_with_output()
}

/// Returns whether this process runs no test but `name`, the caller's name with its modules. If
/// there are other tests, runs the caller once more in a separate process.
pub fn alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some_and(|alone| alone == name) {
        return true;
    }
    let program = std::env::current_exe().expect("the running program has a path");
    let mut command = Command::new(program);
    command.args(["--exact", name, "--nocapture"]);
    let ran = output(command.env(ALONE, name)).expect("the program starts again");
    let text = String::from_utf8_lossy(&ran.stdout);
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{text}\n{errors}");
    assert!(text.contains(" 1 passed"), "no test is {name}: {text}");
    false
}
