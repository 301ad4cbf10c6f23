//! The socket between the keeper of a mount and a process that serves it.
//!
//! Each message is a packet: a word, what belongs to it, and descriptors. The socket ends when the
//! other process has ended, however that came about.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Longest message.
pub const MAX: usize = 32 << 10;
/// Most descriptors of a message.
const MAX_DESCRIPTORS: usize = 4;

/// One end of the socket.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// A message that was received.
#[derive(Debug)]
pub struct Received {
    /// The text.
    pub text: Vec<u8>,
    /// The descriptors that came along, in the order in which they were sent.
    pub descriptors: Vec<OwnedFd>,
}

impl Channel {
    /// Makes a socket and returns both ends.
    ///
    /// # Errors
    /// Those of socketpair(2).
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
    /// Those of dup(2).
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Sends a message. At most four descriptors go along.
    ///
    /// # Errors
    /// Those of sendmsg(2), and EMSGSIZE for a message of more than 32 KiB.
    pub fn send(&self, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if text.len() > MAX || descriptors.len() > MAX_DESCRIPTORS {
            return Err(Errno::MSGSIZE.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return Err(Errno::NOBUFS.into());
        }
        let text = [IoSlice::new(text)];
        rustix::net::sendmsg(&self.0, &text, &mut control, SendFlags::NOSIGNAL)?;
        Ok(())
    }

    /// Waits for a message. Returns nothing when the other process has ended.
    ///
    /// # Errors
    /// Those of recvmsg(2), and EMSGSIZE for a message that is too long.
    pub fn receive(&self) -> io::Result<Option<Received>> {
        let mut text = vec![0; MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let mut into = [IoSliceMut::new(&mut text)];
            match rustix::net::recvmsg(&self.0, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::INTR) => {}
                // What the other process had not read when it ended is of no interest any more.
                Err(Errno::CONNRESET) => return Ok(None),
                received => break received?,
            }
        };
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(Errno::MSGSIZE.into());
        }
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(those) = message {
                descriptors.extend(those);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        text.truncate(received.bytes);
        Ok(Some(Received { text, descriptors }))
    }

    /// Waits until something can be received, the end included. Returns whether it can.
    ///
    /// # Errors
    /// Those of poll(2).
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
    use std::fs::File;
    use std::io::Write;

    use super::*;

    #[test]
    fn messages_with_descriptors_and_the_end() {
        let (one, other) = Channel::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        one.send(b"a pipe", &[writer.as_fd()]).unwrap();
        one.send(b"nothing", &[]).unwrap();
        drop(writer);
        let mut received = other.receive().unwrap().unwrap();
        assert_eq!(received.text, b"a pipe");
        let mut writer = File::from(received.descriptors.pop().unwrap());
        writer.write_all(b"x").unwrap();
        drop((writer, received));
        assert_eq!(io::read_to_string(reader).unwrap(), "x");
        let received = other.receive().unwrap().unwrap();
        assert_eq!(
            (&received.text[..], received.descriptors.len()),
            (&b"nothing"[..], 0)
        );
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
