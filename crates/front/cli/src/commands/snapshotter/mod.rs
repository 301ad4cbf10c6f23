//! `forerun snapshotter`: layers of images in registries as snapshots of containerd.

mod images;
pub mod layers;
mod socket;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum, ValueHint};
use forerun_snapshotter::{Error, LabelFamily, Snapshotter, Stopper};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{CacheArgs, ServerArgs};
use crate::context::Context;
use crate::error::{Failure, Result, reason, without_errno};
use crate::exit::Exit;

use images::MountedImages;
use socket::Socket;

/// Serve snapshots to containerd, so that containers start before their layers are fetched
///
/// Layers of eStargz, zstd:chunked and SOCI images are mounted instead of unpacked, and data is fetched when
/// a container reads it. containerd unpacks other images as usual. Containers keep running when this command
/// ends. docs/containerd.md has the configuration of containerd and a systemd unit.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  forerun snapshotter --address /run/forerun-snapshotter/socket
  ctr-remote images rpull --snapshotter forerun registry.example/app:1.0
  ctr run --snapshotter forerun registry.example/app:1.0 name")]
pub struct SnapshotterArgs {
    /// Socket to listen on, as named in the configuration of containerd
    #[arg(long, value_name = "SOCKET", value_hint = ValueHint::FilePath)]
    pub address: PathBuf,
    /// Directory for snapshots
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, default_value = "/var/lib/forerun-snapshotter")]
    pub root: PathBuf,
    /// Also mount layers whose indexes forerun index --push or soci push stored in the registry.
    /// forerun trusts them, although everyone who can push to the repository, and every mirror, can
    /// replace them
    #[arg(long)]
    pub referrers: bool,
    /// Use only the labels of this client to find images. Without this option, a layer whose labels
    /// name two images is unpacked
    #[arg(long, value_name = "CLIENT")]
    pub labels: Option<Labels>,
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub server: ServerArgs,
}

/// The client whose labels are taken.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Labels {
    /// The CRI plugin of containerd, with disable_snapshot_annotations = false
    Cri,
    /// ctr-remote
    Stargz,
}

impl From<Labels> for LabelFamily {
    fn from(labels: Labels) -> Self {
        match labels {
            Labels::Cri => Self::Cri,
            Labels::Stargz => Self::Stargz,
        }
    }
}

pub fn run(context: &Context, args: &SnapshotterArgs) -> Result {
    if !rustix::process::geteuid().is_root() {
        let message = "this needs root, because containerd's mounts need it";
        return Err(Failure::new(Exit::Usage, "usage", message));
    }
    let mut cache = args.cache.clone();
    // Root's own cache serves other purposes and must not be emptied when snapshots are removed.
    cache
        .cache_dir
        .get_or_insert_with(|| args.root.join("cache"));
    let images = MountedImages::new(args, &cache, context.global.no_sandbox);
    let snapshotter = Snapshotter::open(&args.root, Arc::new(images));
    let snapshotter = snapshotter.map_err(|error| failure(&error))?;
    let snapshotter = Arc::new(snapshotter.with_labels(args.labels.map(Into::into)));
    let socket = Socket::bind(&args.address)?;
    let signals = Signals::new([SIGTERM, SIGINT]);
    let signals = signals.map_err(|error| Failure::usage(reason(&error)))?;
    let (stopper, stopped) = Stopper::new();
    let watching = std::thread::Builder::new().name("signals".to_string());
    let watching = watching.spawn(move || wait(signals, stopper));
    watching.map_err(|error| Failure::usage(reason(&error)))?;
    if let Err(error) = forerun_snapshotter::tell_ready() {
        tracing::warn!("notifying the service manager: {}", reason(&error));
    }
    context.note(&format!("serving snapshots at {}", shown(&args.address)));
    let listener = socket.listener().map_err(|error| Failure::source(&error))?;
    forerun_snapshotter::serve(snapshotter, listener, stopped).map_err(|error| failure(&error))?;
    Ok(Exit::Ok)
}

/// Stops the service at the first signal.
fn wait(mut signals: Signals, stopper: Stopper) {
    let _first = signals.forever().next();
    stopper.stop();
    // A request may be waiting for a registry, so a second signal exits at once.
    let _second = signals.forever().next();
    std::process::exit(i32::from(Exit::Interrupted.code()));
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn failure(error: &Error) -> Failure {
    let message = without_errno(&error.to_string());
    let failure = Failure::new(Exit::Output, "snapshots", message);
    match error {
        Error::Root { .. } => failure.hint("name another: --root DIR"),
        _ => failure,
    }
}
