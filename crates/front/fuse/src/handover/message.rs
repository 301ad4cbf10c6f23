//! Messages between supervisor and server. Each begins with a word. An [`Offer`] follows as text,
//! with one line per property; the path comes last and extends to the end.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use forerun_sys::packet::Received;

use super::{Inherited, Kept};
use crate::channel::Channel;
use crate::connection::Negotiated;
use crate::error::HandoverError;

/// Version of the protocol. Must be raised with every change to these messages, to the state table,
/// or to the mapping of nodes to inode numbers ([`Inodes`](crate::inode::Inodes) and drivers) or of
/// entries to directory cookies: the kernel keeps numbers and cookies of the old process.
const HEAD: &[u8] = b"forerun handover 4";

/// A message from a server to the supervisor.
#[derive(Debug)]
pub enum FromServer {
    Keep(Box<Kept>),
    /// There is nothing to keep: the server continues alone.
    Alone,
    /// The server's [`lifeline`](crate::lifeline()).
    Lifeline(OwnedFd),
    /// The successor is ready to serve the mount.
    Ready,
    /// Start a successor, and report to the process at the other end of this socket.
    Restart(OwnedFd),
    /// The server ends now for its successor.
    Leaving,
    /// The server continues, for this reason.
    Staying(String),
    /// The mount has ended, or ends with the server.
    Done,
    End,
}

/// A message from the supervisor to a server.
#[derive(Debug)]
pub enum FromSupervisor {
    /// Mount the image; no mount exists yet.
    Make,
    Take(Box<Inherited>),
    Go,
    /// Do not serve the mount: another process does.
    No,
    /// End if possible: a successor is ready.
    Leave,
    End,
}

impl FromServer {
    /// Word of the message with the mount to keep.
    pub const KEEP: &[u8] = b"keep";
    const ALONE: &[u8] = b"alone";
    const LIFELINE: &[u8] = b"thread";
    const READY: &[u8] = b"ready";
    const RESTART: &[u8] = b"restart";
    const LEAVING: &[u8] = b"leaving";
    const STAYING: &[u8] = b"staying";
    const DONE: &[u8] = b"done";

    pub fn alone(supervisor: &Channel) -> std::io::Result<()> {
        supervisor.send(Self::ALONE, &[])
    }

    pub fn lifeline(supervisor: &Channel, lifeline: BorrowedFd<'_>) -> std::io::Result<()> {
        supervisor.send(Self::LIFELINE, &[lifeline])
    }

    pub fn ready(supervisor: &Channel) -> std::io::Result<()> {
        supervisor.send(Self::READY, &[])
    }

    pub fn restart(supervisor: &Channel, asker: BorrowedFd<'_>) -> std::io::Result<()> {
        supervisor.send(Self::RESTART, &[asker])
    }

    pub fn leaving(supervisor: &Channel) -> std::io::Result<()> {
        supervisor.send(Self::LEAVING, &[])
    }

    pub fn staying(supervisor: &Channel, why: &str) -> std::io::Result<()> {
        let text = [Self::STAYING, b"\n", why.as_bytes()].concat();
        supervisor.send(&text, &[])
    }

    pub fn done(supervisor: &Channel) -> std::io::Result<()> {
        supervisor.send(Self::DONE, &[])
    }

    pub fn receive(server: &Channel) -> Result<Self, HandoverError> {
        let Some((word, text, descriptors)) = receive(server)? else {
            return Ok(Self::End);
        };
        Ok(match &word[..] {
            Self::KEEP => Self::Keep(Box::new(Kept::new(&text, descriptors)?)),
            Self::ALONE => Self::Alone,
            Self::LIFELINE => {
                let lifeline = descriptors.into_iter().next();
                Self::Lifeline(lifeline.ok_or(HandoverError::Version)?)
            }
            Self::READY => Self::Ready,
            Self::RESTART => {
                let asker = descriptors.into_iter().next();
                Self::Restart(asker.ok_or(HandoverError::Version)?)
            }
            Self::LEAVING => Self::Leaving,
            Self::STAYING => Self::Staying(String::from_utf8_lossy(&text).into_owned()),
            Self::DONE => Self::Done,
            _ => return Err(HandoverError::Version),
        })
    }
}

