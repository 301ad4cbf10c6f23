//! Mounts an opened image or volume and serves it until its end.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use forerun::{EngineOptions, Image, Reader};
use forerun_engine::Volume;
use forerun_io::{StatsSnapshot, wait};
use forerun_sys::memory_limit::MemoryLimit;
use fuser::{Config, Filesystem, Notifier, Session, SessionACL};

use crate::adapter::Adapter;
use crate::adapter_mut::{AdapterMut, CoreMut, Stale};
use crate::apart::Apart;
use crate::core::Core;
use crate::counts::RequestCounts;
use crate::descriptor::is_descriptor;
use crate::error::{HandoverError, MountError, UmountError};
use crate::handover::Giver;
use crate::page_cache::PageCache;
use crate::page_store::PageStore;
use crate::place::{Place, attach_here, place};
use crate::push::Pusher;
use crate::request_threads::RequestThreads;
use crate::served::{Monitor, Served};
use crate::serving::{
    DEVICE_END_TIMEOUT, Ended, Ending, IMAGE_END_TIMEOUT, Serving, serve_session,
};
use crate::state_table::VolumeState;
use crate::umount::Unmounted;
use crate::unmounter::Unmounter;
use crate::workers::{Waiting, Workers};
use crate::{MountOptions, bdi};

/// Minimum number of request threads unless `threads=` is given: enough to keep two CPUs and a disk
/// busy. One more takes requests while these wait.
const MIN_TAKERS: usize = 4;
const MAX_TAKERS: usize = 16;
/// Memory per request thread: an answer of 1 MiB, and the block that it is decoded from.
const TAKER: u64 = 2 << 20;

/// A mounted image or volume, served by threads of this process. Dropping it unmounts.
#[derive(Debug)]
pub struct Mount {
    unmounter: Unmounter,
    served: Served,
    serving: Option<Serving>,
    workers: Workers,
    lifted: bool,
    pushing: bool,
    /// The device hangs, so writing the last changes would hang too.
    is_lost: bool,
}

/// Mounts `image` on `dir`, and returns once the mount answers.
///
/// A dead mount of ours on `dir`, left behind by a killed process, is removed first.
///
/// ```
/// # use std::sync::Arc;
/// # use forerun::build::{Content, NewNode, NodeKind, Tree};
/// # use forerun::{Image, MemorySource, Observer, OpenOptions, Writer};
/// # use forerun::build::RomfsOptions;
/// use forerun_fuse::{MountOptions, mount};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # if !forerun_testkit::require::root() || !forerun_testkit::require::fuse() {
/// #     return Ok(());
/// # }
/// # let mut tree = Tree::default();
/// # let content = Content::Bytes(b"hello"[..].into());
/// # tree.add(Tree::ROOT, b"greeting", NewNode::new(NodeKind::File { len: 5, content }, 0o644))?;
/// # let mut bytes = Vec::new();
/// # Writer::Romfs(RomfsOptions::default()).write(&tree, &mut bytes, &Arc::new(Observer::default()))?;
/// # let image = Image::from_source(Arc::new(MemorySource::new(bytes)), &OpenOptions::default())?;
/// # let dir = forerun_testkit::temp_dir("mount-example");
/// # let dir = dir.path();
/// let options = MountOptions::parse("ro,noexec")?;
/// let mount = mount(&image, dir, &options)?;
/// assert_eq!(std::fs::read(dir.join("greeting"))?, b"hello");
/// mount.unmount()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`MountError`]. Nothing is left mounted then.
pub fn mount(image: &Image, dir: &Path, options: &MountOptions) -> Result<Mount, MountError> {
    mount_reader(image.reader().clone(), dir, options)
}

/// Does the same as [`mount`] for a custom reader, with a driver that is not in the registry or a
/// custom source.
pub fn mount_reader(
    reader: Reader,
    dir: &Path,
    options: &MountOptions,
) -> Result<Mount, MountError> {
    // Reading the root may need to wait for a source that is still arriving; do not wait here.
    if let Some(Err(error)) = wait::attempt(|| reader.fs().metadata(reader.fs().root())) {
        return Err(MountError::Root(error));
    }
    let place = place(dir, options)?;
    show(reader, options, |adapter, served| {
        let workers = adapter.workers();
        serve(adapter, (served, workers), (dir, place), options, false)
    })
}

