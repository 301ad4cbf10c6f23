//! From an open image to a mount that answers, and to its end.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use forerun::{Image, Reader, StatsSnapshot};
use fuser::{Config, Session, SessionACL};

use crate::adapter::Adapter;
use crate::attach::attach;
use crate::core::Core;
use crate::counts::RequestCounts;
use crate::error::{MountError, UmountError};
use crate::mountpoint::prepare;
use crate::push::Pusher;
use crate::push_tree::TreePusher;
use crate::unmounter::{Unmounted, Unmounter};
use crate::workers::Workers;
use crate::{MountOptions, bdi};

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
    let tree_pusher = Arc::new(OnceLock::new());
    let adapter = Adapter::new(
        Arc::clone(&core),
        Workers::new(takers),
        Arc::clone(&pusher),
        Arc::clone(&tree_pusher),
        options.large_blocks,
    );
    let source = options.fsname.clone().unwrap_or_else(|| "forerun".into());
    let connection = attach(&path, &OsString::from(source), options)?;
    // From here on a failure takes the mount down again: dropping this does.
    let unmounter = Unmounter::new(path.clone(), &connection, options.auto_unmount)?;
    let mut mount = Mount {
        unmounter: unmounter.clone(),
        core: Arc::clone(&core),
        session: None,
        lifted: false,
        pushing: false,
    };
    let mut config = Config::default();
    config.n_threads = Some(takers);
    // Who may look is the kernel's business, which knows who mounted and whether others may.
    let session = Session::from_fd(adapter, connection, SessionACL::All, config)
        .map_err(MountError::Handshake)?;
    let notifier = session.notifier();
    let thread = std::thread::Builder::new().name("forerun-fuse".to_string());
    let serving = thread.spawn(move || {
        let ended = session.run();
        // The kernel cuts the connection when nobody holds it any more, however this ended.
        unmounter.connection_ended();
        ended
    });
    mount.session = Some(serving.map_err(MountError::Serve)?);
    rustix::fs::statvfs(&path).map_err(|error| MountError::NoAnswer {
        path,
        source: error.into(),
    })?;
    let readahead = core.reader.options().readahead;
    if options.large_blocks && readahead > 0 {
        mount.lifted = options.lift_readahead && bdi::lift(mount.unmounter.device(), readahead);
        if options.push
            && let Some(started) = TreePusher::start(Arc::clone(&core), notifier.clone())
        {
            let _is_set_once = tree_pusher.set(started);
        }
        if options.push && !mount.lifted {
            let started = Pusher::start(core, notifier);
            mount.pushing = started.is_some_and(|started| pusher.set(started).is_ok());
        }
    }
    tracing::info!(
        path = %mount.path().display(), lifted = mount.lifted, pushing = mount.pushing, "mounted"
    );
    Ok(mount)
}

fn takers(options: &MountOptions) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = options.threads.unwrap_or(2 * cpus);
    wanted.clamp(MIN_TAKERS, MAX_TAKERS)
}

impl Mount {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.unmounter.path()
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
        self.unmounter.dismiss_guardian();
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
        self.unmounter.dismiss_guardian();
    }
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").finish_non_exhaustive()
    }
}
