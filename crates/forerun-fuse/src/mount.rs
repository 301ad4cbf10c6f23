//! From an open image to a mount that answers, and to its end.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use forerun::{Image, Reader, StatsSnapshot};
use fuser::{Config, Session, SessionACL};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::adapter::Adapter;
use crate::attach::{Guardian, attach};
use crate::core::Core;
use crate::counts::RequestCounts;
use crate::error::{MountError, UmountError};
use crate::mountinfo::top_mount;
use crate::push::Pusher;
use crate::umount::{detach, is_dead, mount_point};
use crate::workers::Workers;
use crate::{FSTYPE, MountOptions, bdi};

/// Threads that take requests where `threads=` does not say: enough to keep two CPUs and a disk
/// busy, few enough not to matter.
const MIN_TAKERS: usize = 4;
const MAX_TAKERS: usize = 16;

/// A mounted image, served by threads of this process. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    unmounter: Unmounter,
    core: Arc<Core>,
    session: Option<JoinHandle<io::Result<()>>>,
    lifted: bool,
    pushing: bool,
}

/// What can end a mount, from any thread.
#[derive(Clone, Debug)]
pub struct Unmounter {
    path: PathBuf,
    device: (u32, u32),
    held: Arc<Mutex<Held>>,
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
    /// closed, and only then does [`Mount::wait`] return.
    StillInUse,
}

/// Mounts `image` on `dir`, and returns once the mount answers.
///
/// A dead mount of ours on `dir`, left behind by a killed process, is removed first.
///
/// # Errors
/// [`MountError`]. Nothing is left mounted then.
pub fn mount(image: &Image, dir: &Path, options: &MountOptions) -> Result<Mount, MountError> {
    mount_reader(image.reader().clone(), dir, options)
}

/// As [`mount`], for a reader that was put together by hand: a driver that is not in the registry,
/// a source of one's own.
///
/// # Errors
/// As [`mount`].
pub fn mount_reader(
    reader: Reader,
    dir: &Path,
    options: &MountOptions,
) -> Result<Mount, MountError> {
    let path = prepare(dir)?;
    let core = Arc::new(Core::new(reader, options));
    let takers = takers(options);
    let pusher = Arc::new(OnceLock::new());
    let adapter = Adapter::new(
        Arc::clone(&core),
        Workers::new(takers),
        Arc::clone(&pusher),
        options.large_blocks,
    );
    let source = options.fsname.clone().unwrap_or_else(|| "forerun".into());
    let attached = attach(&path, &OsString::from(source), options)?;
    // From here on a failure must take the mount down again: dropping this does.
    let device = match top_mount(&path) {
        Ok(Some(entry)) => entry.device,
        Ok(None) => {
            return Err(undo(
                &path,
                no_answer(&path, io::ErrorKind::NotFound.into()),
            ));
        }
        Err(error) => return Err(undo(&path, MountError::MountInfo(error))),
    };
    let connection = attached.device.try_clone().map_err(MountError::Serve);
    let held = Arc::new(Mutex::new(Held {
        connection: Some(connection.map_err(|error| undo(&path, error))?),
        guardian: attached.guardian,
    }));
    let mut mount = Mount {
        unmounter: Unmounter {
            path: path.clone(),
            device,
            held: Arc::clone(&held),
        },
        core: Arc::clone(&core),
        session: None,
        lifted: false,
        pushing: false,
    };
    let mut config = Config::default();
    config.n_threads = Some(takers);
    // Who may look is the kernel's business, which knows who mounted and whether others may.
    let session = Session::from_fd(adapter, attached.device, SessionACL::All, config)
        .map_err(MountError::Handshake)?;
    let notifier = session.notifier();
    let thread = std::thread::Builder::new().name("forerun-fuse".to_string());
    let serving = thread.spawn(move || {
        let ended = session.run();
        // The kernel cuts the connection when nobody holds it any more, however this ended.
        lock(&held).connection = None;
        ended
    });
    mount.session = Some(serving.map_err(MountError::Serve)?);
    if let Err(error) = rustix::fs::statvfs(&path) {
        return Err(no_answer(&path, error.into()));
    }
    let readahead = core.reader.options().readahead;
    if options.large_blocks && readahead > 0 {
        mount.lifted = options.lift_readahead && bdi::lift(device, readahead);
        if options.push && !mount.lifted {
            let started = Pusher::start(core, notifier);
            mount.pushing = started.is_some_and(|started| pusher.set(started).is_ok());
        }
    }
    tracing::info!(
        path = %path.display(), lifted = mount.lifted, pushing = mount.pushing, "mounted"
    );
    Ok(mount)
}

fn takers(options: &MountOptions) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = options.threads.unwrap_or(2 * cpus);
    wanted.clamp(MIN_TAKERS, MAX_TAKERS)
}