/// Serves an image with a session created by `begin`. Raises the kernel's readahead and pushes
/// pages as `options` require.
pub fn show(
    reader: Reader,
    options: &MountOptions,
    begin: impl FnOnce(Adapter, Served) -> Result<(Mount, Notifier), MountError>,
) -> Result<Mount, MountError> {
    let reads_ahead = options.large_blocks && reader.options().readahead > 0;
    let page_cache = Arc::new(PageCache::default());
    let reader = if reads_ahead && options.push {
        reader.with_sink(Arc::<PageCache>::clone(&page_cache))
    } else {
        reader
    };
    let core = Arc::new(Core::new(reader, options));
    let threads = request_threads(options);
    let pusher = Arc::new(OnceLock::new());
    let connection = Arc::new(OnceLock::new());
    let adapter = Adapter::new(
        Arc::clone(&core),
        threads,
        Arc::clone(&pusher),
        Arc::clone(&connection),
        options.large_blocks,
    );
    let served = Served::Image(Arc::clone(&core));
    let (mut mount, notifier) = begin(adapter, served)?;
    match mount.unmounter.connection() {
        Ok(own) => _ = connection.set(Arc::new(own)),
        Err(error) => tracing::debug!("all listings carry attributes: {error}"),
    }
    page_cache.connect(&core, notifier, mount.unmounter());
    if reads_ahead {
        let readahead = core.reader.options().readahead;
        mount.lifted = options.lift_readahead && lift(options, &mount, readahead);
        if options.push {
            let store = mount.unmounter.second().and_then(|kernel| {
                let kernel = Apart::start(kernel.as_fd())?;
                Ok(PageStore::new(Arc::clone(&core.under_way), kernel))
            });
            let started = store.and_then(|store| Pusher::start(core, store, !mount.lifted));
            let started =
                started.inspect_err(|error| tracing::debug!("nothing is pushed: {error}"));
            let is_there = started.is_ok_and(|started| pusher.set(started).is_ok());
            mount.pushing = is_there && !mount.lifted;
        }
    }
    tracing::info!(
        path = %mount.path().display(), lifted = mount.lifted, pushing = mount.pushing, "mounted"
    );
    Ok(mount)
}

/// Mounts a writable volume on `dir` and returns once the mount answers. Changes become durable
/// with fsync(2), after a few seconds, and at the end of the mount, which [`Mount::wait`] waits
/// for.
pub fn mount_volume(
    volume: Arc<Volume>,
    dir: &Path,
    options: &MountOptions,
) -> Result<Mount, MountError> {
    let place = place(dir, options)?;
    let state = options.state.as_ref().map(VolumeState::new).transpose();
    let state = state.map_err(HandoverError::State)?;
    let core = Arc::new(CoreMut::new(volume, options, state));
    show_volume(core, options, |adapter, served| {
        let workers = adapter.workers();
        serve(adapter, (served, workers), (dir, place), options, true)
    })
}

/// Serves a volume with a session created by `begin`.
pub fn show_volume(
    core: Arc<CoreMut>,
    options: &MountOptions,
    begin: impl FnOnce(AdapterMut, Served) -> Result<(Mount, Notifier), MountError>,
) -> Result<Mount, MountError> {
    let adapter = AdapterMut::new(Arc::clone(&core), request_threads(options));
    let served = Served::Volume(Arc::clone(&core));
    let (mut mount, _notifier) = begin(adapter, served)?;
    if core.info.folds_case {
        let kernel = mount.unmounter.second();
        match kernel.and_then(|kernel| Apart::start(kernel.as_fd())) {
            Ok(kernel) => {
                let stale = Stale::start(kernel, Arc::downgrade(&core));
                let _is_set_once = stale.map(|stale| core.stale.set(stale));
            }
            Err(error) => tracing::warn!("the kernel keeps names that have gone: {error}"),
        }
    }
    let readahead = EngineOptions::default().readahead;
    let readahead = options.readahead.unwrap_or(readahead);
    if options.large_blocks && options.lift_readahead && readahead > 0 {
        mount.lifted = lift(options, &mount, readahead);
    }
    tracing::info!(path = %mount.path().display(), "mounted for reading and writing");
    Ok(mount)
}

fn lift(options: &MountOptions, mount: &Mount, readahead: u64) -> bool {
    match &options.outside {
        Some(outside) => outside.lift(readahead),
        None => bdi::lift(mount.unmounter.device(), readahead),
    }
}

/// Mounts, answers INIT, and starts the threads.
fn serve(
    adapter: impl Filesystem + 'static,
    (served, workers): (Served, Workers),
    (dir, place): (&Path, Place),
    options: &MountOptions,
    writable: bool,
) -> Result<(Mount, Notifier), MountError> {
    // From here on, dropping the unmounter on an error unmounts.
    let (unmounter, connection) = match place {
        Place::Outside(outside) => Unmounter::outside(outside.attach(writable)?, outside)?,
        Place::Here(place) => attach_here(place, options, writable)?,
        Place::Connected(connection) => (Unmounter::connected(dir, &connection)?, connection),
    };
    let path = unmounter.path().to_path_buf();
    let mut mount = Mount::new(unmounter.clone(), served, workers);
    // The kernel checks access: it knows which user mounted, and whether other users may access the
    // mount.
    let session = Session::from_fd(adapter, connection, SessionACL::All, config(options))
        .map_err(MountError::Handshake)?;
    let notifier = session.notifier();
    let serving = Serving::start(move || {
        let ended = serve_session(session);
        // The kernel ends the connection when no process holds it any more.
        unmounter.connection_ended();
        ended
    });
    mount.serving = Some(serving.map_err(MountError::Serve)?);
    // The session has answered INIT. This process must not send a request to its own mount: if it
    // were killed meanwhile, it would wait for an answer of threads that are gone, and could not
    // exit.
    if let (Some(outside), Some(_)) = (&options.outside, &options.namespace)
        && !is_descriptor(&path)
    {
        let answers = outside.answers();
        answers.map_err(|source| MountError::NoAnswer { path, source })?;
    }
    Ok((mount, notifier))
}

