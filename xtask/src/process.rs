//! Running programs, with errors that say which.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Returns a command for the cargo that runs this.
pub fn cargo(root: &Path) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(cargo);
    command.current_dir(root);
    command
}

/// Runs with the terminal's output. Fails unless the program succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| describe(command))?;
    ensure!(status.success(), "{}: {status}", describe(command));
    Ok(())
}

/// Runs a program and returns what it prints to standard output. Fails unless it succeeds, with its
/// standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| describe(command))?;
    ensure!(
        output.status.success(),
        "{}: {}\n{}",
        describe(command),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).with_context(|| format!("output of {}", describe(command)))
}

/// Formats the command line for people.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}