/// The absolute path of a usable mountpoint.
fn prepare(dir: &Path) -> Result<PathBuf, MountError> {
    let unusable = |source| MountError::Mountpoint {
        path: dir.to_path_buf(),
        source,
    };
    let path = mount_point(dir).map_err(unusable)?;
    let there = top_mount(&path).map_err(MountError::MountInfo)?;
    if let Some(entry) = there {
        let ours = entry.fstype == FSTYPE;
        match (is_dead(&path), ours) {
            (true, true) => {
                // Nobody will ever answer there, and what it showed was an image: nothing is lost.
                if detach(&path, true).is_err() {
                    return Err(MountError::DeadMount {
                        path,
                        fstype: entry.fstype,
                        command: "forerun umount",
                    });
                }
                tracing::info!("removed the dead mount on {}", path.display());
            }
            (true, false) => {
                return Err(MountError::DeadMount {
                    path,
                    fstype: entry.fstype,
                    command: "umount",
                });
            }
            (false, true) => {
                let image = PathBuf::from(entry.source);
                return Err(MountError::AlreadyMounted { path, image });
            }
            (false, false) => {}
        }
    }
    let metadata = path.metadata().map_err(unusable)?;
    if !metadata.is_dir() {
        return Err(MountError::NotADirectory { path });
    }
    if path
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some())
    {
        tracing::warn!("{} is not empty; the mount hides its files", path.display());
    }
    Ok(path)
}

fn no_answer(path: &Path, source: io::Error) -> MountError {
    MountError::NoAnswer {
        path: path.to_path_buf(),
        source,
    }
}

fn undo(path: &Path, error: MountError) -> MountError {
    if let Err(error) = detach(path, true) {
        tracing::error!("{error}");
    }
    error
}

impl Mount {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.unmounter.path
    }

    /// What ends it, to be kept by a signal handler.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    /// Whether the kernel's readahead was raised.
    #[must_use]
    pub const fn readahead_lifted(&self) -> bool {
        self.lifted
    }

    /// Whether data is pushed into the page cache ahead of sequential readers.
    #[must_use]
    pub const fn pushing(&self) -> bool {
        self.pushing
    }

    /// The engine's counters.
    #[must_use]
    pub fn stats(&self) -> StatsSnapshot {
        self.core.reader.observer().stats().snapshot()
    }

    /// The requests of the kernel.
    #[must_use]
    pub fn requests(&self) -> RequestCounts {
        self.core.counts.snapshot()
    }

    /// Returns when the mount has ended: unmounted by anybody, and no file of it open any more.
    ///
    /// # Errors
    /// [`MountError::Serve`] where it ended otherwise.
    pub fn wait(&mut self) -> Result<(), MountError> {
        let ended = match self.session.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(MountError::Serve(error)),
            Some(Err(_panic)) => Err(MountError::Serve(io::Error::other("a thread panicked"))),
        };
        lock(&self.unmounter.held).guardian = None;
        ended
    }

    /// As [`Unmounter::unmount`].
    ///
    /// # Errors
    /// As there.
    pub fn unmount(&self) -> Result<Unmounted, UmountError> {
        self.unmounter.unmount()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmounter.unmount() {
            tracing::error!("{error}");
        }
        lock(&self.unmounter.held).guardian = None;
    }
}

impl Unmounter {
    /// Takes the mount down; detaches it if it is in use. Done already is done.
    ///
    /// # Errors
    /// [`UmountError`].
    pub fn unmount(&self) -> Result<Unmounted, UmountError> {
        if !self.is_mounted().map_err(UmountError::MountInfo)? {
            return Ok(Unmounted::Done);
        }
        match detach(&self.path, false) {
            Ok(()) => Ok(Unmounted::Done),
            Err(UmountError::Busy { .. }) => {
                detach(&self.path, true)?;
                Ok(Unmounted::StillInUse)
            }
            // Somebody was quicker.
            Err(_) if matches!(self.is_mounted(), Ok(false)) => Ok(Unmounted::Done),
            Err(error) => Err(error),
        }
    }

    /// Whether it is our mount that is on top there. What is not must not be unmounted: another
    /// process may have mounted something else since ours was taken down.
    fn is_mounted(&self) -> io::Result<bool> {
        if !lock(&self.held)
            .connection
            .as_ref()
            .is_some_and(is_connected)
        {
            return Ok(false);
        }
        let on_top = top_mount(&self.path)?;
        Ok(on_top.is_some_and(|entry| entry.device == self.device))
    }
}

fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// FUSE signals an error on a connection that has no mount any more.
fn is_connected(connection: &OwnedFd) -> bool {
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

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}
