//! Unmounts from the serving process.
//!
//! umount(2) takes a path, which may lead to another mount by now (this one was unmounted or
//! covered). So the mount is found by its mount ID and device number.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use forerun_io::Unpoisoned;
use forerun_sys::mount_table::{MountEntry, mounts};
use forerun_sys::mountpoint::{Sight, find_mount};

use crate::abort::abort;
use crate::connection::{has_requests, is_connected, second};
use crate::namespace::within;
use crate::outside::{MountedOutside, Outside};
use crate::umount::{Unmounted, take_down};
use crate::{MountError, MountNamespace, MountOptions, UmountError, UmountOptions};

/// A handle to end a mount from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    path: PathBuf,
    device: (u32, u32),
    /// `None` if the mount was already detached when it was taken over, or if the caller made it.
    mount: Option<Arc<MountEntry>>,
    held: Arc<Mutex<Held>>,
    outside: Option<Outside>,
    /// The mount namespace to unmount in, if it is not this process's.
    namespace: Option<MountNamespace>,
}

const LAZILY: UmountOptions = UmountOptions {
    lazy: true,
    force: false,
};

#[derive(Debug)]
struct Held {
    /// The connection, to detect the end of the mount: another mount may get its device number
    /// afterwards.
    connection: Option<OwnedFd>,
    watchdog: Option<OwnedFd>,
}

impl Unmounter {
    /// Creates a handle to a new mount. On an error the mount is unmounted.
    pub fn new(
        mount: MountEntry,
        connection: &OwnedFd,
        options: &MountOptions,
    ) -> Result<Self, MountError> {
        let cloned = connection.try_clone().inspect_err(|_| {
            if let Err(error) = take_down(&mount, LAZILY) {
                tracing::error!("{error}");
            }
        });
        let held = Held {
            connection: Some(cloned.map_err(MountError::Serve)?),
            watchdog: None,
        };
        Ok(Self {
            path: mount.mount_point.clone(),
            device: mount.device,
            mount: Some(Arc::new(mount)),
            held: Arc::new(Mutex::new(held)),
            outside: None,
            namespace: options.namespace.clone(),
        })
    }

    /// Creates a handle to a mount that the helper has just made.
    pub(crate) fn outside(
        attached: MountedOutside,
        outside: Outside,
    ) -> Result<(Self, OwnedFd), MountError> {
        let MountedOutside {
            connection,
            device,
            path,
            watchdog,
        } = attached;
        let unmounter = Self::inherited(path, device, &connection, Some(outside), None);
        let unmounter = unmounter.map_err(MountError::Serve)?;
        unmounter.adopt(watchdog);
        Ok((unmounter, connection))
    }

    /// Creates a handle to a mount that another process serves, to unmount it.
    pub(crate) fn of(
        mount: MountEntry,
        connection: OwnedFd,
        namespace: Option<MountNamespace>,
    ) -> Self {
        let held = Held {
            connection: Some(connection),
            watchdog: None,
        };
        Self {
            path: mount.mount_point.clone(),
            device: mount.device,
            mount: Some(Arc::new(mount)),
            held: Arc::new(Mutex::new(held)),
            outside: None,
            namespace,
        }
    }

    /// Creates a handle to a mount that the caller made and that ends with this process. Only the
    /// caller knows where it is.
    pub(crate) fn connected(dir: &Path, connection: &OwnedFd) -> Result<Self, MountError> {
        let held = Held {
            connection: Some(connection.try_clone().map_err(MountError::Serve)?),
            watchdog: None,
        };
        Ok(Self {
            path: dir.to_path_buf(),
            device: (0, 0),
            mount: None,
            held: Arc::new(Mutex::new(held)),
            outside: None,
            namespace: None,
        })
    }

    /// Creates a handle to a mount that another process made and still serves.
    pub(crate) fn inherited(
        path: PathBuf,
        device: (u32, u32),
        connection: &OwnedFd,
        outside: Option<Outside>,
        namespace: Option<&MountNamespace>,
    ) -> io::Result<Self> {
        let held = Held {
            connection: Some(connection.try_clone()?),
            watchdog: None,
        };
        let is_it = |entry: &MountEntry| entry.device == device && entry.mount_point == path;
        let mount = match &outside {
            Some(_) => None,
            None => within(namespace, mounts)??.into_iter().rfind(is_it),
        };
        Ok(Self {
            path,
            device,
            mount: mount.map(Arc::new),
            held: Arc::new(Mutex::new(held)),
            outside,
            namespace: namespace.cloned(),
        })
    }

