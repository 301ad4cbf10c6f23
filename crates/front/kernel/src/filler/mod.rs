//! EROFS images at servers, mounted by the kernel's own driver while they are being fetched.
//!
//! The driver mounts the sparse file of the cache. Before it reads a range of that file, the kernel
//! sends an event to a fanotify group of ours (pre-content events, Linux 6.14), and the filler answers
//! once the range is there. When all of the image is there, the events end, and so do our processes.
//!
//! Three things need care, and each has its file: the kernel reads metadata without an event
//! ([`local`]); when a group is closed, all reads go on and give zeros ([`guard`], [`succession`]); and
//! reads of the filler itself must raise no events ([`group`]: the mark is on a private mount of the file).

mod apart;
mod channel;
mod event;
mod group;
mod guard;
mod ledger;
mod local;
mod monitor;
mod reconfigure;
mod serve;
mod succession;
mod watch;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use forerun::remote::{CheckAhead, RemoteImage};
use forerun::{Image, MountEntry, Mountpoint, mounts};
use rustix::fs::{fstat, major, minor};
use tempfile::TempDir;

use crate::context::{Context, check_permission};
use crate::direct;
use crate::drivers::ON_DEMAND;
use crate::error::Error;
use crate::mark::marked;
use crate::mount::{Mounted, Way, attach, mountpoint};
use crate::named::Named;
use crate::options::Options;
pub use event::exercise as exercise_events;
use group::{Group, PrivateMount};
use guard::Guard;
pub use guard::{GuardArgs, run_guard};
use ledger::Ledger;
pub use ledger::exercise as exercise_ledger;
pub use monitor::{Asked, FillMonitor};
use serve::{Counts, Shared};
pub use succession::{FillerCommand, Resumed, resumed};
use watch::Watch;

/// Longest wait for a complete image to let go of its servers.
const SOON: Duration = Duration::from_secs(1);
/// Longest part of an image's place that is shown as the source of its mount.
const SHOWN: usize = 120;

/// A mount that is filled on demand. The process must stay and [`wait`](Self::wait): when it ends
/// before, all reads of the mount fail that the kernel does not have in memory.
#[must_use]
pub struct OnDemand {
    mounted: Mounted,
    serving: Option<Serving>,
}

struct Serving {
    shared: Arc<Shared>,
    /// The thread that takes events; nothing once it was waited for.
    server: Option<JoinHandle<Ended>>,
    /// Number of the filesystem, once it is mounted.
    device: (u32, u32),
    /// Stops the server when it is closed.
    _stop: OwnedFd,
}

/// The reason why a mount needs no filler any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything is here. The mount goes on without us.
    Complete,
    /// It was unmounted, and its last user is gone.
    Unmounted,
}

impl fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDemand")
            .field("mounted", &self.mounted)
            .field("asked", &self.asked())
            .finish_non_exhaustive()
    }
}

impl OnDemand {
    /// Returns the mount.
    #[must_use]
    pub const fn mounted(&self) -> &Mounted {
        &self.mounted
    }

    /// Returns the counts of the kernel's requests so far.
    #[must_use]
    pub fn asked(&self) -> Asked {
        let serving = self.serving.as_ref();
        serving.map_or_else(Asked::default, |serving| serving.shared.counts.asked())
    }

    /// Returns a monitor of the mount, which works for as long as this exists; nothing where no process
    /// fills it, because all of it was here from the beginning.
    #[must_use]
    pub fn monitor(&self) -> Option<FillMonitor> {
        let serving = self.serving.as_ref()?;
        Some(FillMonitor::new(&serving.shared, serving.device))
    }

    /// Answers the kernel until the image is complete or unmounted.
    pub fn wait(&mut self) -> Ended {
        let server = self
            .serving
            .as_mut()
            .and_then(|serving| serving.server.take());
        match server {
            // No panic is expected. After one this process ends soon, and the guard takes over.
            Some(server) => server.join().unwrap_or(Ended::Unmounted),
            None => Ended::Complete,
        }
    }
}

