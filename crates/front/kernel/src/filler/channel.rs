//! The channel between the filler and its guard: words of one byte, one of them with descriptors. The
//! end of one process is the end of the channel to the other.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The most descriptors that come with a word.
const MOST: usize = 5;

/// A message on the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// To the guard, with the group, the watch, the private mount, the ledger and the command of a
    /// filler; to a filler that the guard has started, with all but the last: hold these.
    Hold,
    /// The answer: they are held.
    Held,
    /// To the guard: end, the mount needs no guard any more.
    Done,
    /// To the guard: start no other filler, and fail reads of missing bytes.
    Last,
}

impl Word {
    const ALL: [Self; 4] = [Self::Hold, Self::Held, Self::Done, Self::Last];

    const fn byte(self) -> u8 {
        match self {
            Self::Hold => b'h',
            Self::Held => b'H',
            Self::Done => b'd',
            Self::Last => b'l',
        }
    }
}

/// Returns both ends of a new channel.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        flags,
        None,
    )?)
}

/// Sends a word.
pub fn send(channel: impl AsFd, word: Word, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = [word.byte()];
    sendmsg(
        channel,
        &[IoSlice::new(&bytes)],
        &mut ancillary,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Waits for a word. Returns nothing when the other end is gone.
pub fn receive(channel: impl AsFd) -> io::Result<Option<(Word, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = rustix::io::retry_on_intr(|| recvmsg(&channel, &mut slices, &mut ancillary, flags));
    match got {
        Ok(got) if got.bytes == 0 => return Ok(None),
        Ok(_) => {}
        Err(rustix::io::Errno::CONNRESET) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    let word = Word::ALL.into_iter().find(|word| word.byte() == byte[0]);
    let word = word.ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((word, descriptors)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_descriptors_and_the_end() {
        let (here, there) = pair().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        send(&here, Word::Hold, &[read.as_fd(), write.as_fd()]).unwrap();
        send(&here, Word::Done, &[]).unwrap();
        drop((read, write));
        let (word, descriptors) = receive(&there).unwrap().unwrap();
        assert_eq!(word, Word::Hold);
        let [read, write] = &descriptors[..] else {
            panic!("{descriptors:?}")
        };
        rustix::io::write(write, b"x").unwrap();
        let mut byte = [0];
        assert_eq!(rustix::io::read(read, &mut byte), Ok(1));
        let (word, descriptors) = receive(&there).unwrap().unwrap();
        assert_eq!((word, descriptors.len()), (Word::Done, 0));
        drop(here);
        assert!(receive(&there).unwrap().is_none());
        assert!(send(&there, Word::Held, &[]).is_err());
    }
}
