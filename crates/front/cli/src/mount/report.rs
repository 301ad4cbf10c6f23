//! Reports of a serving process about itself: to `forerun status` by a [socket](crate::socket) of the file system, to
//! Prometheus by HTTP. Both are the same numbers.

use std::fmt::{Display, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use forerun::remote::{RemoteError, RemoteImage, RemoteStatus};
use forerun::{MemoryUse, Observer, StatsSnapshot};
use forerun_fuse::{Monitor, RequestCounts};
use forerun_kernel::{Asked, FillMonitor};
use serde_json::{Map, Value, json};

use super::MountArgs;
use super::handover::Succession;
use super::telling::{self, Telling};
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::remote;
use crate::socket::Unnamed;

/// A mount, as it is reported.
pub struct Report {
    /// Where it is.
    pub dir: PathBuf,
    /// The image, without credentials.
    pub image: String,
    /// The server of the mount, with its counters.
    pub shown: Shown,
    /// The image's source, where that is at a server.
    pub remotes: Vec<Arc<RemoteImage>>,
    /// Memory for cached blocks, and the limit of the process.
    memory: MemoryUse,
    /// The sandbox of the process.
    sandbox: Value,
    since: u64,
}

/// The server of a mount.
pub enum Shown {
    /// A process of ours, through FUSE.
    Fuse {
        /// Its counters.
        monitor: Monitor,
        /// Number of the filesystem.
        device: (u32, u32),
        /// The process that keeps the mount, where there is one.
        keeper: Option<i32>,
    },
    /// The kernel, from what a process of ours fetches.
    Kernel {
        /// The kernel's requests.
        monitor: FillMonitor,
        /// Of the driver that has looked at the metadata.
        observer: Arc<Observer>,
    },
}

/// The counters of a mount.
struct Counted {
    engine: StatsSnapshot,
    requests: Option<RequestCounts>,
    reads: Option<Asked>,
}

impl Shown {
    /// Returns the counters; nothing once the mount has ended.
    fn counted(&self) -> Option<Counted> {
        Some(match self {
            Self::Fuse { monitor, .. } => {
                let (engine, requests) = monitor.counters()?;
                Counted {
                    engine,
                    requests: Some(requests),
                    reads: None,
                }
            }
            Self::Kernel { monitor, observer } => Counted {
                engine: observer.stats().snapshot(),
                requests: None,
                reads: Some(monitor.asked()?),
            },
        })
    }

    /// Returns how many bytes of blocks are cached, where this process caches any.
    fn cached(&self) -> Option<u64> {
        match self {
            Self::Fuse { monitor, .. } => monitor.cached_bytes(),
            Self::Kernel { .. } => None,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Fuse { .. } => "fuse",
            Self::Kernel { .. } => "kernel",
        }
    }

    const fn keeper(&self) -> Option<i32> {
        match self {
            Self::Fuse { keeper, .. } => *keeper,
            Self::Kernel { .. } => None,
        }
    }

    const fn device(&self) -> (u32, u32) {
        match self {
            Self::Fuse { device, .. } => *device,
            Self::Kernel { monitor, .. } => monitor.device(),
        }
    }
}

impl Report {
    /// Creates the report of a mount that has just begun.
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

    /// Returns the whole report; nothing once the mount has ended.
    pub fn json(&self) -> Option<Value> {
        let counted = self.shown.counted()?;
        let counters: Map<_, _> = counted
            .engine
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(counter, value)| (counter.name().to_string(), value.into()))
            .collect();
        let requests = counted.requests.iter().flat_map(RequestCounts::iter);
        let requests: Map<_, _> = requests
            .map(|(kind, count)| (kind.name().to_string(), count.into()))
            .collect();
        let reads = counted.reads.map(|asked| {
            json!({
                "asked": asked.events,
                "fetched": asked.fetched,
                "failed": asked.failed,
                "guard": asked.guard,
            })
        });
        let layers: Vec<_> = self.remotes.iter().map(|image| image.status()).collect();
        let of_each = || layers.iter().map(remote::to_json).collect::<Vec<_>>();
        let (major, minor) = self.shown.device();
        let limit = &self.memory.limit;
        Some(json!({
            "pid": std::process::id(),
            "keeper": self.shown.keeper(),
            "dir": self.dir.display().to_string(),
            "device": format!("{major}:{minor}"),
            "via": self.shown.name(),
            "image": self.image,
            "since": self.since,
            "memory_bytes": memory(),
            "cache_bytes": self.memory.cache,
            "cached_bytes": self.shown.cached(),
            "memory_limit_bytes": limit.bytes(),
            "memory_limit_by": limit.is_imposed().then(|| limit.set_by().to_string()),
            "sandbox": self.sandbox,
            "fuse_requests": requests,
            "kernel_reads": reads,
            "counters": counters,
            "remote": RemoteStatus::of_all(layers.clone()).map(|all| remote::to_json(&all)),
            "remote_layers": (layers.len() > 1).then(of_each),
        }))
    }

    /// Formats the same in the text format of Prometheus.
    fn metrics(&self) -> String {
        let Some(counted) = self.shown.counted() else {
            return String::new();
        };
        let mut page = Page {
            text: String::new(),
            label: format!("image=\"{}\"", escaped(&self.image)),
        };
        page.put("memory_bytes", "gauge", memory());
        for (counter, value) in counted.engine.iter() {
            page.put(&format!("{}_total", counter.name()), "counter", value);
        }
        for (operation, count) in counted.requests.iter().flat_map(RequestCounts::iter) {
            let kind = format!("kind=\"{}\"", operation.name());
            page.put_labelled("fuse_requests_total", "counter", &kind, count);
        }
        if let Some(asked) = counted.reads {
            page.put("kernel_reads_total", "counter", asked.events);
            page.put("kernel_reads_fetched_total", "counter", asked.fetched);
            page.put("kernel_reads_failed_total", "counter", asked.failed);
            page.put("kernel_guards", "gauge", u64::from(asked.guard.is_some()));
        }
        let layers = self.remotes.iter().map(|image| image.status());
        if let Some(all) = RemoteStatus::of_all(layers) {
            put_remote(&mut page, &all);
        }
        page.text
    }
}

