//! The successor's part: takes over a mount.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use forerun::Image;
use forerun_engine::Volume;
use fuser::{Filesystem, Notifier};

use crate::adapter::Adapter;
use crate::adapter_mut::CoreMut;
use crate::connection::{resend, session};
use crate::error::{HandoverError, MountError};
use crate::handover::{Inherited, Turn};
use crate::mount::{Mount, config, show, show_volume};
use crate::options::MountOptions;
use crate::served::Served;
use crate::serving::{Serving, serve_session};
use crate::unmounter::Unmounter;
use crate::workers::Workers;

/// Takes over a mount of `image` from another server and returns once this process serves it.
/// `when_ready` runs after the last step likely to fail, while errors can still be reported. Fails
/// if `identity` differs from the identity that the first server sent.
///
/// # Errors
/// [`MountError`]. The supervisor then still has the mount.
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
    let image = match &served {
        Served::Image(core) if core.likeness() != inherited.offer.volume => {
            return Err(inherited.other_image().into());
        }
        Served::Image(core) => Some(Arc::clone(core)),
        Served::Volume(_) => None,
    };
    let workers = adapter.workers();
    let adapter = (adapter, workers);
    serve(adapter, served, inherited, options, |inherited, _| {
        when_ready();
        inherited.wait_to_serve()?;
        let connection = &inherited.descriptors.connection;
        match (image, &inherited.descriptors.state) {
            // The process that wrote the table has ended by now.
            (Some(core), Some(state)) => state
                .try_clone()
                .and_then(|state| core.backings.inherit(state, connection.try_clone()?))
                .map_err(HandoverError::State),
            (Some(core), None) => {
                core.backings.unavailable();
                Ok(())
            }
            (None, _) => Ok(()),
        }
    })
}

/// Serves a reopened volume after its previous server has ended.
///
/// # Errors
/// [`MountError`]. The supervisor then still has the mount.
pub fn take_over_volume(
    volume: Arc<Volume>,
    turn: Turn,
    options: &MountOptions,
) -> Result<Mount, MountError> {
    let Turn(mut inherited) = turn;
    let state = inherited.descriptors.state.take();
    let state = state.ok_or(HandoverError::Version)?;
    let (core, outdated) =
        CoreMut::recover(volume, options, state).map_err(HandoverError::State)?;
    let core = Arc::new(core);
    if core.likeness() != inherited.offer.volume {
        return Err(inherited.other_image().into());
    }
    show_volume(core, options, |adapter, served| {
        let workers = adapter.workers();
        let adapter = (adapter, workers);
        serve(
            adapter,
            served,
            inherited,
            options,
            |inherited, notifier| {
                let connection = &inherited.descriptors.connection;
                // Resend only now. This process holds the volume's lock, so every thread of the old
                // process has ended. The supervisor would notice only the first thread that ends,
                // and a request that another thread was still reading would be lost.
                resend(connection).map_err(HandoverError::Resend)?;
                if let Some(outdated) = outdated {
                    outdated.tell(notifier, connection);
                }
                Ok(())
            },
        )
    })
}

/// Starts serving the mount when `wait` has returned.
fn serve(
    (adapter, workers): (impl Filesystem + 'static, Workers),
    served: Served,
    inherited: Inherited,
    options: &MountOptions,
    wait: impl FnOnce(&Inherited, &Notifier) -> Result<(), HandoverError>,
) -> Result<(Mount, Notifier), MountError> {
    let (connection, offer) = (&inherited.descriptors.connection, &inherited.offer);
    let session = session(adapter, connection, offer.negotiated, config(options));
    let session = session.map_err(MountError::Handshake)?;
    let notifier = session.notifier();
    // Until the supervisor lets this process serve, dropping any of this must neither unmount nor
    // tell the watchdog that the mount has ended normally.
    let (path, outside) = (offer.path.clone(), options.outside.clone());
    let namespace = options.namespace.as_ref();
    let unmounter = Unmounter::inherited(path, offer.device, connection, outside, namespace);
    let unmounter = unmounter.map_err(MountError::Serve)?;
    let (start, started) = sync_channel::<()>(1);
    let ending = unmounter.clone();
    let serving = Serving::start(move || {
        let ended = match started.recv() {
            Ok(()) => serve_session(session),
            // This process does not get the mount.
            Err(_) => Ok(()),
        };
        ending.connection_ended();
        ended
    });
    let serving = serving.map_err(MountError::Serve)?;
    wait(&inherited, &notifier)?;
    unmounter.adopt(inherited.descriptors.watchdog);
    let mut mount = Mount::new(unmounter, served, workers);
    mount.serve_by(serving);
    let _it_waits = start.send(());
    tracing::info!(path = %mount.path().display(), "taken over");
    Ok((mount, notifier))
}