impl FromSupervisor {
    /// Word of the message with the mount to serve.
    pub const TAKE: &[u8] = b"take";
    const MAKE: &[u8] = b"make";
    const GO: &[u8] = b"go";
    const NO: &[u8] = b"no";
    const LEAVE: &[u8] = b"leave";

    pub fn make(server: &Channel) -> std::io::Result<()> {
        server.send(Self::MAKE, &[])
    }

    pub fn go(server: &Channel) -> std::io::Result<()> {
        server.send(Self::GO, &[])
    }

    pub fn no(server: &Channel) -> std::io::Result<()> {
        server.send(Self::NO, &[])
    }

    pub fn leave(server: &Channel) -> std::io::Result<()> {
        server.send(Self::LEAVE, &[])
    }

    pub fn receive(supervisor: &Channel) -> Result<Self, HandoverError> {
        let Some((word, text, descriptors)) = receive(supervisor)? else {
            return Ok(Self::End);
        };
        Ok(match &word[..] {
            Self::TAKE => {
                let supervisor = supervisor.try_clone().map_err(HandoverError::Socket)?;
                Self::Take(Box::new(Inherited::new(supervisor, &text, descriptors)?))
            }
            Self::MAKE => Self::Make,
            Self::GO => Self::Go,
            Self::NO => Self::No,
            Self::LEAVE => Self::Leave,
            _ => return Err(HandoverError::Version),
        })
    }
}

type Parts = (Vec<u8>, Vec<u8>, Vec<OwnedFd>);

