//! Replacement of fillers that have died.
//!
//! The guard has all that a filler needs to answer: the group, the watch, the private mount, and the
//! [`Ledger`] of reads that wait. It starts the program anew with the arguments of the first filler,
//! and passes these on. The new filler answers what the old one left before it takes an event: the
//! kernel knows events by numbers, and a new one may have the number of an old one.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};

use super::apart::Surroundings;
use super::channel::{self, Word};

/// The variable that names the guard to a new filler, by its process number.
const FILLER: &str = "FORERUN_KERNEL_FILLER";
/// Deaths that are longer ago do not count.
const MEMORY: Duration = Duration::from_secs(60);
/// Longest command line that is kept.
const MAX_COMMAND: u64 = 1 << 20;

/// How a filler is started in the place of one that has died.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its name and its arguments.
    pub args: Vec<OsString>,
    /// The directory to start it in.
    pub dir: PathBuf,
    /// Deaths within a minute after which another filler is still started.
    pub restarts: u32,
    /// Bytes that it reads from a pipe, which nothing shows: arguments with passwords. Empty for nothing.
    pub secret: Vec<u8>,
    /// The variable that tells it of the pipe: the number of the process that starts it, a colon, and
    /// the number of the descriptor.
    pub secret_variable: String,
}

impl FillerCommand {
    /// Writes the command to memory that a guard can read when it needs it. The guard's own command
    /// line must not contain it, since a kill by name would then hit the guard as well.
    pub(super) fn keep(this: Option<&Self>) -> io::Result<OwnedFd> {
        let mut file = File::from(memfd_create("forerun-command", MemfdFlags::CLOEXEC)?);
        let Some(this) = this else {
            return Ok(file.into());
        };
        let count = this.args.len();
        write!(
            file,
            "{}\0{count}\0{}\0",
            this.restarts, this.secret_variable
        )?;
        let parts = [this.program.as_os_str(), this.dir.as_os_str()];
        let args = this.args.iter().map(OsString::as_os_str);
        for part in parts.into_iter().chain(args) {
            file.write_all(part.as_bytes())?;
            file.write_all(b"\0")?;
        }
        file.write_all(&this.secret)?;
        Ok(file.into())
    }

    /// Reads the command back; nothing where there is none.
    fn kept(command: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        let mut file = File::from(command.try_clone_to_owned()?);
        file.rewind()?;
        let mut bytes = Vec::new();
        file.take(MAX_COMMAND).read_to_end(&mut bytes)?;
        Ok(Self::parse(&bytes))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let mut next = || {
            let end = rest.iter().position(|byte| *byte == 0)?;
            let part = rest.get(..end)?;
            rest = rest.get(end + 1..)?;
            Some(OsStr::from_bytes(part))
        };
        let restarts = next()?.to_str()?.parse().ok()?;
        let count: usize = next()?.to_str()?.parse().ok()?;
        let secret_variable = next()?.to_str()?.to_string();
        let (program, dir) = (next()?.into(), next()?.into());
        let mut args = Vec::new();
        for _ in 0..count {
            args.push(next()?.to_os_string());
        }
        Some(Self {
            program,
            args,
            dir,
            restarts,
            secret: rest.to_vec(),
            secret_variable,
        })
    }

    /// Returns a pipe with the secret, and its name for the process that is started.
    fn pipe(&self) -> io::Result<Option<(OwnedFd, String)>> {
        if self.secret.is_empty() {
            return Ok(None);
        }
        let (reader, mut writer) = io::pipe()?;
        // The caller keeps it shorter than a pipe's buffer.
        writer.write_all(&self.secret)?;
        let reader = OwnedFd::from(reader);
        fcntl_setfd(&reader, FdFlags::empty())?;
        let name = format!("{}:{}", std::process::id(), reader.as_raw_fd());
        Ok(Some((reader, name)))
    }
}

/// The fillers that a guard starts in the place of those that die.
pub(super) struct Succession {
    command: Option<FillerCommand>,
    /// The surroundings of the first filler.
    surroundings: Surroundings,
    deaths: VecDeque<Instant>,
}

/// A filler that a guard has started.
pub(super) struct Filler {
    child: Child,
    pub channel: OwnedFd,
}

