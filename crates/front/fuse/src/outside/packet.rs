//! Messages between a server and its helper: a word, text, and descriptors.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use forerun_sys::packet;

const MAX: usize = 16 << 10;

#[derive(Debug)]
pub struct Packet {
    /// The text up to the first space.
    pub word: String,
    /// The text after the word.
    pub text: String,
    /// The same text as bytes: a path need not be UTF-8.
    pub bytes: Vec<u8>,
    pub descriptors: Vec<OwnedFd>,
}

pub fn send(socket: &OwnedFd, text: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    Ok(packet::send(
        socket,
        text.get(..MAX).unwrap_or(text),
        descriptors,
    )?)
}

/// Waits for a message. Returns `None` when the other process has ended.
pub fn receive(socket: &OwnedFd) -> io::Result<Option<Packet>> {
    let Some(received) = packet::receive(socket, MAX)? else {
        return Ok(None);
    };
    let (bytes, descriptors) = (received.text, received.descriptors);
    let end = bytes.iter().position(|&byte| byte == b' ');
    let end = end.unwrap_or(bytes.len());
    let word = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let bytes = bytes.get(end + 1..).unwrap_or_default().to_vec();
    Ok(Some(Packet {
        word,
        text: String::from_utf8_lossy(&bytes).into_owned(),
        bytes,
        descriptors,
    }))
}