/// Has the kernel mount `image`, which was opened on `remote`, on `dir`. Fetches all its metadata
/// first. A mount that fails leaves nothing behind.
///
/// Starts a second process: this program with the arguments of `guard`, which has to call
/// [`run_guard`] before it does anything else.
///
/// # Errors
/// [`Error::NotOnDemand`] for an image that is not EROFS from its first byte on; [`Error::NoPreContent`];
/// [`Error::Metadata`] where metadata is damaged or cannot be fetched; and those of
/// [`mount`](crate::mount()).
pub fn mount_remote(
    image: &Image,
    remote: &Arc<RemoteImage>,
    dir: &Path,
    options: &Options,
    guard: GuardArgs,
) -> Result<OnDemand, Error> {
    let unfit = |reason| Err(Error::NotOnDemand { reason });
    if image.format() != ON_DEMAND.format {
        return unfit("only EROFS can be; forerun pull fetches it whole");
    }
    if image.offset() != 0 {
        return unfit("it does not begin with the first byte");
    }
    let place = mountpoint(dir)?;
    check_permission(ON_DEMAND.fstype)?;
    let mount = PrivateMount::of(remote.blob().data_file())?;
    // The kernel would not notice that a chunk was altered which this process has not verified.
    if remote.is_verified_whole() && remote.wait_complete(SOON) {
        let superblock = superblock(image, remote, &mount, options, true)?;
        let mut mounted = Mounted::by(&ON_DEMAND, Way::Cache, 0);
        mounted.entry = attach(&superblock, &place)?;
        return Ok(OnDemand {
            mounted,
            serving: None,
        });
    }
    // Here, so that a failure comes before much is fetched in vain.
    let group = Group::of(&mount)?;
    let fetched = local::fetch_metadata(image, remote)?;
    let shared = Arc::new(Shared {
        remote: Arc::clone(remote),
        ahead: Arc::new(CheckAhead::new(Arc::clone(remote))),
        group,
        mount,
        ledger: Ledger::new().map_err(|error| Error::on_demand("a ledger", error))?,
        watch: Watch::new().map_err(|error| Error::on_demand("inotify", error))?,
        guard_args: guard,
        counts: Counts::default(),
        guard: std::sync::Mutex::default(),
    });
    let mut serving = Serving::start(shared)?;
    let mut mounted = Mounted::by(&ON_DEMAND, Way::OnDemand, fetched);
    mounted.entry = serving.mount(image, &place, options)?;
    Ok(OnDemand {
        mounted,
        serving: Some(serving),
    })
}

/// Goes on filling a mount whose filler has died, for the guard that has started this process. `remote`
/// is opened anew.
///
/// # Errors
/// [`Error::OtherImage`] where the cache keeps the present image of the server in another file than the
/// one that is mounted; and those of the system. The guard then starts another process, or fails reads.
pub fn resume_remote(
    remote: &Arc<RemoteImage>,
    resumed: Resumed,
    guard: GuardArgs,
) -> Result<OnDemand, Error> {
    let failed = |error| Error::on_demand("taking over from another process", error);
    let mount = PrivateMount::from(resumed.mount);
    let stat = |file: &dyn AsFd| fstat(file.as_fd()).map_err(|error| failed(error.into()));
    let (mounted, cached) = (stat(&mount)?, stat(remote.blob().data_file())?);
    if (mounted.st_dev, mounted.st_ino) != (cached.st_dev, cached.st_ino) {
        return Err(Error::OtherImage);
    }
    let watch = Watch::from(resumed.watch);
    let device = watch.device().map_err(failed)?;
    let shared = Arc::new(Shared {
        remote: Arc::clone(remote),
        ahead: Arc::new(CheckAhead::new(Arc::clone(remote))),
        group: Group::inherited(&resumed.group).map_err(failed)?,
        mount,
        watch,
        ledger: Ledger::of(resumed.ledger),
        guard_args: guard,
        counts: Counts::default(),
        guard: std::sync::Mutex::default(),
    });
    shared.finish_what_was_left().map_err(failed)?;
    let guard = Guard::of_this_process(resumed.channel, resumed.guard).map_err(failed)?;
    let serving = Serving::go_on(shared, guard, device)?;
    let mut mounted = Mounted::by(&ON_DEMAND, Way::OnDemand, 0);
    let all = mounts().unwrap_or_default();
    mounted.entry = all.into_iter().find(|entry| entry.device == device);
    Ok(OnDemand {
        mounted,
        serving: Some(serving),
    })
}

