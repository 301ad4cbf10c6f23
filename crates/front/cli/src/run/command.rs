//! The process that becomes the command.
//!
//! Process 1 starts it from this program, before it changes the root directory, and writes its user
//! mappings, because a process cannot map more than one user for itself. The process then enters
//! the inner namespaces ([`ids`](super::ids)) and executes the command. Process 1 stays in the
//! outer namespaces, which the command cannot reach.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use forerun_fuse::Channel;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::fstat;
use rustix::process::{Pid, getppid};

use crate::args::Global;
use crate::context::Context;
use crate::error::{Failure, Result, reason};
use crate::exit::Exit;
use crate::inherited;
use crate::mount::program;
use crate::role::{self, Role};

use super::attach::{by_descriptor, read_only_tree};
use super::child::has_ended;
use super::ids::{OwnMaps, in_proc};
use super::plan::RunPlan;
use super::{failed, namespace_failure};

/// Exit codes of shells for a command that cannot be run or does not exist.
const CANNOT_RUN: u8 = 126;
const NOT_FOUND: u8 = 127;

pub struct Becoming {
    process: Child,
    channel: Channel,
    maps: OwnMaps,
}

impl Becoming {
    /// Starts the process. It waits until the root directory is ready.
    pub fn start(plan: &RunPlan) -> Result<Self> {
        let starting = |error: io::Error| failed("starting the command", &error);
        let maps = OwnMaps::read().map_err(starting)?;
        let (channel, theirs) = Channel::pair().map_err(starting)?;
        let file = protected()
            .map_err(|error| failed("protecting the program from the command", &error))?;
        let path = file.as_ref().map_or_else(program, by_descriptor);
        let mut command = Command::new(path);
        role::assign(&mut command, Role::RunCommand, "becomes a command");
        command
            .args(plan.words())
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        let process = inherited::pass_on(|| command.spawn()).map_err(starting)?;
        Ok(Self {
            process,
            channel,
            maps,
        })
    }

    /// Waits until the process has loaded its libraries, because the dynamic loader looks for them
    /// below the root directory.
    pub fn wait_until_loaded(&self) -> io::Result<()> {
        // If the process has ended, its socket is closed, and `finish` detects that.
        let _loaded = self.channel.receive()?;
        Ok(())
    }

    /// Lets the process become the command. Returns its id. If it fails, it reports the error
    /// itself, and its exit status is that of the run.
    pub fn finish(self, stdin: OwnedFd) -> io::Result<Pid> {
        let pid = Pid::from_child(&self.process);
        // If the process has already ended, its socket is closed.
        let sent = self
            .channel
            .send(b"the root directory is made", &[stdin.as_fd()]);
        if sent.is_ok()
            && let Some(entered) = self.channel.receive()?
        {
            let process = entered.descriptors.first();
            self.maps.give(process.ok_or(io::ErrorKind::InvalidData)?)?;
            let _has_ended = self.channel.send(b"the users are mapped", &[]);
        }
        Ok(pid)
    }
}

/// Opens this program on a read-only mount. The command, if it is a link or script that leads back
/// to this program, finds it as `/proc/self/exe`, and root could otherwise change the permissions
/// of the system's file.
///
/// Returns `None` for a program that was replaced since it was started, because no path leads to it
/// any more.
fn protected() -> io::Result<Option<OwnedFd>> {
    let path = program();
    if path == Path::new("/proc/self/exe") {
        return Ok(None);
    }
    let file = read_only_tree(path)?;
    let running = std::fs::metadata("/proc/self/exe")?;
    let found = fstat(&file)?;
    Ok(((found.st_dev, found.st_ino) == (running.dev(), running.ino())).then_some(file))
}

pub fn become_command(words: &[OsString]) -> ExitCode {
    let stdin = io::stdin();
    let context = Context::new(Global::default());
    let become_it = || {
        let channel = Channel::from(stdin.as_fd().try_clone_to_owned()?);
        let peer = rustix::net::sockopt::socket_peercred(&stdin)?;
        let is_child = getppid() == Some(Pid::INIT) && peer.pid == Pid::INIT;
        let plan = RunPlan::from_words(words.iter().cloned()).filter(|_| is_child);
        let plan = plan.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(enter(&channel, &plan))
    };
    let ended = become_it().unwrap_or_else(|error| Err(failed("process 1", &error)));
    let exit = match ended {
        Ok(()) => Exit::OfCommand(CANNOT_RUN),
        Err(failure) => context.report(&failure),
    };
    ExitCode::from(exit.code())
}

/// Returns `None` if process 1 has ended. It has said why.
fn if_it_lives<T>(answer: io::Result<T>) -> io::Result<Option<T>> {
    match answer {
        Err(error) if has_ended(&error) => Ok(None),
        answer => answer.map(Some),
    }
}

/// Enters the namespaces and executes the command. Returns only if that fails or process 1 has
/// failed.
fn enter(channel: &Channel, plan: &RunPlan) -> Result<()> {
    let talking = |error: io::Error| failed("process 1", &error);
    // Opened before the root directory changes, because the command may have something else at
    // /proc.
    let process = in_proc("self").map_err(talking)?;
    let sent = channel.send(b"loaded", &[]);
    if if_it_lives(sent).map_err(talking)?.is_none() {
        return Ok(());
    }
    let Some(received) = if_it_lives(channel.receive()).map_err(talking)?.flatten() else {
        return Ok(());
    };
    let stdin = received.descriptors.into_iter().next();
    let stdin = stdin.ok_or_else(|| talking(io::ErrorKind::InvalidData.into()))?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS).map_err(|error| {
        namespace_failure("making the user namespace of the command", &error.into())
    })?;
    let sent = channel.send(b"entered", &[process.as_fd()]);
    if if_it_lives(sent).map_err(talking)?.is_none() {
        return Ok(());
    }
    let answer = if_it_lives(channel.receive()).map_err(talking)?;
    if answer.flatten().is_none() {
        return Ok(());
    }
    let protecting = forerun_sys::refuse_terminal_input();
    protecting.map_err(|error| failed("protecting the terminal", &error))?;
    env::set_current_dir(&plan.chdir)
        .map_err(|error| failed(&format!("--chdir {}", plan.chdir.display()), &error))?;
    rustix::stdio::dup2_stdin(&stdin).map_err(|error| talking(error.into()))?;
    drop(stdin);
    let (program, words) = plan
        .command
        .split_first()
        .ok_or_else(|| Failure::usage("no command"))?;
    let mut command = Command::new(program);
    command.args(words);
    let error = inherited::pass_on(|| command.exec());
    let code = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    };
    let failure = Failure::new(Exit::OfCommand(code), "command", reason(&error));
    let program = PathBuf::from(OsString::from(program));
    Err(failure.of(program.display()))
}
