//! The supervisor's part: it holds the connection of a mount, and passes it on.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::message::{Descriptors, Kind};
use super::{FromSupervisor, Offer};
use crate::MountNamespace;
use crate::channel::Channel;
use crate::connection::{is_connected, resend};
use crate::error::{HandoverError, UmountError};
use crate::umount::Unmounted;
use crate::unmounter::Unmounter;

/// A mount whose connection this process holds without serving it.
#[derive(Debug)]
pub struct Kept {
    descriptors: Descriptors,
    offer: Offer,
    unmounter: Unmounter,
}

impl Kept {
    /// Takes the mount that a process asks this one to keep. `text` is what follows the word.
    ///
    /// # Errors
    /// [`HandoverError::Version`] for a message that is not understood.
    pub fn new(text: &[u8], descriptors: Vec<OwnedFd>) -> Result<Self, HandoverError> {
        let offer = Offer::decode(text)?;
        let descriptors = Descriptors::received(descriptors, offer.kind)?;
        let connection = &descriptors.connection;
        let path = offer.path.clone();
        let unmounter = Unmounter::inherited(path, offer.device, connection, None, None);
        Ok(Self {
            unmounter: unmounter.map_err(HandoverError::Socket)?,
            descriptors,
            offer,
        })
    }

    /// Sets the mount namespace that has the mount, where that is not the one of this process.
    ///
    /// # Errors
    /// That the namespace cannot be joined.
    pub fn made_in(&mut self, namespace: &MountNamespace) -> io::Result<()> {
        let connection = &self.descriptors.connection;
        let path = self.offer.path.clone();
        let device = self.offer.device;
        self.unmounter = Unmounter::inherited(path, device, connection, None, Some(namespace))?;
        Ok(())
    }

    /// Offers the mount to a process that is to serve it.
    ///
    /// # Errors
    /// [`HandoverError::Socket`].
    pub fn offer(&self, channel: &Channel) -> Result<(), HandoverError> {
        let text = self.offer.encode(FromSupervisor::TAKE);
        channel
            .send(&text, &self.descriptors.sent())
            .map_err(HandoverError::Socket)
    }

    /// Has the kernel send again what a process that has ended took and did not answer. If the mount `is_served` again, what
    /// the new process is answering comes to it twice. That process does this itself for a volume, when all of the old one has
    /// ended.
    ///
    /// # Errors
    /// The errors of write(2); ENODEV where the mount has ended.
    pub fn resend(&self, is_served: bool) -> io::Result<()> {
        match self.offer.kind {
            Kind::Volume { .. } if is_served => Ok(()),
            Kind::Volume { .. } | Kind::Image { .. } => resend(&self.descriptors.connection),
        }
    }

    /// Returns where the mount is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.offer.path
    }

    /// Returns whether the kernel still has the mount.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        is_connected(&self.descriptors.connection)
    }

    /// Fails all requests, from now on. The mount stays where it is.
    ///
    /// # Errors
    /// That it cannot be aborted. It ends with the last process that holds its connection.
    pub fn abort(&self) -> io::Result<()> {
        self.unmounter.abort()
    }

    /// Takes the mount down. Requests that wait fail when this is dropped.
    ///
    /// # Errors
    /// [`UmountError`].
    pub fn unmount(&self) -> Result<Unmounted, UmountError> {
        self.unmounter.unmount()
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fstat, memfd_create};

    use super::*;
    use crate::connection::Negotiated;

    /// Returns whether the kernel is told to send requests again.
    fn is_resent(kind: Kind, is_served: bool) -> bool {
        let memory = || memfd_create("connection", MemfdFlags::CLOEXEC).unwrap();
        let (connection, state) = (memory(), memory());
        let offer = Offer {
            path: "/nowhere".into(),
            device: (0, 77),
            kind,
            negotiated: Negotiated { abi: 45, flags: 5 },
            volume: Vec::new(),
            identity: Vec::new(),
        };
        let descriptors = vec![connection.try_clone().unwrap(), state];
        let message = offer.encode(b"keep");
        let kept = Kept::new(&message[5..], descriptors).unwrap();
        kept.resend(is_served).unwrap();
        fstat(connection).unwrap().st_size > 0
    }

    #[test]
    fn the_live_server_of_a_volume_gets_no_request_twice() {
        let image = Kind::Image { has_state: true };
        let volume = Kind::Volume { was_clean: true };
        assert!(is_resent(image, true) && is_resent(image, false));
        assert!(is_resent(volume, false));
        assert!(!is_resent(volume, true));
    }
}
