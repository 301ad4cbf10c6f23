//! Runs programs, with errors that name them. All of them are [`active`] while they run.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{fs, io};

use anyhow::{Context, Result, ensure};
use forerun_sys::programs::find_program;

use super::active::{self, Running, spawn};

/// Starts a program that serves, with its output in a file. It stays in the session of the measured
/// processes, as forerun in the background does.
pub fn spawn_daemon(mut command: Command, log: &File) -> Result<Running> {
    write_to(&mut command, log)?;
    spawn(&mut command).with_context(|| describe(&command))
}

/// Starts a program that serves, with its output in a file and, if setsid(1) is installed, in a
/// session of its own.
///
/// Daemons that use libfuse have their own session in the background. The scheduler shares
/// processors among sessions (autogroup), so a daemon in the readers' session takes another time
/// for the same answers.
pub fn spawn_session_leader(command: Command, log: &File) -> Result<Running> {
    let Some(setsid) = find_program("setsid") else {
        return spawn_daemon(command, log);
    };
    let mut leader = Command::new(setsid);
    leader.arg(command.get_program()).args(command.get_args());
    write_to(&mut leader, log)?;
    active::spawn_in_group(&mut leader).with_context(|| describe(&command))
}

fn write_to(command: &mut Command, log: &File) -> Result<()> {
    command.stdin(Stdio::null());
    command.stdout(log.try_clone()?).stderr(log.try_clone()?);
    Ok(())
}

/// Runs a program and collects its output, whatever its exit status.
pub fn collect(command: &mut Command) -> io::Result<Output> {
    collect_errors(command.stdout(Stdio::piped()))
}

/// Runs a program. Collects its standard error, and its standard output if that is a pipe.
pub fn collect_errors(command: &mut Command) -> io::Result<Output> {
    let Running { child, _ticket } = spawn(command.stderr(Stdio::piped()))?;
    child.wait_with_output()
}

pub fn output(command: &mut Command) -> Result<String> {
    let output = collect(command).with_context(|| describe(command))?;
    let output = successful(command, output)?;
    String::from_utf8(output.stdout).with_context(|| format!("output of {}", describe(command)))
}

/// Returns the output of a command that succeeded. Otherwise fails with its standard error.
pub fn successful(command: &Command, output: Output) -> Result<Output> {
    ensure!(
        output.status.success(),
        "{}: {}\n{}",
        describe(command),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim_end()
    );
    Ok(output)
}

pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Removes a file or a directory tree, if it exists.
pub fn remove(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the process, group and session ids from a stat file: proc_pid_stat(5).
    ///
    /// The session is 0 if its leader is outside the PID namespace, as in a container.
    fn ids(stat: &str) -> [String; 3] {
        let (process, rest) = stat.split_once(' ').unwrap();
        let (_command, rest) = rest.rsplit_once(") ").unwrap();
        let fields: Vec<_> = rest.split(' ').collect();
        [process, fields[2], fields[3]].map(str::to_string)
    }

    /// Uses `spawn` to start a program that reports its ids. Returns its [`ids`].
    fn spawned(spawn: fn(Command, &File) -> Result<Running>) -> [String; 3] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let log = File::create(&path).unwrap();
        let mut command = Command::new("cat");
        command.arg("/proc/self/stat");
        let mut daemon = spawn(command, &log).unwrap();
        assert!(daemon.wait().unwrap().success());
        let ids = ids(&fs::read_to_string(&path).unwrap());
        assert_eq!(ids[0], daemon.id().to_string());
        ids
    }

    #[test]
    fn a_daemon_leads_a_session_or_stays_in_that_of_its_readers() {
        let [process, group, session] = spawned(spawn_session_leader);
        assert_eq!([&group, &session], [&process; 2]);
        let [.., own] = ids(&fs::read_to_string("/proc/self/stat").unwrap());
        let [.., session] = spawned(spawn_daemon);
        assert_eq!(session, own);
    }
}
