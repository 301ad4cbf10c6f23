//! The end of a mount, brought about by its own process.
//!
//! Unmounting goes by path, and a path can come to mean another mount while we serve: ours may have
//! been unmounted by somebody, and theirs put in its place. So it is made sure first that what would
//! be unmounted is ours.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forerun::{mounts, top_mount};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::guardian::Guardian;
use crate::outside::{Attached, Outside};
use crate::umount::detach;
use crate::{MountError, UmountError};

/// What can end a mount, from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    path: PathBuf,
    device: (u32, u32),
    held: Arc<Mutex<Held>>,
    /// The process that unmounts for this one.
    outside: Option<Outside>,
}

/// What is let go of when the mount has ended.
#[derive(Debug)]
struct Held {
    /// The connection, to see whether it still is one: the device number of a mount that has ended
    /// may already be that of another.
    connection: Option<OwnedFd>,
    guardian: Option<Guardian>,
}

/// What came of [`Unmounter::unmount`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// It is gone.
    Done,
    /// It is out of sight, but somebody still has files open: these are served until they are
    /// closed, and only then does [`Mount::wait`](crate::Mount::wait) return.
    StillInUse,
}

/// Where our mount is.
enum Sight {
    Gone,
    OnTop,
    Covered,
}

impl Unmounter {
    /// For the mount that was just made on `path`. If this fails it is unmounted.
    pub fn new(path: PathBuf, connection: &OwnedFd, guard: bool) -> Result<Self, MountError> {
        Self::try_new(&path, connection, guard).inspect_err(|_| {
            if let Err(error) = detach(&path, true) {
                tracing::error!("{error}");
            }
        })
    }

    fn try_new(path: &Path, connection: &OwnedFd, guard: bool) -> Result<Self, MountError> {
        let entry = top_mount(path).map_err(MountError::MountInfo)?;
        let Some(entry) = entry else {
            return Err(MountError::NoAnswer {
                path: path.to_path_buf(),
                source: io::ErrorKind::NotFound.into(),
            });
        };
        let connection = connection.try_clone().map_err(MountError::Serve)?;
        let guardian = guard.then(|| Guardian::start(path, entry.device));
        let held = Held {
            connection: Some(connection),
            guardian: guardian.transpose().map_err(MountError::Guardian)?,
        };
        Ok(Self {
            path: path.to_path_buf(),
            device: entry.device,
            held: Arc::new(Mutex::new(held)),
            outside: None,
        })
    }

    /// For the mount that the process outside has just made on `path`.
    pub(crate) fn outside(
        path: PathBuf,
        attached: Attached,
        outside: Outside,
    ) -> Result<(Self, OwnedFd), MountError> {
        let Attached {
            connection,
            device,
            guardian,
        } = attached;
        let unmounter = Self::inherited(path, device, &connection, Some(outside));
        let unmounter = unmounter.map_err(MountError::Serve)?;
        unmounter.adopt(guardian);
        Ok((unmounter, connection))
    }

    /// For a mount that another process has made, and still serves.
    pub(crate) fn inherited(
        path: PathBuf,
        device: (u32, u32),
        connection: &OwnedFd,
        outside: Option<Outside>,
    ) -> io::Result<Self> {
        let held = Held {
            connection: Some(connection.try_clone()?),
            guardian: None,
        };
        Ok(Self {
            path,
            device,
            held: Arc::new(Mutex::new(held)),
            outside,
        })
    }

    /// Takes on the guardian that watched over the other process.
    pub(crate) fn adopt(&self, guardian: Option<Guardian>) {
        self.lock().guardian = guardian;
    }

    /// What another process needs to hold: the connection, if there still is one, and the pipe to
    /// the guardian.
    pub(crate) fn share(&self) -> io::Result<(Option<OwnedFd>, Option<OwnedFd>)> {
        let held = self.lock();
        let connection = held.connection.as_ref().filter(|fd| is_connected(fd));
        let connection = connection.map(OwnedFd::try_clone).transpose()?;
        let guardian = held.guardian.as_ref().map(Guardian::share).transpose()?;
        Ok((connection, guardian.flatten()))
    }

    /// Where the mount is, or was.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its device number.
    pub(crate) const fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Takes the mount down; detaches it if it is in use. Done already is done.
    ///
    /// # Errors
    /// [`UmountError`].
    pub fn unmount(&self) -> Result<Unmounted, UmountError> {
        if let Some(outside) = &self.outside {
            let connection = self.lock().connection.as_ref().map(OwnedFd::try_clone);
            return match connection {
                Some(Ok(connection)) if is_connected(&connection) => outside.unmount(&connection),
                Some(Ok(_)) | None => Ok(Unmounted::Done),
                Some(Err(error)) => Err(UmountError::Outside(error.to_string())),
            };
        }
        match self.sight()? {
            Sight::Gone => return Ok(Unmounted::Done),
            Sight::Covered => {
                let path = self.path.clone();
                return Err(UmountError::Covered { path });
            }
            Sight::OnTop => {}
        }
        match detach(&self.path, false) {
            Ok(()) => Ok(Unmounted::Done),
            Err(UmountError::Busy { .. }) => {
                detach(&self.path, true)?;
                Ok(Unmounted::StillInUse)
            }
            // Somebody was quicker.
            Err(_) if matches!(self.sight(), Ok(Sight::Gone)) => Ok(Unmounted::Done),
            Err(error) => Err(error),
        }
    }

    /// Nobody answers requests any more. The kernel cuts the connection when no process has it open.
    pub(crate) fn connection_ended(&self) {
        self.lock().connection = None;
    }

    /// There is nothing left to unmount when we die.
    pub(crate) fn dismiss_guardian(&self) {
        // Not under the lock: the guardian is waited for.
        let guardian = self.lock().guardian.take();
        drop(guardian);
    }

    fn sight(&self) -> Result<Sight, UmountError> {
        if !self.lock().connection.as_ref().is_some_and(is_connected) {
            return Ok(Sight::Gone);
        }
        let mut here = mounts().map_err(UmountError::MountInfo)?;
        here.retain(|entry| entry.mount_point == self.path);
        let ours = here.iter().rposition(|entry| entry.device == self.device);
        Ok(match ours {
            None => Sight::Gone,
            Some(at) if at + 1 == here.len() => Sight::OnTop,
            Some(_) => Sight::Covered,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// FUSE signals an error on a connection that has no mount any more.
pub fn is_connected(connection: &OwnedFd) -> bool {
    let mut connection = [PollFd::new(connection, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    match poll(&mut connection, Some(&at_once)) {
        Ok(_) => connection
            .iter()
            .all(|fd| !fd.revents().contains(PollFlags::ERR)),
        Err(_) => true,
    }
}
