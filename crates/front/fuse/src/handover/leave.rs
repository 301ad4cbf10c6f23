//! The server's part: has its mount kept, and hands it over to a successor.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Instant;

use forerun_io::Unpoisoned;

use super::message::{Descriptors, Kind};
use super::{FromServer, Offer};
use crate::adapter_mut::{CoreMut, MOST_SERVERS};
use crate::channel::Channel;
use crate::connection::Negotiated;
use crate::core::Core;
use crate::error::HandoverError;
use crate::served::Served;
use crate::tuning::{RELEASE_PAUSE, RELEASE_WAIT};
use crate::unmounter::Unmounter;

/// A handle to hand over a mount, usable from any thread.
#[derive(Clone, Debug)]
pub struct Giver {
    served: Given,
    unmounter: Unmounter,
}

#[derive(Clone, Debug)]
enum Given {
    Image(Weak<Core>),
    Volume(Weak<CoreMut>),
}

impl Giver {
    pub(crate) fn new(served: &Served, unmounter: Unmounter) -> Self {
        let served = match served {
            Served::Image(core) => Given::Image(Arc::downgrade(core)),
            Served::Volume(core) => Given::Volume(Arc::downgrade(core)),
        };
        Self { served, unmounter }
    }

    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        self.unmounter.device()
    }

    fn served(&self) -> Result<Served, HandoverError> {
        let served = match &self.served {
            Given::Image(core) => core.upgrade().map(Served::Image),
            Given::Volume(core) => core.upgrade().map(Served::Volume),
        };
        served.ok_or(HandoverError::Ended)
    }

    /// Checks that another process could serve the mount if this one died. Returns the obstacle
    /// otherwise.
    pub fn can_be_kept(&self) -> Result<(), HandoverError> {
        let served = self.served()?;
        match &served {
            Served::Image(core) if !core.backings.can_be_kept() => {
                return Err(HandoverError::OpenFiles);
            }
            Served::Volume(core) if !core.known.is_kept() => return Err(HandoverError::Volume),
            Served::Volume(core) if core.known.numbers.are_used_up() => {
                let count = MOST_SERVERS;
                return Err(HandoverError::Numbers { count });
            }
            Served::Image(_) | Served::Volume(_) => {}
        }
        if negotiated(&served).is_some_and(Negotiated::resends) {
            Ok(())
        } else {
            Err(HandoverError::Kernel)
        }
    }

    /// Checks that another process could take over now. Returns the obstacle otherwise.
    pub fn check(&self) -> Result<(), HandoverError> {
        self.can_be_kept()?;
        match self.served()? {
            Served::Image(_) => Ok(()),
            Served::Volume(core) => {
                let until = Instant::now() + RELEASE_WAIT;
                while let Err(error) = has_names(&core) {
                    wait_for_release(until).ok_or(error)?;
                }
                Ok(())
            }
        }
    }

    /// Sends the connection to the supervisor, with `identity`, the caller's identification of the
    /// image.
    pub fn keep(&self, supervisor: &Channel, identity: &[u8]) -> Result<(), HandoverError> {
        self.can_be_kept()?;
        let served = self.served()?;
        let (kind, volume, state) = match &served {
            Served::Image(core) => {
                let state = core.backings.share();
                let has_state = state.is_some();
                (Kind::Image { has_state }, core.likeness(), state)
            }
            Served::Volume(core) => {
                let was_clean = core.info.warnings.is_empty();
                let state = core.known.share();
                (Kind::Volume { was_clean }, core.likeness(), state)
            }
        };
        let offer = Offer {
            path: self.unmounter.path().to_path_buf(),
            device: self.device(),
            kind,
            negotiated: negotiated(&served).ok_or(HandoverError::Kernel)?,
            volume,
            identity: identity.to_vec(),
        };
        let (connection, watchdog) = self.unmounter.share().map_err(HandoverError::Socket)?;
        let descriptors = Descriptors {
            connection: connection.ok_or(HandoverError::Ended)?,
            state: state.transpose().map_err(HandoverError::State)?,
            watchdog,
        };
        let text = offer.encode(FromServer::KEEP);
        supervisor
            .send(&text, &descriptors.sent())
            .map_err(HandoverError::Socket)
    }

    /// Hands over to a successor that is ready. Calls `end` when everything is done, while no
    /// request is answered: it must end this process without unmounting.
    pub fn leave(&self, end: impl FnOnce()) -> Result<(), HandoverError> {
        self.can_be_kept()?;
        match self.served()? {
            Served::Image(core) => {
                core.backings.close();
                end();
            }
            Served::Volume(core) => {
                let until = Instant::now() + RELEASE_WAIT;
                let _nothing_is_answered = loop {
                    let gate = core.gate.write().unpoisoned();
                    let Err(error) = has_names(&core) else {
                        break gate;
                    };
                    // Let the awaited RELEASE be answered.
                    drop(gate);
                    wait_for_release(until).ok_or(error)?;
                };
                core.leave()?;
                end();
            }
        }
        Ok(())
    }
}

/// Waits briefly for the RELEASE of removed files, which the kernel sends asynchronously. Returns
/// `None` when the time is over.
fn wait_for_release(until: Instant) -> Option<()> {
    (Instant::now() < until).then(|| thread::sleep(RELEASE_PAUSE))
}

fn has_names(core: &CoreMut) -> Result<(), HandoverError> {
    match core.known.nameless(|node, name| core.is_named(node, name)) {
        0 => Ok(()),
        count => Err(HandoverError::Nameless { count }),
    }
}

fn negotiated(served: &Served) -> Option<Negotiated> {
    match served {
        Served::Image(core) => core.negotiated.get().copied(),
        Served::Volume(core) => core.negotiated.get().copied(),
    }
}
