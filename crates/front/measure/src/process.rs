//! Running programs, with errors that say which. All of them are [`active`] while they run.

use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::{fs, io};

use anyhow::{Context, Result, ensure};

use crate::active::{self, Ticket};

/// A process that was started.
#[derive(Debug)]
pub struct Running {
    child: Child,
    _ticket: Ticket,
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

/// Starts a program.
pub fn spawn(command: &mut Command) -> io::Result<Running> {
    let (child, ticket) = active::spawn(command)?;
    Ok(Running {
        child,
        _ticket: ticket,
    })
}

/// Runs a program and collects its output, whatever its status.
pub fn collect(command: &mut Command) -> io::Result<Output> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let Running { child, _ticket } = spawn(command)?;
    child.wait_with_output()
}

/// Runs with the terminal's output. Fails unless the program succeeds.
pub fn run(command: &mut Command) -> Result<()> {
    let running = spawn(command).and_then(|mut running| running.wait());
    let status = running.with_context(|| describe(command))?;
    ensure!(status.success(), "{}: {status}", describe(command));
    Ok(())
}

/// Runs a program and returns what it prints to standard output. Fails unless it succeeds, with its
/// standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output = collect(command).with_context(|| describe(command))?;
    ensure!(
        output.status.success(),
        "{}: {}\n{}",
        describe(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    String::from_utf8(output.stdout).with_context(|| format!("output of {}", describe(command)))
}

/// Formats the command line for people.
#[must_use]
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Removes a file or a directory with all in it, if it is there.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.with_context(|| path.display().to_string())
}
