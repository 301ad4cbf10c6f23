//! Messages with descriptors over Unix sockets: sendmsg(2) and recvmsg(2) with `SCM_RIGHTS`.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

const MAX_DESCRIPTORS: usize = 4;

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// The bytes of the message.
    pub text: Vec<u8>,
    /// The descriptors of the message, in the order in which they were sent.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends a message with at most four descriptors.
///
/// # Errors
/// The errors of sendmsg(2), and EMSGSIZE for more descriptors.
pub fn send(
    socket: impl AsFd,
    text: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(Errno::MSGSIZE);
    }
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS);
    }
    let text = [IoSlice::new(text)];
    rustix::net::sendmsg(socket, &text, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a message of at most `longest` bytes. Returns `None` when the other end is closed.
///
/// # Errors
/// The errors of recvmsg(2), and EMSGSIZE for a longer message.
pub fn receive(socket: impl AsFd, longest: usize) -> io::Result<Option<Received>> {
    let socket = socket.as_fd();
    let mut text = vec![0; longest];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut into = [IoSliceMut::new(&mut text)];
        match rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            // The other process ended before it had read all messages.
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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        let kind = SocketType::SEQPACKET;
        socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn messages_with_descriptors_and_the_end() {
        let (one, other) = pair();
        let (reader, writer) = io::pipe().unwrap();
        send(&one, b"a pipe", &[writer.as_fd()]).unwrap();
        send(&one, b"nothing", &[]).unwrap();
        drop(writer);
        let mut received = receive(&other, 64).unwrap().unwrap();
        assert_eq!(received.text, b"a pipe");
        let mut writer = File::from(received.descriptors.pop().unwrap());
        writer.write_all(b"x").unwrap();
        drop((writer, received));
        assert_eq!(io::read_to_string(reader).unwrap(), "x");
        let received = receive(&other, 64).unwrap().unwrap();
        assert_eq!(received.text, b"nothing");
        assert!(received.descriptors.is_empty());
        drop(one);
        assert!(receive(&other, 64).unwrap().is_none());
    }

    #[test]
    fn messages_that_are_too_long_are_refused() {
        let (one, other) = pair();
        send(&one, b"long", &[]).unwrap();
        assert!(receive(&other, 3).is_err());
        let five = [one.as_fd(); MAX_DESCRIPTORS + 1];
        assert_eq!(send(&one, b"many", &five), Err(Errno::MSGSIZE));
    }
}