pub fn config(options: &MountOptions) -> Config {
    let mut config = Config::default();
    config.n_threads = Some(thread_count(options));
    config
}

fn request_threads(options: &MountOptions) -> RequestThreads {
    RequestThreads::new(thread_count(options))
}

fn thread_count(options: &MountOptions) -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let limit = MemoryLimit::of_process();
    let wanted = options
        .threads
        .unwrap_or_else(|| limit.fitting(2 * cpus, TAKER));
    wanted.clamp(MIN_TAKERS, MAX_TAKERS) + 1
}

impl Mount {
    pub(crate) const fn new(unmounter: Unmounter, served: Served, workers: Workers) -> Self {
        Self {
            unmounter,
            served,
            serving: None,
            workers,
            lifted: false,
            pushing: false,
            is_lost: false,
        }
    }

    pub(crate) fn serve_by(&mut self, serving: Serving) {
        self.serving = Some(serving);
    }

    /// Returns a handle to pass the mount on to another process.
    #[must_use]
    pub fn giver(&self) -> Giver {
        Giver::new(&self.served, self.unmounter.clone())
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        self.unmounter.path()
    }

    /// Returns a handle to unmount, for instance from a signal handler.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        self.unmounter.clone()
    }

    #[must_use]
    pub const fn readahead_lifted(&self) -> bool {
        self.lifted
    }

    /// Returns whether data is pushed into the page cache ahead of sequential readers.
    #[must_use]
    pub const fn pushing(&self) -> bool {
        self.pushing
    }

    #[must_use]
    pub fn stats(&self) -> StatsSnapshot {
        self.served.stats()
    }

    #[must_use]
    pub fn requests(&self) -> RequestCounts {
        self.served.requests()
    }

    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor::new(&self.served)
    }

    /// Returns a handle to end the mount although files are open, for instance from a signal
    /// handler.
    #[must_use]
    pub fn ending(&self) -> Ending {
        let patience = match &self.served {
            Served::Image(_) => IMAGE_END_TIMEOUT,
            Served::Volume(_) => DEVICE_END_TIMEOUT,
        };
        Ending::new(self.workers.clone(), patience)
    }

    /// Returns how many requests wait, or have waited, for the source.
    #[must_use]
    pub fn waiting(&self) -> Waiting {
        self.workers.waiting()
    }

    /// Returns when the mount has ended, whichever process unmounted it, and no file of it is open.
    /// Threads that hang in the source are left behind after a second. A volume's device has ten
    /// seconds for each request.
    ///
    /// # Errors
    /// [`MountError::Serve`] if the mount ended otherwise, or the volume's device did not respond.
    pub fn wait(&mut self) -> Result<(), MountError> {
        let ended = match self.serving.take() {
            None => Ok(()),
            Some(serving) => self.wait_for(serving),
        };
        self.unmounter.dismiss_watchdog();
        ended.map_err(MountError::Serve)
    }

    fn wait_for(&mut self, serving: Serving) -> io::Result<()> {
        let is_connected = || !matches!(self.unmounter.share(), Ok((None, _)));
        let ended = match &self.served {
            Served::Image(_) => serving.wait(IMAGE_END_TIMEOUT, is_connected, || ()),
            Served::Volume(_) => {
                let progress = || self.served.stats();
                serving.wait(DEVICE_END_TIMEOUT, is_connected, progress)
            }
        };
        match (ended, &self.served) {
            (Ended::Joined(result), Served::Image(_)) => result,
            (Ended::Joined(result), Served::Volume(core)) => {
                core.flusher.end();
                let lost = core.flusher.take_error().map(changes_are_lost);
                result.and(lost.map_or(Ok(()), Err))
            }
            (Ended::Hung, Served::Image(_)) => {
                tracing::warn!("threads that hang in the source are left behind");
                Ok(())
            }
            (Ended::Hung, Served::Volume(_)) => {
                self.is_lost = true;
                let why = "the device does not answer: the last changes are lost";
                Err(io::Error::new(io::ErrorKind::TimedOut, why))
            }
        }
    }

    /// Unmounts; see [`Unmounter::unmount`].
    pub fn unmount(&self) -> Result<Unmounted, UmountError> {
        self.unmounter.unmount()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmounter.unmount() {
            tracing::error!("{error}");
        }
        if let Served::Volume(core) = &self.served
            && !self.is_lost
        {
            core.flusher.end();
            // The caller did not call `wait`, which would have reported the error.
            if let Some(error) = core.flusher.take_error() {
                tracing::error!("{}", changes_are_lost(error));
            }
        }
        self.unmounter.dismiss_watchdog();
    }
}

fn changes_are_lost(error: forerun_vfs::Error) -> io::Error {
    io::Error::other(format!("the last changes are lost: {error}"))
}
