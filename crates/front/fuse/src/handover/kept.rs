//! The supervisor's part: holds the connection of a mount and passes it on.

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
    /// Accepts the mount that a server asks the supervisor to keep. `text` follows the word of the
    /// message.
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

    /// Sets the mount namespace that contains the mount, if it is not this process's.
    pub fn made_in(&mut self, namespace: &MountNamespace) -> io::Result<()> {
        let connection = &self.descriptors.connection;
        let path = self.offer.path.clone();
        let device = self.offer.device;
        self.unmounter = Unmounter::inherited(path, device, connection, None, Some(namespace))?;
        Ok(())
    }

    pub fn offer(&self, channel: &Channel) -> Result<(), HandoverError> {
        let text = self.offer.encode(FromSupervisor::TAKE);
        channel
            .send(&text, &self.descriptors.sent())
            .map_err(HandoverError::Socket)
    }

    /// Makes the kernel resend the requests that an ended process took and did not answer. If the
    /// mount already `is_served` again, requests in the new server are duplicated. For a volume the
    /// new server does this itself, once all of the old one has ended.
    pub fn resend(&self, is_served: bool) -> io::Result<()> {
        match self.offer.kind {
            Kind::Volume { .. } if is_served => Ok(()),
            Kind::Volume { .. } | Kind::Image { .. } => resend(&self.descriptors.connection),
        }
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.offer.path
    }

    #[must_use]
    pub fn is_connected(&self) -> bool {
        is_connected(&self.descriptors.connection)
    }

    /// Fails all requests from now on. The mount stays. After an error, the connection ends with
    /// the last process that holds it.
    pub fn abort(&self) -> io::Result<()> {
        self.unmounter.abort()
    }

    /// Unmounts. Waiting requests fail when this value is dropped.
    pub fn unmount(&self) -> Result<Unmounted, UmountError> {
        self.unmounter.unmount()
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, fstat, memfd_create};

    use super::*;
    use crate::connection::Negotiated;

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