/// Reports how much of an image at a server is here, and what that cost.
fn put_remote(page: &mut Page, status: &RemoteStatus) {
    let flag = |on: bool| u64::from(on);
    for (name, value) in [
        ("remote_image_bytes", status.len),
        ("remote_local_bytes", status.local_bytes),
        ("remote_complete", flag(status.complete)),
        ("remote_verified", flag(status.verified)),
        ("remote_bytes_per_second", status.rate),
        ("remote_in_flight", status.in_flight),
        ("remote_queued_demand", status.demand_queue),
        ("remote_queued_ahead", status.readahead_queue),
        ("remote_queued_background", status.background_queue),
    ] {
        page.put(name, "gauge", value);
    }
    for (name, value) in [
        ("remote_fetched_bytes_total", status.fetched_bytes),
        ("remote_refetched_bytes_total", status.refetched_bytes),
        ("remote_wrong_bytes_total", status.wrong_bytes),
        ("remote_adopted_bytes_total", status.adopted_bytes),
        ("remote_altered_chunks_total", status.altered_chunks),
        ("remote_requests_total", status.requests),
        ("remote_errors_total", status.errors),
        ("remote_retries_total", status.retries),
        ("remote_waits_total", status.waits),
    ] {
        page.put(name, "counter", value);
    }
    let waited = format!("{:.6}", status.waited.as_secs_f64());
    page.put("remote_waited_seconds_total", "counter", waited);
}

/// A page for Prometheus, with the label that all its values have.
struct Page {
    text: String,
    label: String,
}

impl Page {
    fn put(&mut self, name: &str, kind: &str, value: impl Display) {
        self.put_labelled(name, kind, "", value);
    }

    /// Writes a value with one more label.
    fn put_labelled(&mut self, name: &str, kind: &str, more: &str, value: impl Display) {
        let head = format!("# TYPE forerun_{name} {kind}\n");
        if !self.text.contains(&head) {
            self.text.push_str(&head);
        }
        let comma = if more.is_empty() { "" } else { "," };
        let label = &self.label;
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "forerun_{name}{{{label}{comma}{more}}} {value}");
    }
}

/// Escapes a label's value as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Reads how much memory of this process is not shared with files, in bytes.
fn memory() -> u64 {
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

/// Starts to report a mount, to `forerun status` and to Prometheus. A mount that was taken over is in
/// use: it goes on without metrics where these fail.
pub fn begin(
    report: Report,
    args: &MountArgs,
    succession: Option<&Arc<Succession>>,
    is_successor: bool,
    socket: io::Result<Unnamed>,
) -> Result<Option<Telling>> {
    let report = Arc::new(report);
    if let Some(address) = &args.metrics {
        match serve_metrics(&report, address) {
            Err(error) if is_successor => tracing::error!("no metrics: {error}"),
            served => {
                let failed = |error| Failure::new(Exit::Mount, "metrics", format!("{error}"));
                served.map_err(failed)?;
            }
        }
    }
    let told = socket.and_then(|socket| telling::tell(socket, &report, succession));
    let told = told.inspect_err(|error| {
        tracing::info!("forerun status will not know of this mount: {error}");
    });
    Ok(told.ok())
}

/// Begins to serve Prometheus at `address`.
fn serve_metrics(report: &Arc<Report>, address: &str) -> std::result::Result<(), RemoteError> {
    let report = Arc::clone(report);
    let bound = forerun::remote::serve_metrics(address, move || report.metrics())?;
    tracing::info!(%bound, "serving metrics");
    Ok(())
}
