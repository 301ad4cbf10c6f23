//! A mount that the supervisor offers to a successor.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::message::{Descriptors, Kind};
use super::{FromServer, FromSupervisor, Offer};
use crate::channel::Channel;
use crate::connection::is_connected;
use crate::error::{HandoverError, MountError};
use crate::outside::Outside;

#[derive(Debug)]
pub struct Inherited {
    supervisor: Channel,
    pub(crate) descriptors: Descriptors,
    pub(crate) offer: Offer,
}

/// A volume that this process may serve now.
#[derive(Debug)]
pub struct Turn(pub(crate) Inherited);

impl Inherited {
    pub(super) fn new(
        supervisor: Channel,
        text: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, HandoverError> {
        let offer = Offer::decode(text)?;
        Ok(Self {
            supervisor,
            descriptors: Descriptors::received(descriptors, offer.kind)?,
            offer,
        })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.offer.path
    }

    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        self.offer.device
    }

    /// Returns the identity of the image, as sent by the old server.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.offer.identity
    }

    #[must_use]
    pub const fn is_volume(&self) -> bool {
        matches!(self.offer.kind, Kind::Volume { .. })
    }

    /// Waits until the server of the volume has ended. For `identity` and `when_ready` see
    /// [`take_over`](crate::take_over()).
    ///
    /// # Errors
    /// [`MountError`]. The supervisor then still has the mount.
    pub fn wait(self, identity: &[u8], when_ready: impl FnOnce()) -> Result<Turn, MountError> {
        if self.offer.identity != identity {
            return Err(self.other_image().into());
        }
        when_ready();
        self.wait_to_serve()?;
        Ok(Turn(self))
    }

    /// Tells the supervisor that this process is ready, and waits for permission to serve.
    pub(crate) fn wait_to_serve(&self) -> Result<(), HandoverError> {
        FromServer::ready(&self.supervisor).map_err(HandoverError::Socket)?;
        match FromSupervisor::receive(&self.supervisor)? {
            FromSupervisor::Go => {}
            FromSupervisor::No => return Err(HandoverError::Refused),
            _ => return Err(HandoverError::NoSupervisor),
        }
        if is_connected(&self.descriptors.connection) {
            Ok(())
        } else {
            Err(HandoverError::Ended)
        }
    }

    pub(crate) fn other_image(&self) -> HandoverError {
        let path = self.offer.path.clone();
        HandoverError::OtherImage { path }
    }
}

impl Turn {
    /// Returns whether the volume was undamaged when it was mounted: any damage found now comes
    /// from servers that died.
    #[must_use]
    pub const fn was_clean(&self) -> bool {
        matches!(self.0.offer.kind, Kind::Volume { was_clean: true })
    }
}

impl Outside {
    /// Tells the process outside the sandbox about the mount that this server takes over, so that
    /// it can unmount it later. Must be called once, before this process enters its sandbox.
    pub fn adopt(&self, inherited: &Inherited) -> io::Result<()> {
        self.adopt_mount(inherited.device(), inherited.path())
    }
}
