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

/// A mount that the supervisor offers to this process.
#[derive(Debug)]
pub struct Inherited {
    supervisor: Channel,
    pub(crate) descriptors: Descriptors,
    pub(crate) offer: Offer,
}

/// The offer of a volume that the supervisor gives this process to serve.
#[derive(Debug)]
pub struct Turn(pub(crate) Inherited);

impl Inherited {
    /// Parses the offer that follows the word of a message on `supervisor`.
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

    /// Returns where the mount is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.offer.path
    }

    /// Returns the device number of the mount.
    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        self.offer.device
    }

    /// Returns the identity of the image, as the old process gave it.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.offer.identity
    }

    /// Returns whether a volume is mounted, for writing.
    #[must_use]
    pub const fn is_volume(&self) -> bool {
        matches!(self.offer.kind, Kind::Volume { .. })
    }

    /// Waits until the process that serves the volume has ended. `identity` and `when_ready` are as in
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

    /// Tells the supervisor that this process is ready, and waits until it is to serve.
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

    /// Returns the error for an image that is not the one of the offer.
    pub(crate) fn other_image(&self) -> HandoverError {
        let path = self.offer.path.clone();
        HandoverError::OtherImage { path }
    }
}

impl Turn {
    /// Returns whether the volume was sound when it was mounted: its damage now was left by servers
    /// that died.
    #[must_use]
    pub const fn was_clean(&self) -> bool {
        matches!(self.0.offer.kind, Kind::Volume { was_clean: true })
    }
}

impl Outside {
    /// Tells the outside process about the mount that this server takes over, so that it can act on it later. Call it
    /// once, before this process is sandboxed.
    ///
    /// # Errors
    /// The errors of the socket, and what the other process reports.
    pub fn adopt(&self, inherited: &Inherited) -> io::Result<()> {
        self.adopt_mount(inherited.device(), inherited.path())
    }
}
