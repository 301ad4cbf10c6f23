//! The socket between the supervisor of a mount and a process that serves it.
//!
//! Each message is a packet: a word, what belongs to it, and descriptors. The socket ends when the
//! other process has ended, however that came about.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use forerun_sys::packet::{self, Received};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

pub const MAX: usize = 32 << 10;

/// One end of the socket.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl Channel {
    /// Makes a socket and returns both ends.
    ///
    /// # Errors
    /// The errors of socketpair(2).
    pub fn pair() -> io::Result<(Self, Self)> {
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(ours), Self(theirs)))
    }

    /// Makes another handle of the same end.
    ///
    /// # Errors
    /// The errors of dup(2).
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a message. At most four descriptors go along.
    ///
    /// # Errors
    /// The errors of sendmsg(2), and EMSGSIZE for a message of more than 32 KiB.
    pub fn send(&self, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if text.len() > MAX {
            return Err(Errno::MSGSIZE.into());
        }
        Ok(packet::send(&self.0, text, descriptors)?)
    }

    /// Waits for a message. Returns nothing when the other process has ended.
    ///
    /// # Errors
    /// The errors of recvmsg(2), and EMSGSIZE for a message that is too long.
    pub fn receive(&self) -> io::Result<Option<Received>> {
        packet::receive(&self.0, MAX)
    }

    /// Waits until something can be received, the end included. Returns whether it can.
    ///
    /// # Errors
    /// The errors of poll(2).
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

/// Converts a duration for poll(2).
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