    pub(crate) fn adopt(&self, watchdog: Option<OwnedFd>) {
        self.lock().watchdog = watchdog;
    }

    /// Returns the descriptors that another process must hold: the connection, if it still exists,
    /// and the watchdog's pipe.
    pub(crate) fn share(&self) -> io::Result<(Option<OwnedFd>, Option<OwnedFd>)> {
        let held = self.lock();
        let connection = held.connection.as_ref().filter(|fd| is_connected(fd));
        let connection = connection.map(OwnedFd::try_clone).transpose()?;
        let watchdog = held.watchdog.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok((connection, watchdog))
    }

    /// Returns the mountpoint, also after the mount has ended.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Unmounts; detaches a mount that is in use. Succeeds if the mount has ended already.
    pub fn unmount(&self) -> Result<Unmounted, UmountError> {
        self.end(true)
    }

    /// Unmounts unless the mount is in use.
    pub fn unmount_unused(&self) -> Result<Unmounted, UmountError> {
        self.end(false)
    }

    fn end(&self, also_in_use: bool) -> Result<Unmounted, UmountError> {
        if let Some(outside) = &self.outside {
            let connection = self.lock().connection.as_ref().map(OwnedFd::try_clone);
            return match connection {
                Some(Ok(connection)) if is_connected(&connection) => {
                    outside.unmount(&connection, also_in_use)
                }
                Some(Ok(_)) | None => Ok(Unmounted::Done),
                Some(Err(error)) => Err(UmountError::Outside(error.to_string())),
            };
        }
        let Some(mount) = self.mount.as_deref().filter(|_| self.is_connected()) else {
            return Ok(Unmounted::Done);
        };
        match within(self.namespace.as_ref(), || {
            self.take_down(mount, also_in_use)
        }) {
            Ok(taken) => taken,
            // The namespace has ended, and its mounts with it.
            Err(_) if !self.is_connected() => Ok(Unmounted::Done),
            Err(source) => {
                let path = self.path.clone();
                Err(UmountError::Path { path, source })
            }
        }
    }

    fn take_down(&self, mount: &MountEntry, also_in_use: bool) -> Result<Unmounted, UmountError> {
        match take_down(mount, UmountOptions::default()) {
            Ok(()) | Err(UmountError::NotMounted { .. }) => Ok(Unmounted::Done),
            Err(UmountError::Busy { .. }) => {
                if also_in_use {
                    take_down(mount, LAZILY)?;
                }
                Ok(Unmounted::StillInUse)
            }
            // Another process unmounted first.
            Err(_) if !self.is_connected() => Ok(Unmounted::Done),
            Err(_) if matches!(find_mount(mount), Ok(Sight::Gone)) => Ok(Unmounted::Done),
            Err(error) => Err(error),
        }
    }

    /// Closes the connection after its threads have ended. The kernel ends it when no process has
    /// it open.
    pub(crate) fn connection_ended(&self) {
        self.lock().connection = None;
    }

    /// Ends the watchdog: nothing needs to be unmounted if this process dies.
    pub(crate) fn dismiss_watchdog(&self) {
        if let Some(pipe) = self.lock().watchdog.take() {
            // An error means that the watchdog has ended already.
            let _gone = rustix::io::write(&pipe, b"d");
        }
    }

    /// Returns the connection. Fails once the mount has ended.
    pub(crate) fn connection(&self) -> io::Result<OwnedFd> {
        let (connection, _) = self.share()?;
        connection.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Returns a descriptor of the connection for [`Apart`](crate::apart::Apart): of a second file
    /// if possible.
    pub(crate) fn second(&self) -> io::Result<OwnedFd> {
        let connection = self.connection()?;
        let opened = match &self.outside {
            Some(outside) => outside.second(connection.as_fd()),
            None => second(connection.as_fd()),
        };
        Ok(opened.unwrap_or_else(|error| {
            tracing::debug!("the connection has no second file: {error}");
            connection
        }))
    }

    pub(crate) fn abort(&self) -> io::Result<()> {
        match self.mount.as_deref().filter(|_| self.is_connected()) {
            Some(mount) => within(self.namespace.as_ref(), || abort(mount))?,
            None => Ok(()),
        }
    }

    pub(crate) fn has_requests(&self) -> bool {
        self.lock().connection.as_ref().is_some_and(has_requests)
    }

    fn is_connected(&self) -> bool {
        self.lock().connection.as_ref().is_some_and(is_connected)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unpoisoned()
    }
}