impl Serving {
    fn start(shared: Arc<Shared>) -> Result<Self, Error> {
        let failed = |error| Error::on_demand("the process that guards the mount", error);
        // Before the guard is started, which inherits the limit.
        serve::raise_limit();
        let guard = shared.start_guard().map_err(failed)?;
        Self::go_on(shared, guard, (0, 0))
    }

    /// Starts the threads, with a guard that runs already.
    fn go_on(shared: Arc<Shared>, guard: Guard, device: (u32, u32)) -> Result<Self, Error> {
        serve::raise_limit();
        shared.guarded_by(&guard);
        let (stopped, stop) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| Error::on_demand("a pipe", error))?;
        let server = serve::start(Arc::clone(&shared), guard, stopped);
        let server = server.map_err(|error| Error::on_demand("starting threads", error))?;
        Ok(Self {
            shared,
            server: Some(server),
            device,
            _stop: stop,
        })
    }

    /// Makes the mount. A failure leaves no superblock, and dropping this ends the threads.
    fn mount(
        &mut self,
        image: &Image,
        place: &Mountpoint,
        options: &Options,
    ) -> Result<Option<MountEntry>, Error> {
        let shared = &self.shared;
        let superblock = superblock(image, &shared.remote, &shared.mount, options, false)?;
        let watched = shared.watch.set(&superblock);
        watched.map_err(|error| Error::on_demand("inotify", error))?;
        let stat = fstat(&superblock);
        let stat = stat.map_err(|error| Error::on_demand("stat of the mount", error))?;
        self.device = (major(stat.st_dev), minor(stat.st_dev));
        attach(&superblock, place)
    }
}

/// Makes the superblock, mounted nowhere yet.
fn superblock(
    image: &Image,
    remote: &RemoteImage,
    file: &PrivateMount,
    options: &Options,
    directly: bool,
) -> Result<OwnedFd, Error> {
    let failed = |error| Error::on_demand("a name for the mount's source", error);
    let name = SourceName::of(remote.place(), file).map_err(failed)?;
    let what = format!("{} from the cache", ON_DEMAND.fstype);
    let mut context = Context::open(ON_DEMAND.fstype, what)?
        .set_flag("ro")?
        .set("source", &*name.source)?;
    let block_size = image.reader().fs().volume().block_size;
    if directly {
        context = direct::ask(context, &ON_DEMAND, remote.blob().data_file(), block_size);
    }
    let devices: Vec<_> = options
        .devices
        .iter()
        .map(|path| Named::open(path))
        .collect();
    for device in devices {
        let device = device?;
        let name: &OsStr = &device.name();
        context = context.set("device", name)?;
    }
    context.mount(options)
}

/// A name that leads to the file while the mount is made, and shows users afterwards which image it is.
struct SourceName {
    source: OsString,
    _dir: TempDir,
}

impl SourceName {
    fn of(place: &str, file: &PrivateMount) -> std::io::Result<Self> {
        let dir = tempfile::Builder::new().prefix("forerun-").tempdir()?;
        let plain = |c: char| match c {
            '/' => '!',
            c if c.is_ascii_graphic() => c,
            _ => '_',
        };
        let path = dir
            .path()
            .join(place.chars().take(SHOWN).map(plain).collect::<String>());
        symlink(file.path(), &path)?;
        Ok(Self {
            source: marked(&path),
            _dir: dir,
        })
    }
}
