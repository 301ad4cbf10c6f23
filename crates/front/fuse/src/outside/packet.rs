//! The messages between a server and the process outside: a word, text, and descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Longest message.
const MAX: usize = 16 << 10;
/// Most descriptors of a message.
const MAX_DESCRIPTORS: usize = 3;

/// A message that was received.
#[derive(Debug)]
pub struct Packet {
    /// Up to the first space.
    pub word: String,
    /// The text after it.
    pub text: String,
    /// The same as bytes: a path need not be UTF-8.
    pub bytes: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

/// Sends a message.
pub fn send(socket: &OwnedFd, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS.into());
    }
    let text = [IoSlice::new(text.get(..MAX).unwrap_or(text))];
    rustix::net::sendmsg(socket, &text, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for a message. Returns nothing when the other process has ended.
pub fn receive(socket: &OwnedFd) -> io::Result<Option<Packet>> {
    let mut bytes = vec![0; MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let mut into = [IoSliceMut::new(&mut bytes)];
        match rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            received => break received?.bytes,
        }
    };
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(those) = message {
            descriptors.extend(those);
        }
    }
    bytes.truncate(received);
    if bytes.is_empty() {
        return Ok(None);
    }
    let end = bytes.iter().position(|&byte| byte == b' ');
    let end = end.unwrap_or(bytes.len());
    let word = String::from_utf8_lossy(bytes.get(..end).unwrap_or_default()).into_owned();
    let bytes = bytes.get(end + 1..).unwrap_or_default().to_vec();
    Ok(Some(Packet {
        word,
        text: String::from_utf8_lossy(&bytes).into_owned(),
        bytes,
        descriptors,
    }))
}
