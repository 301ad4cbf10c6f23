//! The supervisor of a mount: the process in the background that `forerun mount` starts.
//!
//! It starts the process that serves the mount, holds the connection to the kernel beside it, and
//! starts another when that one dies: programs that read see a pause, and the kernel resends the
//! requests that were not answered. It opens no image and parses nothing, so what kills a server does
//! not kill it.
//!
//! If servers die too often, the mount stays without one, and every access fails: a new process would serve that image, or on
//! that machine, no better. On `forerun restart` the server asks the supervisor for a successor.

mod events;
mod server;
mod successor;

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use forerun_fuse::{FromServer, FromSupervisor, Kept};
use rustix::process::Signal;

use super::daemon::{self, SupervisorArgs};
use super::{failed, open_log};
use crate::error::{Failure, Result};
use crate::exit::Exit;

use events::{Event, Role, Signals, wait};
use server::{Origin, Process};
use successor::{Asker, Successor};

/// Deaths that are longer ago do not count.
const MEMORY: Duration = Duration::from_secs(60);
/// How long a server that leaves may take to end before its successor may begin: a thread of it may
/// hang in a source.
const PARTING: Duration = Duration::from_secs(10);
/// How often requests are sent again while a server lingers that is to end.
const RESENDS: Duration = Duration::from_millis(100);

/// A mount, and the processes that serve it.
struct Supervisor {
    kept: Kept,
    origin: Origin,
    /// Deaths in a minute after which another server is still started.
    restarts: u32,
    deaths: VecDeque<Instant>,
    server: Option<Serving>,
    successor: Option<Successor>,
    /// Servers that were told to leave and have not ended.
    lingering: Vec<Process>,
    /// The process that made the mount for as long as its command runs. The mount ends with it, however it ends.
    caller: Option<OwnedFd>,
}

/// The process that serves the mount.
struct Serving {
    process: Process,
    /// Set when it has said that the mount ends with it.
    is_done: bool,
    /// Set when it has said that it leaves: when it must have ended.
    leaves: Option<Instant>,
}

impl Serving {
    const fn new(process: Process) -> Self {
        Self {
            process,
            is_done: false,
            leaves: None,
        }
    }
}

/// Whether the supervisor goes on.
enum Next {
    Wait,
    End,
}

/// Keeps a mount. Returns the exit code. The caller has read the command line: a supervisor does not, and stays small.
pub fn run_supervisor() -> ExitCode {
    let Some(args) = SupervisorArgs::of_this_process() else {
        return ExitCode::from(Exit::Usage.code());
    };
    crate::log::init(args.verbose, args.log.is_some());
    run(&args).unwrap_or_else(|failure| {
        // Without a standard error nothing can be reported.
        let _ = writeln!(io::stderr(), "{failure}");
        ExitCode::from(failure.exit.code())
    })
}

/// Keeps the mount that a server makes with the arguments of this process. Returns when the mount has
/// ended, when the server goes on alone, or with the exit code of a server that made no mount.
fn run(args: &SupervisorArgs) -> Result<ExitCode> {
    daemon::leave_job()?;
    let mut log = args.log.as_deref().map(open_log).transpose()?;
    let origin = Origin {
        namespace: daemon::leave_namespace(args.used.as_deref())?,
        directory: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
    };
    let signals = Signals::new().map_err(|error| failed("handling signals", &error))?;
    let mut caller = args.ends_with_caller.then(daemon::caller).flatten();
    let mut process = Process::first(&origin)
        .map_err(|error| failed("starting the process that serves", &error))?;
    // The caller's pipe must end with the server.
    daemon::close_stdout()?;
    let mut kept = loop {
        match wait(&signals, &[(Role::Server, &process)], caller.as_ref(), None)? {
            Event::Signal(signal) => process.kill(signal),
            Event::CallerEnded => {
                caller = None;
                process.kill(Signal::TERM);
            }
            Event::Said(_, FromServer::Lifeline(pipe)) => process.lifeline = Some(pipe),
            Event::Said(_, FromServer::Keep(kept)) => break *kept,
            Event::Said(_, FromServer::Alone) if caller.is_none() => return Ok(ExitCode::SUCCESS),
            // It ends with the caller.
            Event::Said(_, FromServer::Alone) => daemon::settle_supervisor(log.take())?,
            Event::Said(_, FromServer::End) => return first_ended(process.wait()),
            // There is nothing to be done about the others yet.
            Event::Said(..) | Event::TimeOut => {}
        }
    };
    daemon::settle_supervisor(log)?;
    origin.tell(&mut kept);
    let mut supervisor = Supervisor {
        kept,
        origin,
        restarts: args.restarts,
        deaths: VecDeque::new(),
        server: Some(Serving::new(process)),
        successor: None,
        lingering: Vec::new(),
        caller,
    };
    supervisor.keep(&signals)
}

