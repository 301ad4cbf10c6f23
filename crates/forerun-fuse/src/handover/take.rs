//! The new process: takes the mount over, and has the kernel send again what was not answered.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use forerun::Image;
use fuser::{Notifier, Session};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags};

use super::give::is_readable;
use super::{GO, HandoverError, NO, Offer, READY, init, message};
use crate::adapter::Adapter;
use crate::guardian::Guardian;
use crate::mount::{Served, config, show};
use crate::unmounter::{Unmounter, is_connected};
use crate::{Mount, MountError, MountOptions};

/// How long the old process may take to end before it is served around.
const PATIENCE: Duration = Duration::from_secs(10);
/// Number of the notification that has requests sent again.
const NOTIFY_RESEND: u32 = 7;

/// A mount that another process offers to this one.
#[derive(Debug)]
pub struct Inherited {
    socket: OwnedFd,
    connection: OwnedFd,
    guardian: Option<OwnedFd>,
    offer: Offer,
}

impl Inherited {
    /// Takes the offer from the socket that the old process has given us.
    ///
    /// # Errors
    /// That there is none, or not one of this version.
    pub fn receive(socket: OwnedFd) -> Result<Self, HandoverError> {
        let mut bytes = vec![0; message::MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC;
        let received = rustix::net::recvmsg(&socket, &mut into, &mut control, flags)
            .map_err(|error| HandoverError::Socket(error.into()))?;
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(HandoverError::Version);
        }
        let mut descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let mut descriptors = descriptors.next().ok_or(HandoverError::Version)?;
        let connection = descriptors.next().ok_or(HandoverError::Version)?;
        let guardian = descriptors.next();
        let offer = Offer::decode(bytes.get(..received.bytes).unwrap_or_default())?;
        Ok(Self {
            socket,
            connection,
            guardian,
            offer,
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
/// for what the image is, to be compared with the old process's. `before_the_end` is done when nothing
/// is left that is likely to fail, and the old process, to which errors may be told, still lives.
///
/// # Errors
/// [`MountError`]. Unless the old process has ended meanwhile, it goes on serving the mount.
pub fn take_over(
    image: &Image,
    inherited: Inherited,
    identity: &[u8],
    options: &MountOptions,
    before_the_end: impl FnOnce(),
) -> Result<Mount, MountError> {
    if inherited.offer.identity != identity {
        return Err(inherited.other_image().into());
    }
    let reader = image.reader().clone();
    show(reader, options, |adapter, served| {
        begin(adapter, served, inherited, options, before_the_end)
    })
}

fn begin(
    adapter: Adapter,
    served: Served,
    inherited: Inherited,
    options: &MountOptions,
    before_the_end: impl FnOnce(),
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
        socket,
        connection,
        guardian,
        offer,
    } = inherited;
    let session = init::session(adapter, &connection, offer.negotiated, config(options));
    let session = session.map_err(MountError::Handshake)?;
    let notifier = session.notifier();
    // Until the old process has ended, nothing of this may unmount when it is dropped, nor tell the
    // guardian that all is well.
    let unmounter = Unmounter::inherited(
        offer.path,
        offer.device,
        &connection,
        options.outside.clone(),
    );
    let unmounter = unmounter.map_err(MountError::Serve)?;
    let (start, started) = sync_channel::<()>(1);
    let thread = std::thread::Builder::new().name("forerun-fuse".to_string());
    let ending = unmounter.clone();
    let serving = thread.spawn(move || {
        let ended = match started.recv() {
            Ok(()) => Session::run(session),
            // The mount is not ours after all.
            Err(_) => Ok(()),
        };
        ending.connection_ended();
        ended
    });
    let serving = serving.map_err(MountError::Serve)?;
    before_the_end();
    // If nobody is there any more, that shows next.
    let _gone_already = rustix::net::send(&socket, READY, SendFlags::NOSIGNAL);
    let gone = wait_for_end(&socket)?;
    if !is_connected(&connection) {
        return Err(HandoverError::Ended.into());
    }
    unmounter.adopt(guardian.map(Guardian::inherited));
    let mut mount = Mount::new(unmounter, served);
    mount.serve_by(serving);
    let _it_waits = start.send(());
    resend(&connection).map_err(MountError::Serve)?;
    if !gone {
        // It takes no more requests, but it may have taken one after all.
        let thread = std::thread::Builder::new().name("forerun-fuse-old".to_string());
        let waiting = thread.spawn(move || {
            if is_readable(&socket, None).is_ok()
                && let Err(error) = resend(&connection)
            {
                tracing::error!("requests of the old process are not sent again: {error}");
            }
        });
        waiting.map_err(MountError::Serve)?;
    }
    tracing::info!(path = %mount.path().display(), "taken over");
    Ok((mount, notifier))
}

/// Waits until the old process has ended. Gives whether it has: after it has said that it goes it is
/// not waited for forever, as a thread of it may hang in a source.
fn wait_for_end(socket: &OwnedFd) -> Result<bool, HandoverError> {
    let mut word = [0; 16];
    let mut patience = None;
    loop {
        if !is_readable(socket, patience).map_err(HandoverError::Socket)? {
            return Ok(false);
        }
        let received = rustix::net::recv(socket, &mut word, RecvFlags::empty());
        match received.map(|(count, _)| word.get(..count).unwrap_or_default()) {
            Ok(GO) => patience = Some(PATIENCE),
            Ok(NO) => return Err(HandoverError::Refused),
            Err(Errno::INTR) => {}
            // Its end, orderly or not.
            Ok(_) | Err(_) => return Ok(true),
        }
    }
}

/// Has the kernel send again what was taken and not answered.
fn resend(connection: &OwnedFd) -> io::Result<()> {
    let len: u32 = 16;
    let mut message = Vec::with_capacity(16);
    message.extend_from_slice(&len.to_ne_bytes());
    message.extend_from_slice(&NOTIFY_RESEND.to_ne_bytes());
    // No request of this number: a notification.
    message.extend_from_slice(&0_u64.to_ne_bytes());
    rustix::io::write(connection, &message)?;
    Ok(())
}
