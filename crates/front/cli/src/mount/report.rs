//! Reports of a serving process about itself: to `forerun status` by a [socket](crate::socket), to
//! Prometheus over HTTP. Both have the same numbers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use forerun::unstable::remote::{RemoteImage, RemoteStatus};
use forerun_engine::MemoryUse;
use forerun_fuse::Monitor;
use serde_json::{Map, Value, json};

use super::MountArgs;
use super::handover::Succession;
#[cfg(feature = "network")]
use super::metrics;
use super::telling::{self, Telling};
use crate::error::Result;
use crate::remote;
use crate::socket::Unnamed;

pub struct Report {
    pub dir: PathBuf,
    /// The image, without credentials.
    pub image: String,
    pub shown: Shown,
    /// The remote images that the mount reads.
    pub remotes: Vec<Arc<RemoteImage>>,
    /// Memory for cached blocks, and the limit of the process.
    memory: MemoryUse,
    sandbox: Value,
    since: u64,
}

pub struct Shown {
    pub monitor: Monitor,
    pub device: (u32, u32),
    pub supervisor: Option<i32>,
}

impl Report {
    pub fn new(
        dir: &Path,
        image: String,
        shown: Shown,
        remotes: Vec<Arc<RemoteImage>>,
        memory: MemoryUse,
        sandbox: Value,
    ) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            dir: dir.to_path_buf(),
            image,
            shown,
            remotes,
            memory,
            sandbox,
            since: since.map_or(0, |since| since.as_secs()),
        }
    }

    /// Returns the whole report, or `None` once the mount has ended.
    pub fn json(&self) -> Option<Value> {
        let Shown {
            monitor,
            device: (major, minor),
            supervisor,
        } = &self.shown;
        let (engine, requests) = monitor.counters()?;
        let counters: Map<_, _> = engine
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(counter, value)| (counter.name().to_string(), value.into()))
            .collect();
        let requests: Map<_, _> = requests
            .iter()
            .map(|(kind, count)| (kind.name().to_string(), count.into()))
            .collect();
        let layers: Vec<_> = self.remotes.iter().map(|image| image.status()).collect();
        let of_each = || layers.iter().map(remote::to_json).collect::<Vec<_>>();
        let limit = &self.memory.limit;
        Some(json!({
            "pid": std::process::id(),
            "supervisor": supervisor,
            "dir": self.dir.display().to_string(),
            "device": format!("{major}:{minor}"),
            "via": "fuse",
            "image": self.image,
            "since": self.since,
            "memory_bytes": memory(),
            "cache_bytes": self.memory.cache,
            "cached_bytes": monitor.cached_bytes(),
            "memory_limit_bytes": limit.bytes(),
            "memory_limit_by": limit.is_imposed().then(|| limit.set_by().to_string()),
            "sandbox": self.sandbox,
            "fuse_requests": requests,
            "counters": counters,
            "remote": RemoteStatus::of_all(layers.clone()).map(|all| remote::to_json(&all)),
            "remote_layers": (layers.len() > 1).then(of_each),
        }))
    }
}

/// Returns the memory of this process that is not shared with files, in bytes.
pub fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut fields = statm.split_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (fields.next(), fields.next());
    match (resident, shared) {
        (Some(Ok(resident)), Some(Ok(shared))) => {
            let page = u64::try_from(rustix::param::page_size()).unwrap_or(4096);
            resident.saturating_sub(shared).saturating_mul(page)
        }
        _ => 0,
    }
}

/// Starts reporting a mount to `forerun status` and to Prometheus. A mount that was taken over is
/// in use, so it continues without metrics if these fail.
pub fn begin(
    report: Report,
    args: &MountArgs,
    succession: Option<&Arc<Succession>>,
    is_successor: bool,
    socket: io::Result<Unnamed>,
) -> Result<Option<Telling>> {
    let report = Arc::new(report);
    #[cfg(feature = "network")]
    metrics::begin(&report, args, is_successor)?;
    #[cfg(not(feature = "network"))]
    let _without_metrics = (args, is_successor);
    let told = socket.and_then(|socket| telling::tell(socket, &report, succession));
    let told = told.inspect_err(|error| {
        tracing::info!("forerun status will not know of this mount: {error}");
    });
    Ok(told.ok())
}
