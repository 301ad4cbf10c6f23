//! A process that will serve a mount and is not ready yet.

use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{ChildStderr, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use forerun_fuse::{FromSupervisor, Kept};
use rustix::process::Signal;

use super::server::{Origin, Process};
use crate::error::without_errno;

/// Time limit for opening the image, which may be on a slow server.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit for the last error messages to arrive.
const PARTING: Duration = Duration::from_secs(5);
/// Bytes of the error messages that are passed on.
const MAX_WORDS: usize = 16 << 10;

pub struct Asker(UnixStream);

impl Asker {
    pub fn new(socket: OwnedFd) -> Self {
        Self(UnixStream::from(socket))
    }

    pub fn tell(mut self, words: &str) {
        // A caller that has disconnected needs no answer.
        let _gone = self.0.write_all(words.trim_end().as_bytes());
    }
}

/// Receives the standard error of a process when it ends.
type Words = Option<Receiver<Vec<u8>>>;

pub struct Successor {
    pub process: Process,
    /// Whether the process can take over.
    pub is_ready: bool,
    pub until: Instant,
    asker: Option<Asker>,
    words: Words,
}

impl Successor {
    /// Starts a process and offers it the mount. A byte on its standard output, which is the
    /// asker's socket, says that it serves the mount. Earlier errors are written to its standard
    /// error, which without an asker is the supervisor's log.
    ///
    /// Fails with a message for the log, which the asker has also received.
    pub fn start(kept: &Kept, origin: &Origin, asker: Option<Asker>) -> Result<Self, String> {
        let started = Self::try_start(kept, origin, asker.as_ref());
        match started {
            Ok((process, words)) => Ok(Self {
                process,
                is_ready: false,
                until: Instant::now() + OPEN_TIMEOUT,
                asker,
                words,
            }),
            Err(error) => {
                let why = without_errno(&format!("starting a process: {error}"));
                if let Some(asker) = asker {
                    asker.tell(&why);
                }
                Err(why)
            }
        }
    }

    fn try_start(
        kept: &Kept,
        origin: &Origin,
        asker: Option<&Asker>,
    ) -> io::Result<(Process, Words)> {
        let (stdout, stderr) = match asker {
            Some(asker) => {
                let socket = OwnedFd::from(asker.0.try_clone()?);
                (Stdio::from(socket), Stdio::piped())
            }
            None => (Stdio::null(), Stdio::inherit()),
        };
        let mut process = Process::start(origin, stdout, stderr)?;
        let words = process.child().stderr.take().and_then(listen);
        // If the process has already ended, the next event says so.
        if let Err(error) = kept.offer(&process.channel) {
            process.kill(Signal::KILL);
            return Err(io::Error::other(error));
        }
        Ok((process, words))
    }

    /// Lets the process serve the mount.
    pub fn let_go(self) -> Process {
        // If the process has ended, the next event says so.
        let _gone = FromSupervisor::go(&self.process.channel);
        self.process
    }

    /// Ends the process, which is not needed, and tells the asker why.
    pub fn refuse(self, why: &str) {
        end(self.process);
        if let Some(asker) = self.asker {
            asker.tell(why);
        }
    }

    /// Ends the process if it still runs. Tells the asker its error messages, or `else_said` if
    /// there are none. Returns what the asker was told.
    pub fn fail(self, else_said: &str) -> String {
        let words = last_words(self.process, self.words, else_said);
        if let Some(asker) = self.asker {
            asker.tell(&words);
        }
        words
    }
}

/// Reads the process's standard error, so that writing never blocks it.
fn listen(mut stderr: ChildStderr) -> Words {
    let (all, heard) = sync_channel(1);
    let thread = std::thread::Builder::new().name("restart-words".to_string());
    let listening = thread.stack_size(64 << 10).spawn(move || {
        let (mut words, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stderr.read(&mut piece) {
            let room = MAX_WORDS.saturating_sub(words.len());
            words.extend_from_slice(piece.get(..count.min(room)).unwrap_or_default());
        }
        // The receiver is dropped when the process serves.
        let _is_dropped = all.send(words);
    });
    listening.ok().map(|_| heard)
}

fn end(process: Process) {
    process.kill(Signal::KILL);
    if let Err(error) = process.wait() {
        tracing::warn!("waiting for a process that failed: {error}");
    }
}

/// Returns the error messages of a process, or `else_said` if there are none. Waits for its end,
/// and kills it if that takes long: its socket may close before it has reported the reason.
fn last_words(mut process: Process, words: Words, else_said: &str) -> String {
    let by_itself = match &words {
        Some(words) => words.recv_timeout(PARTING).ok(),
        // The process itself writes to the log.
        None => {
            process.ended_within(PARTING);
            None
        }
    };
    end(process);
    let heard = by_itself.or_else(|| words?.recv_timeout(PARTING).ok());
    let words = String::from_utf8_lossy(&heard.unwrap_or_default()).into_owned();
    match words.trim() {
        "" => else_said.to_string(),
        words => words.strip_prefix("forerun: ").unwrap_or(words).to_string(),
    }
}
