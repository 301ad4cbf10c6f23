//! The socket between a mount's supervisor and a server.
//!
//! Each message is one packet: a word, its text, and descriptors. End of file means that the other
//! process has ended, for whatever reason.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use forerun_sys::packet::{self, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub const MAX: usize = 32 << 10;

#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(ours), Self(theirs)))
    }

    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a message with at most four descriptors. Fails with EMSGSIZE if the message exceeds 32
    /// KiB.
    pub fn send(&self, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if text.len() > MAX {
            return Err(Errno::MSGSIZE.into());
        }
        Ok(packet::send(&self.0, text, descriptors)?)
    }

    /// Waits for a message. Returns `None` when the other process has ended. Fails with EMSGSIZE if
    /// the message is too long.
    pub fn receive(&self) -> io::Result<Option<Received>> {
        packet::receive(&self.0, MAX)
    }

    /// Waits for a message or the end of the other process. Returns false after `patience`.
    pub fn wait(&self, patience: Duration) -> io::Result<bool> {
        let until = Instant::now() + patience;
        loop {
            let left = timespec(until.saturating_duration_since(Instant::now()));
            match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&left)) {
                Ok(count) => return Ok(count > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

pub fn timespec(duration: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_a_message_or_the_other_process() {
        let (one, other) = Channel::pair().unwrap();
        assert!(!other.wait(Duration::ZERO).unwrap());
        one.send(b"text", &[]).unwrap();
        assert!(other.wait(Duration::ZERO).unwrap());
        assert_eq!(other.receive().unwrap().unwrap().text, b"text");
        assert!(!other.wait(Duration::ZERO).unwrap());
        drop(one);
        assert!(other.wait(Duration::ZERO).unwrap());
        assert!(other.receive().unwrap().is_none());
    }

    #[test]
    fn messages_that_are_too_long_are_refused() {
        let (one, _other) = Channel::pair().unwrap();
        assert!(one.send(&vec![0; MAX + 1], &[]).is_err());
    }
}
