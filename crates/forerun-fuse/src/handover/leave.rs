//! The server's part: it has its mount kept, and leaves it to a successor.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

use super::{Channel, FromServer, HandoverError, Offer};
use crate::core::Core;
use crate::unmounter::Unmounter;

/// What can pass a mount on to another process, from any thread.
#[derive(Clone, Debug)]
pub struct Giver {
    /// Nothing for a volume that is mounted for writing.
    core: Option<Weak<Core>>,
    unmounter: Unmounter,
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

    /// Returns whether another process could serve the mount if this one died.
    ///
    /// # Errors
    /// Why not.
    pub fn can_be_kept(&self) -> Result<(), HandoverError> {
        let negotiated = self.core()?.negotiated.get().copied();
        match negotiated.is_some_and(|with| with.resends()) {
            true => Ok(()),
            false => Err(HandoverError::Kernel),
        }
    }

    /// Returns whether another process could take over from this one now, as far as can be told.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), HandoverError> {
        self.can_be_kept()?;
        match self.core()?.backings.registered() {
            0 => Ok(()),
            count => Err(HandoverError::OpenFiles { count }),
        }
    }

    /// Gives the connection to the keeper, with the caller's word for what the image is.
    ///
    /// # Errors
    /// As [`can_be_kept`](Self::can_be_kept), and those of the system.
    pub fn keep(&self, keeper: &Channel, identity: &[u8]) -> Result<(), HandoverError> {
        self.can_be_kept()?;
        let core = self.core()?;
        let offer = Offer {
            path: self.unmounter.path().to_path_buf(),
            device: self.device(),
            negotiated: *core.negotiated.get().ok_or(HandoverError::Kernel)?,
            passthrough: core.backings.wanted(),
            volume: core.likeness(),
            identity: identity.to_vec(),
        };
        let shared = self.unmounter.share().map_err(HandoverError::Socket)?;
        let connection = shared.0.ok_or(HandoverError::Ended)?;
        let mut descriptors = vec![connection.as_fd()];
        descriptors.extend(shared.1.as_ref().map(AsFd::as_fd));
        let text = offer.encode(FromServer::KEEP);
        keeper
            .send(&text, &descriptors)
            .map_err(HandoverError::Socket)
    }

    /// Makes place for a successor that is ready. If this succeeds, this process must end at once, and
    /// must not unmount.
    ///
    /// # Errors
    /// That it cannot leave now.
    pub fn leave(&self) -> Result<(), HandoverError> {
        self.check()?;
        let core = self.core()?;
        core.backings
            .close()
            .map_err(|count| HandoverError::OpenFiles { count })
    }

    fn core(&self) -> Result<Arc<Core>, HandoverError> {
        let core = self.core.as_ref().ok_or(HandoverError::Volume)?;
        core.upgrade().ok_or(HandoverError::Ended)
    }
}
