//! Names of other programs that forerun answers to, when it is started by a link with that name.
//!
//! Each program has a file or folder here, which turns its command line into a call of the same functions as
//! forerun's own commands, and their results into its output and exit codes. An option that is not known is
//! refused by name. docs/compat.md lists each option and what becomes of it.

mod fuse_words;
mod squashfuse;
mod unsquashfs;

use std::ffi::{CString, OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::called_as::Program;
use squashfuse::Level;

/// Runs as that program. Returns the exit status.
pub fn run(program: Program, argv: &[OsString]) -> u8 {
    let (name, words) = match argv.split_first() {
        Some((name, words)) => (name.as_os_str(), words),
        None => (OsStr::new(""), [].as_slice()),
    };
    name_process(name);
    match program {
        Program::Squashfuse => squashfuse::run(name, words, Level::High),
        Program::SquashfuseLl => squashfuse::run(name, words, Level::Low),
        Program::Unsquashfs => unsquashfs::run(name, words),
    }
}

/// Sets the name that the list of processes shows, where scripts look for the program.
fn name_process(name: &OsStr) {
    let name = Path::new(name).file_name().unwrap_or(name);
    if let Ok(name) = CString::new(name.as_bytes()) {
        // The list shows 15 bytes; without a name it shows forerun's.
        let _stays = rustix::thread::set_name(&name);
    }
}

/// Prints a line to standard error.
fn complain(line: &str) {
    let line = crate::escape::printable(line);
    // Without a standard error nothing can be reported.
    let _ = writeln!(std::io::stderr(), "{line}");
}
