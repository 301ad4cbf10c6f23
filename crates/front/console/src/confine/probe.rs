//! For tests: tries what the sandbox must refuse, right after it was entered, and prints the
//! results to standard error. It exists only in builds with debug assertions, and does nothing
//! unless the variable is set.

use std::fs::File;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

use rustix::net::{AddressFamily, SocketType};

/// Enables the probe.
const VARIABLE: &str = "FORERUN_SANDBOX_PROBE";

/// Prints `probe: NAME: refused`, or another result, for each operation.
pub fn run() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    for (name, result) in [
        ("shadow", File::open("/etc/shadow").map(drop)),
        ("exec", exec()),
        ("ptrace", ptrace()),
        ("sockets", socket()),
    ] {
        let said = match result {
            Ok(()) => "allowed".to_string(),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => "refused".to_string(),
            Err(error) => error.to_string(),
        };
        let _ = writeln!(io::stderr(), "probe: {name}: {said}");
    }
}

fn socket() -> io::Result<()> {
    rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    Ok(())
}

fn exec() -> io::Result<()> {
    let mut program = Command::new("/bin/true");
    program.stdin(Stdio::null()).status().map(drop)
}

/// Traces and releases the parent, a process of the same user.
fn ptrace() -> io::Result<()> {
    let parent = nix::unistd::Pid::parent();
    nix::sys::ptrace::attach(parent)?;
    nix::sys::wait::waitpid(parent, None)?;
    nix::sys::ptrace::detach(parent, None)?;
    Ok(())
}
