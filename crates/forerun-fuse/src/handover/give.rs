//! The old process: offers the mount, waits until the new process is ready, and ends.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    SocketType,
};

use super::{GO, HandoverError, NO, Offer, READY};
use crate::core::Core;
use crate::unmounter::Unmounter;

/// What can pass a mount on to another process, from any thread.
#[derive(Clone, Debug)]
pub struct Giver {
    /// Nothing for a volume that is mounted for writing.
    core: Option<Weak<Core>>,
    unmounter: Unmounter,
}

/// A mount that is on offer.
#[derive(Debug)]
pub struct Offered {
    giver: Giver,
    ours: OwnedFd,
}

impl Giver {
    /// For a mount of this process.
    pub(crate) fn new(core: Option<&Arc<Core>>, unmounter: Unmounter) -> Self {
        Self {
            core: core.map(Arc::downgrade),
            unmounter,
        }
    }

    /// Device number of the mount.
    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        self.unmounter.device()
    }

    /// Whether it can be handed over now, as far as can be told.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), HandoverError> {
        let core = self.core()?;
        if !core.negotiated.get().is_some_and(|with| with.resends()) {
            return Err(HandoverError::Kernel);
        }
        match core.backings.registered() {
            0 => Ok(()),
            count => Err(HandoverError::OpenFiles { count }),
        }
    }

    fn core(&self) -> Result<Arc<Core>, HandoverError> {
        let core = self.core.as_ref().ok_or(HandoverError::Volume)?;
        core.upgrade().ok_or(HandoverError::Ended)
    }

    /// Offers the mount, with the caller's word for what the image is. Gives the offer and the end
    /// of the socket that is for the new process, whose first words are on it already.
    ///
    /// # Errors
    /// As [`check`](Self::check), and those of the system.
    pub fn offer(&self, identity: &[u8]) -> Result<(Offered, OwnedFd), HandoverError> {
        self.check()?;
        let core = self.core()?;
        let negotiated = *core.negotiated.get().ok_or(HandoverError::Kernel)?;
        let offer = Offer {
            path: self.unmounter.path().to_path_buf(),
            device: self.device(),
            negotiated,
            passthrough: core.backings.wanted(),
            volume: core.likeness(),
            identity: identity.to_vec(),
        };
        let too_long = || HandoverError::Socket(Errno::MSGSIZE.into());
        let message = offer.encode().ok_or_else(too_long)?;
        let (connection, guardian) = self.unmounter.share().map_err(HandoverError::Socket)?;
        let connection = connection.ok_or(HandoverError::Ended)?;
        let (ours, theirs) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .map_err(|error| HandoverError::Socket(error.into()))?;
        let mut descriptors = vec![connection.as_fd()];
        descriptors.extend(guardian.as_ref().map(AsFd::as_fd));
        send(&ours, &message, &descriptors).map_err(HandoverError::Socket)?;
        let giver = self.clone();
        Ok((Offered { giver, ours }, theirs))
    }
}

impl Offered {
    /// Waits until the new process is ready.
    ///
    /// # Errors
    /// That it has ended, or takes longer than this.
    pub fn wait(&self, patience: Duration) -> Result<(), HandoverError> {
        let mut word = [0; 16];
        if !is_readable(&self.ours, Some(patience)).map_err(HandoverError::Socket)? {
            let seconds = patience.as_secs();
            return Err(HandoverError::TooLate { seconds });
        }
        let (count, _) = rustix::net::recv(&self.ours, &mut word, RecvFlags::empty())
            .map_err(|error| HandoverError::Socket(error.into()))?;
        match word.get(..count) == Some(READY) {
            true => Ok(()),
            false => Err(HandoverError::NotReady),
        }
    }

    /// The last step: the new process is let go. If this succeeds, this process must end at once,
    /// and must not unmount.
    ///
    /// # Errors
    /// That it cannot be handed over now; the new process is told.
    pub fn commit(self) -> Result<(), HandoverError> {
        self.giver.check()?;
        let core = self.giver.core()?;
        core.backings
            .close()
            .map_err(|count| HandoverError::OpenFiles { count })?;
        // Whether or not it arrives, our end follows, which says the same.
        let _said_by_our_end = rustix::net::send(&self.ours, GO, SendFlags::NOSIGNAL);
        // The socket ends with this process and not before.
        std::mem::forget(self);
        Ok(())
    }
}

/// The end of the socket without a word would mean that this process has died.
impl Drop for Offered {
    fn drop(&mut self) {
        let _gone_itself = rustix::net::send(&self.ours, NO, SendFlags::NOSIGNAL);
    }
}

fn send(socket: &OwnedFd, message: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::NOBUFS.into());
    }
    let message = [IoSlice::new(message)];
    rustix::net::sendmsg(socket, &message, &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits until something can be read, the end included. Gives whether it can.
pub fn is_readable(socket: &OwnedFd, patience: Option<Duration>) -> io::Result<bool> {
    let until = patience.map(|patience| std::time::Instant::now() + patience);
    loop {
        let left = until.map(|until| until.saturating_duration_since(std::time::Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], left.as_ref()) {
            Ok(count) => return Ok(count > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