/// Returns the exit code of a server that ended before it had made a mount; the server has said why.
fn first_ended(status: io::Result<ExitStatus>) -> Result<ExitCode> {
    let status = status.map_err(|error| failed("waiting for the process that serves", &error))?;
    if let Some(signal) = status.signal() {
        let message = format!("the process that was to serve the mount died of signal {signal}");
        return Err(Failure::new(Exit::Mount, "mount", message));
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(Exit::Mount.code())))
}

impl Supervisor {
    fn keep(&mut self, signals: &Signals) -> Result<ExitCode> {
        loop {
            let event = self.wait(signals)?;
            if let Next::End = self.react(event) {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }

    /// Returns when the server must have left, or its successor must be ready.
    fn deadline(&self) -> Option<Instant> {
        match (&self.successor, &self.server) {
            (Some(_), Some(server)) if server.leaves.is_some() => server.leaves,
            (Some(successor), _) => Some(successor.until),
            _ => None,
        }
    }

    fn wait(&self, signals: &Signals) -> Result<Event> {
        let resend = (!self.lingering.is_empty()).then(|| Instant::now() + RESENDS);
        let until = self.deadline().into_iter().chain(resend).min();
        let server = self.server.as_ref().map(|server| &server.process);
        let successor = self.successor.as_ref().map(|successor| &successor.process);
        let mut processes = Vec::new();
        processes.extend(server.map(|process| (Role::Server, process)));
        processes.extend(successor.map(|process| (Role::Successor, process)));
        let lingering = self.lingering.iter().enumerate();
        processes.extend(lingering.map(|(at, process)| (Role::Lingering(at), process)));
        wait(signals, &processes, self.caller.as_ref(), until)
    }

    fn react(&mut self, event: Event) -> Next {
        match event {
            Event::Signal(signal) => self.pass_on(signal),
            Event::CallerEnded => self.caller_ended(),
            Event::Said(Role::Server, said) => self.server_said(said),
            Event::Said(Role::Successor, said) => self.successor_said(said),
            Event::Said(Role::Lingering(at), FromServer::End) => self.reap(at),
            Event::Said(Role::Lingering(_), _) => Next::Wait,
            Event::TimeOut => self.time_out(),
        }
    }

    /// Passes a signal on to the process that serves, for which it is meant. While there is none, the
    /// supervisor unmounts.
    fn pass_on(&mut self, signal: Signal) -> Next {
        if let Some(server) = &self.server {
            server.process.kill(signal);
            return Next::Wait;
        }
        match signal {
            Signal::HUP => Next::Wait,
            _ => self.unmount(),
        }
    }

    /// Unmounts, if the caller has not: it was killed. Files that are open are served until they are closed.
    fn caller_ended(&mut self) -> Next {
        self.caller = None;
        if self.kept.is_connected()
            && let Err(error) = self.kept.unmount()
        {
            tracing::error!("{error}");
        }
        Next::Wait
    }

    fn server_said(&mut self, said: FromServer) -> Next {
        let Some(server) = &mut self.server else {
            return Next::Wait;
        };
        match said {
            FromServer::Restart(asker) => self.restart(Asker::new(asker)),
            FromServer::Leaving => server.leaves = Some(Instant::now() + PARTING),
            FromServer::Staying(why) => {
                if let Some(successor) = self.successor.take() {
                    successor.refuse(&why);
                }
            }
            FromServer::Done => server.is_done = true,
            // One that has taken a volume over says so when the volume is open.
            FromServer::Lifeline(pipe) => server.process.lifeline = Some(pipe),
            FromServer::End => return self.server_ended(),
            // No server says these when its mount is kept.
            FromServer::Keep(_) | FromServer::Alone | FromServer::Ready => {}
        }
        Next::Wait
    }

    /// Handles the end of the server: with its mount, for its successor, or by dying.
    fn server_ended(&mut self) -> Next {
        let Some(server) = self.server.take() else {
            return Next::Wait;
        };
        let Serving {
            mut process,
            is_done,
            leaves,
        } = server;
        if is_done || !self.kept.is_connected() {
            if let Some(successor) = self.successor.take() {
                successor.refuse("the mount has ended");
            }
            return Next::End;
        }
        // A thread of it may wait in the kernel for the answer to a request that it had taken. All of
        // the process can end only when another process has answered that request. Its other threads
        // may take requests until then, so that there is more to resend.
        self.resend();
        let ended = process.ended();
        if ended.is_some() {
            self.resend();
        }
        if leaves.is_none() {
            let why = ended.map_or_else(|| "it ends".to_string(), |status| status.to_string());
            tracing::error!(
                path = %self.kept.path().display(),
                "the process that served the mount has died ({why}); another one takes its place"
            );
            if let Next::End = self.died() {
                return Next::End;
            }
        }
        if ended.is_none() {
            // Nothing of it may answer once another process does.
            process.kill(Signal::KILL);
            self.lingering.push(process);
        }
        self.succeed()
    }

    /// Counts another death. Gives the mount up where that was one too many.
    fn died(&mut self) -> Next {
        let now = Instant::now();
        self.deaths.push_back(now);
        while self
            .deaths
            .front()
            .is_some_and(|death| now - *death > MEMORY)
        {
            self.deaths.pop_front();
        }
        if crate::size::count_of(self.deaths.len()) <= u64::from(self.restarts) {
            return Next::Wait;
        }
        tracing::error!(
            path = %self.kept.path().display(),
            "{} processes that served the mount have died within a minute: every access fails until it is unmounted \
             or mounted again",
            self.deaths.len()
        );
        self.give_up()
    }

    /// Leaves a dead mount: a directory that looks empty would mislead its users.
    fn give_up(&mut self) -> Next {
        if let Err(error) = self.kept.abort() {
            tracing::warn!("requests fail once all processes of the mount have ended: {error}");
        }
        if let Some(successor) = self.successor.take() {
            successor.refuse("the mount has ended");
        }
        Next::End
    }

    fn unmount(&mut self) -> Next {
        if let Err(error) = self.kept.unmount() {
            tracing::error!("{error}");
        }
        if let Some(successor) = self.successor.take() {
            successor.refuse("the mount has ended");
        }
        Next::End
    }

    /// Puts the successor in the server's place, or starts one.
    fn succeed(&mut self) -> Next {
        match self.successor.take() {
            Some(successor) if successor.is_ready => {
                let process = successor.let_go();
                self.server = Some(Serving::new(process));
                Next::Wait
            }
            Some(successor) => {
                self.successor = Some(successor);
                Next::Wait
            }
            None => self.replace(),
        }
    }

    /// Starts a server where there is none.
    fn replace(&mut self) -> Next {
        loop {
            match Successor::start(&self.kept, &self.origin, None) {
                Ok(successor) => {
                    self.successor = Some(successor);
                    return Next::Wait;
                }
                Err(why) => {
                    tracing::error!("{why}");
                    if let Next::End = self.died() {
                        return Next::End;
                    }
                }
            }
        }
    }

    /// Starts a successor because `asker` wants one.
    fn restart(&mut self, asker: Asker) {
        if self.successor.is_some() {
            return asker.tell("a restart is under way already");
        }
        match Successor::start(&self.kept, &self.origin, Some(asker)) {
            Ok(successor) => self.successor = Some(successor),
            Err(why) => tracing::warn!("not restarted: {why}"),
        }
    }

    fn successor_said(&mut self, said: FromServer) -> Next {
        match said {
            FromServer::Lifeline(pipe) => {
                if let Some(successor) = &mut self.successor {
                    successor.process.lifeline = Some(pipe);
                }
                Next::Wait
            }
            FromServer::Ready => {
                if let Some(successor) = &mut self.successor {
                    successor.is_ready = true;
                }
                match &self.server {
                    // If it has just ended, that shows next.
                    Some(server) => {
                        let _gone = FromSupervisor::leave(&server.process.channel);
                        Next::Wait
                    }
                    None => self.succeed(),
                }
            }
            FromServer::End => self.successor_failed("the new process ended before it was ready"),
            // It says no more before it serves.
            _ => Next::Wait,
        }
    }

    fn successor_failed(&mut self, why: &str) -> Next {
        if let Some(successor) = self.successor.take() {
            let why = successor.fail(why);
            tracing::warn!("not restarted: {why}");
        }
        if self.server.is_some() {
            return Next::Wait;
        }
        if !self.kept.is_connected() {
            return Next::End;
        }
        match self.died() {
            Next::End => Next::End,
            Next::Wait => self.replace(),
        }
    }

    /// Handles a wait without an event: a deadline has passed, or a server lingers.
    ///
    /// A thread of such a server may hang in the kernel until a request is answered that another of its
    /// threads was only just reading when it was killed, and that was not sent again with the rest. The
    /// kernel counts it as read a moment later, and nothing says when.
    fn time_out(&mut self) -> Next {
        if !self.lingering.is_empty() {
            self.resend();
        }
        if self
            .deadline()
            .is_none_or(|deadline| deadline > Instant::now())
        {
            return Next::Wait;
        }
        let is_late = |server: &Serving| server.leaves.is_some_and(|until| until <= Instant::now());
        if self.server.as_ref().is_some_and(is_late) {
            // It takes no more requests. If it takes one all the same, that is sent again when it has
            // ended.
            self.resend();
            self.lingering.extend(self.server.take().map(|server| {
                server.process.kill(Signal::KILL);
                server.process
            }));
            return self.succeed();
        }
        let seconds = successor::OPEN_TIMEOUT.as_secs();
        self.successor_failed(&format!(
            "the new process was not ready within {seconds} seconds"
        ))
    }

    /// Waits for a server that lingered and has ended.
    fn reap(&mut self, at: usize) -> Next {
        let process = self.lingering.swap_remove(at);
        if let Err(error) = process.wait() {
            tracing::warn!("waiting for an old process: {error}");
        }
        self.resend();
        Next::Wait
    }

    fn resend(&self) {
        if let Err(error) = self.kept.resend(self.server.is_some()) {
            tracing::error!("requests under way are not sent again: {error}");
        }
    }
}
