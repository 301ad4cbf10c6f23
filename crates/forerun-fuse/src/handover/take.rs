//! The successor's part: it takes a mount over.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::sync_channel;

use forerun::Image;
use fuser::{Notifier, Session};

use super::{Channel, FromKeeper, FromServer, HandoverError, Offer, init};
use crate::adapter::Adapter;
use crate::guardian::Guardian;
use crate::mount::{Served, config, show};
use crate::serving::Serving;
use crate::unmounter::{Unmounter, is_connected};
use crate::{Mount, MountError, MountOptions};

/// A mount that the keeper offers to this process.
#[derive(Debug)]
pub struct Inherited {
    keeper: Channel,
    connection: OwnedFd,
    guardian: Option<OwnedFd>,
    offer: Offer,
}

impl Inherited {
    /// The offer that follows the word of a message on `keeper`.
    pub(super) fn new(
        keeper: Channel,
        text: &[u8],
        descriptors: Vec<OwnedFd>,
    ) -> Result<Self, HandoverError> {
        let mut descriptors = descriptors.into_iter();
        Ok(Self {
            keeper,
            connection: descriptors.next().ok_or(HandoverError::Version)?,
            guardian: descriptors.next(),
            offer: Offer::decode(text)?,
        })
    }

    /// Where the mount is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.offer.path
    }

    /// Its device number.
    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        self.offer.device
    }

    /// What the image is, in the words of the old process.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.offer.identity
    }

    fn other_image(&self) -> HandoverError {
        let path = self.offer.path.clone();
        HandoverError::OtherImage { path }
    }
}

/// Takes over a mount of `image`, and returns when it is served here. `identity` is the caller's word
/// for what the image is, to be compared with the word of the process that made the mount.
/// `when_ready` is done when nothing is left that is likely to fail, and errors can still be told.
///
/// # Errors
/// [`MountError`]. The keeper then still has the mount.
pub fn take_over(
    image: &Image,
    inherited: Inherited,
    identity: &[u8],
    options: &MountOptions,
    when_ready: impl FnOnce(),
) -> Result<Mount, MountError> {
    if inherited.offer.identity != identity {
        return Err(inherited.other_image().into());
    }
    let reader = image.reader().clone();
    show(reader, options, |adapter, served| {
        begin(adapter, served, inherited, options, when_ready)
    })
}

fn begin(
    adapter: Adapter,
    served: Served,
    inherited: Inherited,
    options: &MountOptions,
    when_ready: impl FnOnce(),
) -> Result<(Mount, Notifier), MountError> {
    if let Served::Image(core) = &served {
        if core.likeness() != inherited.offer.volume {
            return Err(inherited.other_image().into());
        }
        if !inherited.offer.passthrough {
            core.backings.unavailable();
        }
    }
    let Inherited {
        keeper,
        connection,
        guardian,
        offer,
    } = inherited;
    let workers = adapter.workers();
    let session = init::session(adapter, &connection, offer.negotiated, config(options));
    let session = session.map_err(MountError::Handshake)?;
    let notifier = session.notifier();
    // Until the keeper lets this process serve, nothing of this may unmount when it is dropped, nor
    // tell the guardian that all is well.
    let unmounter = Unmounter::inherited(
        offer.path,
        offer.device,
        &connection,
        options.outside.clone(),
    );
    let unmounter = unmounter.map_err(MountError::Serve)?;
    let (start, started) = sync_channel::<()>(1);
    let ending = unmounter.clone();
    let serving = Serving::start(move || {
        let ended = match started.recv() {
            Ok(()) => Session::run(session),
            // The mount is not ours after all.
            Err(_) => Ok(()),
        };
        ending.connection_ended();
        ended
    });
    let serving = serving.map_err(MountError::Serve)?;
    when_ready();
    FromServer::ready(&keeper).map_err(HandoverError::Socket)?;
    match FromKeeper::receive(&keeper)? {
        FromKeeper::Go => {}
        FromKeeper::No => return Err(HandoverError::Refused.into()),
        _ => return Err(HandoverError::NoKeeper.into()),
    }
    if !is_connected(&connection) {
        return Err(HandoverError::Ended.into());
    }
    unmounter.adopt(guardian.map(Guardian::inherited));
    let mut mount = Mount::new(unmounter, served, workers);
    mount.serve_by(serving);
    let _it_waits = start.send(());
    tracing::info!(path = %mount.path().display(), "taken over");
    Ok((mount, notifier))
}
