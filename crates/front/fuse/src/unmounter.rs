//! Unmounts from the serving process.
//!
//! umount(2) takes a path, which may now lead to another mount (ours unmounted or covered). So the mount is found by
//! its mount number and device.

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

/// A handle that ends a mount, from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    path: PathBuf,
    device: (u32, u32),
    /// Nothing where the mount was out of sight already when it was taken over, and where the caller has made it.
    mount: Option<Arc<MountEntry>>,
    held: Arc<Mutex<Held>>,
    /// The process that unmounts for this one.
    outside: Option<Outside>,
    /// The mount namespace to unmount in, where it is not that of this process.
    namespace: Option<MountNamespace>,
}

const LAZILY: UmountOptions = UmountOptions {
    lazy: true,
    force: false,
};

/// The resources that are released when the mount has ended.
#[derive(Debug)]
struct Held {
    /// The connection, to see whether it still is one: the device number of a mount that has ended
    /// may already be that of another.
    connection: Option<OwnedFd>,
    /// The pipe to the process of `auto_unmount`.
    watchdog: Option<OwnedFd>,
}

impl Unmounter {
    /// Creates one for a mount that was just made. If this fails the mount is taken down.
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

    /// Creates one for the mount that the process outside has just made.
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

    /// Creates one for a mount that another process serves, in order to unmount it.
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

    /// Creates one for a mount that the caller has made, and that ends with this process: where it is, only
    /// the caller knows.
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

    /// Creates one for a mount that another process has made, and still serves.
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

    /// Takes on the pipe to the watchdog of the mount.
    pub(crate) fn adopt(&self, watchdog: Option<OwnedFd>) {
        self.lock().watchdog = watchdog;
    }

    /// Returns the descriptors that another process needs to hold: the connection, if there still is
    /// one, and the pipe to the watchdog.
    pub(crate) fn share(&self) -> io::Result<(Option<OwnedFd>, Option<OwnedFd>)> {
        let held = self.lock();
        let connection = held.connection.as_ref().filter(|fd| is_connected(fd));
        let connection = connection.map(OwnedFd::try_clone).transpose()?;
        let watchdog = held.watchdog.as_ref().map(OwnedFd::try_clone).transpose()?;
        Ok((connection, watchdog))
    }

    /// Returns where the mount is, or was.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the device number of the mount.
    pub(crate) const fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Takes the mount down; detaches it if it is in use. Succeeds if the mount has ended already.
    ///
    /// # Errors
    /// [`UmountError`].
    pub fn unmount(&self) -> Result<Unmounted, UmountError> {
        self.end(true)
    }

    /// Takes the mount down unless it is in use.
    ///
    /// # Errors
    /// [`UmountError`].
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
            // Its namespace has ended, and took it along.
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
            // Another process was quicker.
            Err(_) if !self.is_connected() => Ok(Unmounted::Done),
            Err(_) if matches!(find_mount(mount), Ok(Sight::Gone)) => Ok(Unmounted::Done),
            Err(error) => Err(error),
        }
    }

    /// Closes the connection, since no thread answers requests any more. The kernel cuts it when no
    /// process has it open.
    pub(crate) fn connection_ended(&self) {
        self.lock().connection = None;
    }

    /// Ends the watchdog: there is nothing left to unmount when this process dies.
    pub(crate) fn dismiss_watchdog(&self) {
        if let Some(pipe) = self.lock().watchdog.take() {
            // An error says that it has ended already.
            let _gone = rustix::io::write(&pipe, b"d");
        }
    }

    /// Returns another descriptor of the connection for [`Apart`](crate::apart::Apart): of a second file, where one can be opened.
    pub(crate) fn second(&self) -> io::Result<OwnedFd> {
        let (connection, _) = self.share()?;
        let connection = connection.ok_or(io::ErrorKind::NotConnected)?;
        let opened = match &self.outside {
            Some(outside) => outside.second(connection.as_fd()),
            None => second(connection.as_fd()),
        };
        Ok(opened.unwrap_or_else(|error| {
            tracing::debug!("the connection has no second file: {error}");
            connection
        }))
    }

    /// Fails all requests. The mount stays where it is.
    pub(crate) fn abort(&self) -> io::Result<()> {
        match self.mount.as_deref().filter(|_| self.is_connected()) {
            Some(mount) => within(self.namespace.as_ref(), || abort(mount))?,
            None => Ok(()),
        }
    }

    /// Returns whether the kernel has requests that no thread has taken.
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
