//! The supervisor of a mount: the background process that `forerun mount` starts.
//!
//! It starts the process that serves the mount, also holds the connection to the kernel, and starts
//! another process when the first one dies. Programs that read see a pause, and the kernel resends
//! the unanswered requests. The supervisor opens no image and parses nothing, so an image that
//! kills a server does not kill it.
//!
//! If servers die too often, the mount stays without one, and every access fails, because a new
//! process would not survive either. For `forerun restart`, the server asks the supervisor for a
//! successor.

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

/// Older deaths do not count.
const MEMORY: Duration = Duration::from_secs(60);
/// How long a leaving server may take to exit before its successor starts. One of its threads may
/// hang in a source.
const PARTING: Duration = Duration::from_secs(10);
/// How often requests are resent while a killed server lingers.
const RESENDS: Duration = Duration::from_millis(100);

struct Supervisor {
    kept: Kept,
    origin: Origin,
    /// Deaths per minute after which the server is still replaced.
    restarts: u32,
    deaths: VecDeque<Instant>,
    server: Option<Serving>,
    successor: Option<Successor>,
    /// Servers that were told to leave and have not exited.
    lingering: Vec<Process>,
    /// The process whose command uses the mount. The mount ends with it, however it ends.
    caller: Option<OwnedFd>,
}

struct Serving {
    process: Process,
    /// Whether it has said that the mount ends with it.
    is_done: bool,
    /// When it must have exited. Set once it has said that it leaves.
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

enum Next {
    Wait,
    End,
}

/// Supervises a mount. Returns the exit code. The caller has parsed the command line, so that the
/// supervisor stays small.
pub fn run_supervisor() -> ExitCode {
    let Some(args) = SupervisorArgs::of_this_process() else {
        return ExitCode::from(Exit::Usage.code());
    };
    crate::log::init(args.verbose, args.log.is_some());
    run(&args).unwrap_or_else(|failure| {
        // If standard error is gone, nothing can be reported.
        let _ = writeln!(io::stderr(), "{failure}");
        ExitCode::from(failure.exit.code())
    })
}

/// Starts a server with the arguments of this process, and supervises its mount. Returns when the
/// mount has ended, when the server continues alone, or with the exit code of a server that made no
/// mount.
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
            // A server without supervision still ends with the caller.
            Event::Said(_, FromServer::Alone) => daemon::settle_supervisor(log.take())?,
            Event::Said(_, FromServer::End) => return first_ended(process.wait()),
            // Other messages have no meaning yet.
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

/// Returns the exit code of a server that ended before it made a mount. The server has reported the
/// reason.
fn first_ended(status: io::Result<ExitStatus>) -> Result<ExitCode> {
    let status = status.map_err(|error| failed("waiting for the process that serves", &error))?;
    if let Some(signal) = status.signal() {
        let message =
            format!("the process that should serve the mount was killed by signal {signal}");
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

    /// Returns when the server must have left or its successor must be ready.
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

    /// Passes a signal on to the server. Without a server, the supervisor unmounts.
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

    /// Unmounts, unless the caller did so before it ended. Open files are served until they are
    /// closed.
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
            // A server that takes a volume over says so when the volume is open.
            FromServer::Lifeline(pipe) => server.process.lifeline = Some(pipe),
            FromServer::End => return self.server_ended(),
            // A server of a supervised mount does not send these messages.
            FromServer::Keep(_) | FromServer::Alone | FromServer::Ready => {}
        }
        Next::Wait
    }

    /// Handles the end of the server: the mount has ended, a successor follows, or the server has
    /// died.
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
        // A thread of the server may wait in the kernel for the answer to its own request on the
        // mount. The process can end only when another process has answered that request. Until
        // then its other threads may take requests, so there is more to resend.
        self.resend();
        let ended = process.ended();
        if ended.is_some() {
            self.resend();
        }
        if leaves.is_none() {
            let why = ended.map_or_else(|| "it ends".to_string(), |status| status.to_string());
            tracing::error!(
                path = %self.kept.path().display(),
                "the process that served the mount has died ({why}); another one replaces it"
            );
            if let Next::End = self.died() {
                return Next::End;
            }
        }
        if ended.is_none() {
            // The old process must not answer once another one does.
            process.kill(Signal::KILL);
            self.lingering.push(process);
        }
        self.succeed()
    }

    /// Counts a death. Gives the mount up after too many.
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

    /// Leaves a dead mount, because an empty directory would mislead users.
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

    /// Makes the successor the server, or starts one.
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

    /// Starts a server when there is none.
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

    /// Starts a successor at the request of `asker`.
    fn restart(&mut self, asker: Asker) {
        if self.successor.is_some() {
            return asker.tell("another restart is in progress");
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
                    // If the server has just ended, the next event says so.
                    Some(server) => {
                        let _gone = FromSupervisor::leave(&server.process.channel);
                        Next::Wait
                    }
                    None => self.succeed(),
                }
            }
            FromServer::End => self.successor_failed("the new process ended before it was ready"),
            // A successor sends nothing else before it serves.
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
    /// A thread of a lingering server may hang in the kernel until a request is answered. Another
    /// of its threads may have been reading that request when it was killed, so it was not resent
    /// with the others. The kernel counts it as read a moment later, without any notification.
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
            // The server takes no more requests. If it does, they are resent when it has ended.
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
