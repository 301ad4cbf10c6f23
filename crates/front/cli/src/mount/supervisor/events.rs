//! The events that a supervisor waits for: signals, and messages of its processes.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use forerun_fuse::{FromServer, timespec};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::super::failed;
use super::server::Process;
use crate::error::Result;

/// Signals that are passed on to the server.
const SIGNALS: [(i32, Signal); 3] = [
    (SIGTERM, Signal::TERM),
    (SIGINT, Signal::INT),
    (SIGHUP, Signal::HUP),
];

#[derive(Clone, Copy)]
pub enum Role {
    Server,
    Successor,
    /// A server that was told to leave, by its index in the list.
    Lingering(usize),
}

pub enum Event {
    Signal(Signal),
    Said(Role, FromServer),
    /// The caller has ended, and the mount must end with it.
    CallerEnded,
    TimeOut,
}

/// Signals as descriptors that can be polled.
pub struct Signals([(UnixStream, Signal); 3]);

impl Signals {
    pub fn new() -> io::Result<Self> {
        let pipe = |(number, signal): (i32, Signal)| {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(number, theirs)?;
            io::Result::Ok((ours, signal))
        };
        let [one, two, three] = SIGNALS.map(pipe);
        Ok(Self([one?, two?, three?]))
    }
}

pub fn wait(
    signals: &Signals,
    processes: &[(Role, &Process)],
    caller: Option<&OwnedFd>,
    until: Option<Instant>,
) -> Result<Event> {
    let pipes = signals.0.iter();
    let mut fds: Vec<_> = pipes
        .map(|(pipe, _)| PollFd::new(pipe, PollFlags::IN))
        .collect();
    let lingers = |role: &Role| matches!(role, Role::Lingering(_));
    for (role, process) in processes {
        let signs = process.signs(lingers(role)).into_iter();
        fds.extend(signs.map(|sign| PollFd::from_borrowed_fd(sign, PollFlags::IN)));
    }
    fds.extend(caller.map(|caller| PollFd::new(caller, PollFlags::IN)));
    let at = loop {
        let left = until.map(|until| timespec(until.saturating_duration_since(Instant::now())));
        match poll(&mut fds, left.as_ref()) {
            Ok(_) => break fds.iter().position(|fd| !fd.revents().is_empty()),
            Err(Errno::INTR) => {}
            Err(error) => {
                return Err(failed(
                    "waiting for the processes of the mount",
                    &error.into(),
                ));
            }
        }
    };
    let Some(at) = at else {
        return Ok(Event::TimeOut);
    };
    if let Some((pipe, signal)) = signals.0.get(at) {
        let mut bytes = [0; 16];
        // Several equal signals count as one.
        let _taken = io::Read::read(&mut &*pipe, &mut bytes);
        return Ok(Event::Signal(*signal));
    }
    let mut next = signals.0.len();
    for (role, process) in processes {
        let count = process.signs(lingers(role)).len();
        if let Some(sign) = at.checked_sub(next).filter(|sign| *sign < count) {
            return Ok(Event::Said(*role, process.happened(lingers(role), sign)));
        }
        next += count;
    }
    Ok(Event::CallerEnded)
}