impl Succession {
    /// Reads the command from memory.
    pub fn new(command: BorrowedFd<'_>, surroundings: Surroundings) -> Self {
        Self {
            // Without a command reads fail, as they do when a filler cannot be started.
            command: FillerCommand::kept(command).unwrap_or(None),
            surroundings,
            deaths: VecDeque::new(),
        }
    }

    /// Starts another filler, which holds `descriptors` when this returns. Returns nothing where there
    /// is no command, or fillers die too often.
    pub fn next(&mut self, descriptors: &[BorrowedFd<'_>]) -> Option<Filler> {
        loop {
            let now = Instant::now();
            self.deaths.push_back(now);
            while self
                .deaths
                .front()
                .is_some_and(|death| now - *death > MEMORY)
            {
                self.deaths.pop_front();
            }
            let command = self.command.as_ref()?;
            let deaths = u32::try_from(self.deaths.len()).unwrap_or(u32::MAX);
            if deaths > command.restarts {
                return None;
            }
            if let Ok(filler) = Filler::start(command, &self.surroundings, descriptors) {
                return Some(filler);
            }
        }
    }
}

impl Filler {
    fn start(
        command: &FillerCommand,
        surroundings: &Surroundings,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<Self> {
        let (channel, theirs) = channel::pair()?;
        let (name, args) = command
            .args
            .split_first()
            .ok_or(io::ErrorKind::InvalidInput)?;
        let mut process = Command::new(&command.program);
        std::os::unix::process::CommandExt::arg0(&mut process, name);
        let pipe = command.pipe()?;
        if let Some((_, name)) = &pipe {
            process.env(&command.secret_variable, name);
        }
        let child = process
            .args(args)
            .current_dir(&command.dir)
            .env_remove(super::guard::ROLE)
            .env(FILLER, std::process::id().to_string())
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        drop((process, pipe));
        let mut filler = Self { child, channel };
        // It does nothing before it has the descriptors.
        surroundings.put(filler.child.id());
        let held = filler.hand_over(descriptors);
        if held.is_err() {
            filler.bury();
        }
        held.map(|()| filler)
    }

    fn hand_over(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        channel::send(&self.channel, Word::Hold, descriptors)?;
        match channel::receive(&self.channel)? {
            Some((Word::Held, _)) => Ok(()),
            _ => Err(io::Error::other("the new process ended")),
        }
    }

    /// Reaps the filler when it has died.
    pub fn bury(&mut self) {
        // It may have closed the channel and live on.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The descriptors that a guard hands to a filler that it has started.
#[derive(Debug)]
pub struct Resumed {
    /// The channel to the guard.
    pub(super) channel: OwnedFd,
    pub(super) group: OwnedFd,
    pub(super) watch: OwnedFd,
    pub(super) mount: OwnedFd,
    pub(super) ledger: OwnedFd,
    /// Process number of the guard.
    pub(super) guard: u32,
}

/// Returns the descriptors from the guard, where a guard has started this process in the place of a
/// filler that died. The guard's socket is standard input, which is `/dev/null` afterwards.
///
/// # Errors
/// Those of the socket.
pub fn resumed() -> io::Result<Option<Resumed>> {
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    let Some(parent) = parent
        .filter(|parent| std::env::var(FILLER).is_ok_and(|guard| guard == parent.to_string()))
    else {
        return Ok(None);
    };
    let channel = io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    let Some((Word::Hold, held)) = channel::receive(&channel)? else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    let [group, watch, mount, ledger] =
        <[OwnedFd; 4]>::try_from(held).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(Some(Resumed {
        channel,
        group,
        watch,
        mount,
        ledger,
        guard: u32::try_from(parent.get()).map_err(io::Error::other)?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_kept_as_it_is() {
        let command = FillerCommand {
            program: "/usr/bin/forerun".into(),
            args: ["forerun", "", "a b\n", "/mnt"].map(Into::into).to_vec(),
            dir: "/srv".into(),
            restarts: 2,
            secret: b"2\0u:p\0".to_vec(),
            secret_variable: "FROM".to_string(),
        };
        let kept = FillerCommand::keep(Some(&command)).unwrap();
        assert_eq!(FillerCommand::kept(kept.as_fd()).unwrap(), Some(command));
        let none = FillerCommand::keep(None).unwrap();
        assert_eq!(FillerCommand::kept(none.as_fd()).unwrap(), None);
    }
}