/// Waits for a message and splits it. Returns `None` when the other process has closed the socket.
fn receive(channel: &Channel) -> Result<Option<Parts>, HandoverError> {
    let received = channel.receive().map_err(HandoverError::Socket)?;
    let Some(Received { text, descriptors }) = received else {
        return Ok(None);
    };
    let mut parts = text.splitn(2, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default().to_vec();
    Ok(Some((part(), part(), descriptors)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Image {
        /// Whether there is a state table of the files that the kernel reads directly.
        has_state: bool,
    },
    /// A writable volume, with a state table.
    Volume {
        /// Whether the volume was undamaged when it was mounted.
        was_clean: bool,
    },
}

impl Kind {
    const fn number(self) -> u64 {
        match self {
            Self::Image { has_state: false } => 0,
            Self::Image { has_state: true } => 3,
            Self::Volume { was_clean: false } => 1,
            Self::Volume { was_clean: true } => 2,
        }
    }

    const fn of(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Image { has_state: false }),
            1 => Some(Self::Volume { was_clean: false }),
            2 => Some(Self::Volume { was_clean: true }),
            3 => Some(Self::Image { has_state: true }),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub struct Descriptors {
    pub connection: OwnedFd,
    /// The state table of a volume, or of the files that the kernel reads directly.
    pub state: Option<OwnedFd>,
    /// The watchdog's pipe. When all copies are closed, the watchdog unmounts.
    pub watchdog: Option<OwnedFd>,
}

impl Descriptors {
    /// Takes the descriptors from a message with an offer of this kind.
    pub fn received(descriptors: Vec<OwnedFd>, kind: Kind) -> Result<Self, HandoverError> {
        let mut descriptors = descriptors.into_iter();
        let mut next = || descriptors.next().ok_or(HandoverError::Version);
        let connection = next()?;
        let state = match kind {
            Kind::Image { has_state: false } => None,
            Kind::Image { has_state: true } | Kind::Volume { .. } => Some(next()?),
        };
        Ok(Self {
            connection,
            state,
            watchdog: descriptors.next(),
        })
    }

    pub fn sent(&self) -> Vec<BorrowedFd<'_>> {
        let others = self.state.iter().chain(&self.watchdog);
        let all = std::iter::once(&self.connection).chain(others);
        all.map(AsFd::as_fd).collect()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    pub path: PathBuf,
    pub device: (u32, u32),
    pub kind: Kind,
    pub negotiated: Negotiated,
    /// Properties of the image according to the old server.
    pub volume: Vec<u8>,
    /// The identity of the image according to the caller.
    pub identity: Vec<u8>,
}

impl Offer {
    pub fn encode(&self, word: &[u8]) -> Vec<u8> {
        let (major, minor) = self.device;
        let Negotiated { abi, flags } = self.negotiated;
        let facts = format!("\n{major} {minor} {abi} {flags} {}\n", self.kind.number());
        let mut text = [word, b"\n", HEAD].concat();
        text.extend_from_slice(facts.as_bytes());
        for part in [&self.volume, &self.identity] {
            let line = part.iter().map(|byte| match byte {
                b'\n' => b' ',
                byte => *byte,
            });
            text.extend(line);
            text.push(b'\n');
        }
        text.extend_from_slice(self.path.as_os_str().as_bytes());
        text
    }

    /// Decodes the text after the word of a message.
    pub fn decode(message: &[u8]) -> Result<Self, HandoverError> {
        Self::parse(message).ok_or(HandoverError::Version)
    }

    fn parse(message: &[u8]) -> Option<Self> {
        let mut lines = message.splitn(5, |byte| *byte == b'\n');
        if lines.next()? != HEAD {
            return None;
        }
        let facts = std::str::from_utf8(lines.next()?).ok()?;
        let [major, minor, abi, flags, kind]: [u64; 5] = facts
            .split(' ')
            .map(|number| number.parse().ok())
            .collect::<Option<Vec<_>>>()?
            .try_into()
            .ok()?;
        let (volume, identity) = (lines.next()?.to_vec(), lines.next()?.to_vec());
        let path = OsStr::from_bytes(lines.next()?).as_bytes().to_vec();
        let path = PathBuf::from(std::ffi::OsString::from_vec(path));
        path.is_absolute().then_some(Self {
            path,
            device: (major.try_into().ok()?, minor.try_into().ok()?),
            kind: Kind::of(kind)?,
            negotiated: Negotiated {
                abi: abi.try_into().ok()?,
                flags,
            },
            volume,
            identity,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn offer() -> Offer {
        Offer {
            path: PathBuf::from(OsStr::from_bytes(b"/mnt/a\nb\xff 1")),
            device: (0, 77),
            kind: Kind::Volume { was_clean: true },
            negotiated: Negotiated {
                abi: 45,
                flags: 1 << 63 | 5,
            },
            volume: b"romfs 32 1024".to_vec(),
            identity: Vec::new(),
        }
    }

    fn encoded(offer: &Offer) -> Vec<u8> {
        offer.encode(b"word")[5..].to_vec()
    }

    #[test]
    fn there_and_back() {
        let message = encoded(&offer());
        assert_eq!(Offer::decode(&message).unwrap(), offer());
    }

    #[test]
    fn what_would_break_the_lines_does_not() {
        let identity = b"a\nb".to_vec();
        let message = encoded(&Offer {
            identity,
            ..offer()
        });
        let back = Offer::decode(&message).unwrap();
        assert_eq!(back.identity, b"a b");
        assert_eq!(back.path, offer().path);
    }

    #[test]
    fn other_versions_and_nonsense_are_refused() {
        let message = encoded(&offer());
        for len in 0..message.len() - 10 {
            assert!(Offer::decode(message.get(..len).unwrap()).is_err(), "{len}");
        }
        for wrong in [
            "",
            "forerun handover 1\n0 1 2 3 0\n\n\n/",
            "forerun handover 4\n0 1 2 3\n\n\n/",
            "forerun handover 4\n0 1 2 3 4\n\n\n/",
        ] {
            assert!(Offer::decode(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_said_is_understood() {
        let (supervisor, server) = Channel::pair().unwrap();
        FromServer::staying(&server, "two\nlines").unwrap();
        FromServer::restart(&server, server.as_fd()).unwrap();
        server.send(b"what", &[]).unwrap();
        FromSupervisor::leave(&supervisor).unwrap();
        let said = FromServer::receive(&supervisor).unwrap();
        assert!(matches!(said, FromServer::Staying(why) if why == "two\nlines"));
        let said = FromServer::receive(&supervisor).unwrap();
        assert!(matches!(said, FromServer::Restart(_)));
        assert!(FromServer::receive(&supervisor).is_err());
        assert!(matches!(
            FromSupervisor::receive(&server),
            Ok(FromSupervisor::Leave)
        ));
        // An offer without its connection is invalid, and so is a volume without its state table.
        let text = offer().encode(FromSupervisor::TAKE);
        for descriptors in [&[][..], &[supervisor.as_fd()]] {
            supervisor.send(&text, descriptors).unwrap();
            assert!(FromSupervisor::receive(&server).is_err());
        }
        drop(supervisor);
        assert!(matches!(
            FromSupervisor::receive(&server),
            Ok(FromSupervisor::End)
        ));
    }
}
