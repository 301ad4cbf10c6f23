//! What a serving process tells of itself: to `forerun status` by a socket of the file system, to
//! Prometheus by HTTP. Both are the same numbers.
//!
//! The socket lies in a directory of the user, so only they and root can ask; a question is a
//! connection without a word, the answer one line of JSON. `forerun restart` asks the same way, with
//! the device number of the mount.

use std::fmt::Write as _;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forerun::remote::RemoteImage;
use forerun_fuse::Monitor;
use serde_json::{Map, Value, json};

use super::handover::Succession;
use crate::remote;

/// A program that asks and does not listen is not waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Longest question.
const MAX_QUESTION: u64 = 64;
/// Longest answer.
const MAX_ANSWER: u64 = 1 << 20;

/// A mount, as it is told of.
pub struct Report {
    /// Where it is.
    pub dir: PathBuf,
    /// What is mounted, without credentials.
    pub image: String,
    /// The counters.
    pub monitor: Monitor,
    /// The image's source, where that is at a server.
    pub remote: Option<Arc<RemoteImage>>,
    since: u64,
}

impl Report {
    /// Of a mount that has just begun.
    pub fn new(
        dir: &Path,
        image: String,
        monitor: Monitor,
        remote: Option<Arc<RemoteImage>>,
    ) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            dir: dir.to_path_buf(),
            image,
            monitor,
            remote,
            since: since.map_or(0, |since| since.as_secs()),
        }
    }

    /// All there is to tell; nothing once the mount has ended.
    fn json(&self) -> Option<Value> {
        let (stats, requests) = self.monitor.counters()?;
        let counters: Map<_, _> = stats
            .iter()
            .filter(|(_, value)| *value > 0)
            .map(|(counter, value)| (counter.name().to_string(), value.into()))
            .collect();
        let requests: Map<_, _> = requests
            .iter()
            .map(|(kind, count)| (kind.name().to_string(), count.into()))
            .collect();
        Some(json!({
            "pid": std::process::id(),
            "dir": self.dir.display().to_string(),
            "image": self.image,
            "since": self.since,
            "memory_bytes": memory(),
            "fuse_requests": requests,
            "counters": counters,
            "remote": self.remote.as_ref().map(|image| remote::to_json(&image.status())),
        }))
    }

    /// The same in the text format of Prometheus.
    fn metrics(&self) -> String {
        let mut text = String::new();
        let Some((stats, requests)) = self.monitor.counters() else {
            return text;
        };
        let label = format!("image=\"{}\"", escaped(&self.image));
        let mut put = |name: &str, kind: &str, labels: &str, value: String| {
            let head = format!("# TYPE forerun_{name} {kind}\n");
            if !text.contains(&head) {
                text.push_str(&head);
            }
            // Writing to a string cannot fail.
            let _ = writeln!(text, "forerun_{name}{{{labels}}} {value}");
        };
        put("memory_bytes", "gauge", &label, memory().to_string());
        for (counter, value) in stats.iter() {
            let name = format!("{}_total", counter.name());
            put(&name, "counter", &label, value.to_string());
        }
        for (operation, count) in requests.iter() {
            let labels = format!("{label},kind=\"{}\"", operation.name());
            put("fuse_requests_total", "counter", &labels, count.to_string());
        }
        let Some(image) = &self.remote else {
            return text;
        };
        let status = image.status();
        let flag = |on: bool| u64::from(on);
        for (name, kind, value) in [
            ("remote_image_bytes", "gauge", status.len),
            ("remote_local_bytes", "gauge", status.local_bytes),
            ("remote_complete", "gauge", flag(status.complete)),
            ("remote_verified", "gauge", flag(status.verified)),
            ("remote_in_flight", "gauge", status.in_flight),
            ("remote_queued_demand", "gauge", status.demand_queue),
            ("remote_queued_ahead", "gauge", status.readahead_queue),
            ("remote_queued_background", "gauge", status.background_queue),
            (
                "remote_fetched_bytes_total",
                "counter",
                status.fetched_bytes,
            ),
            (
                "remote_refetched_bytes_total",
                "counter",
                status.refetched_bytes,
            ),
            ("remote_wrong_bytes_total", "counter", status.wrong_bytes),
            (
                "remote_adopted_bytes_total",
                "counter",
                status.adopted_bytes,
            ),
            ("remote_requests_total", "counter", status.requests),
            ("remote_errors_total", "counter", status.errors),
            ("remote_retries_total", "counter", status.retries),
            ("remote_waits_total", "counter", status.waits),
        ] {
            put(name, kind, &label, value.to_string());
        }
        let waited = format!("{:.6}", status.waited.as_secs_f64());
        put("remote_waited_seconds_total", "counter", &label, waited);
        text
    }
}

/// A label's value as the format wants it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// Memory of this process that is not shared with files, in bytes.
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

/// The directory of the sockets: `$XDG_RUNTIME_DIR/forerun`, `/run/forerun` for root, else one in
/// /tmp that is this user's alone.
pub fn directory() -> PathBuf {
    let uid = rustix::process::getuid();
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    if let Some(dir) = given.filter(|dir| dir.is_absolute() && dir.is_dir()) {
        return dir.join("forerun");
    }
    // Root of a user namespace is nobody to the owner of /run.
    let run = PathBuf::from("/run/forerun");
    let is_ours = run.symlink_metadata().map_or_else(
        |_| rustix::fs::access("/run", rustix::fs::Access::WRITE_OK).is_ok(),
        |metadata| metadata.uid() == uid.as_raw(),
    );
    match uid.is_root() && is_ours {
        true => run,
        false => std::env::temp_dir().join(format!("forerun-{}", uid.as_raw())),
    }
}

/// Answers who asks at the socket, as long as it is kept.
pub struct Telling {
    socket: PathBuf,
}

impl Drop for Telling {
    fn drop(&mut self) {
        // What is left behind is taken away by the next who asks.
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Begins to answer. A mount goes on without it.
pub fn tell(report: &Arc<Report>, succession: &Arc<Succession>) -> io::Result<Telling> {
    let socket = socket();
    let dir = directory();
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let metadata = dir.symlink_metadata()?;
    if !metadata.is_dir() || metadata.uid() != rustix::process::getuid().as_raw() {
        return Err(io::Error::other(format!(
            "{} is somebody else's",
            dir.display()
        )));
    }
    // Of a process that had this number before.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)?;
    std::fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
    let telling = Telling { socket };
    let report = Arc::clone(report);
    let succession = Arc::clone(succession);
    let thread = std::thread::Builder::new().name("status".to_string());
    thread.stack_size(128 << 10).spawn(move || {
        for asker in listener.incoming().flatten() {
            let Some(json) = report.json() else { return };
            match question(&asker) {
                Ok(device) if succession.is_of(&device) => succession.begin(asker),
                Ok(question) if question.is_empty() => {
                    let _gone = (&asker).write_all(format!("{json}\n").as_bytes());
                }
                // A mount of another namespace may have the same path.
                Ok(_) => {
                    let _gone = (&asker).write_all(b"another mount");
                }
                Err(error) => tracing::debug!("status: {error}"),
            }
        }
    })?;
    Ok(telling)
}

/// What is asked: nothing, for the status, or the device number of the mount that is to be restarted.
fn question(asker: &UnixStream) -> io::Result<String> {
    asker.set_write_timeout(Some(PATIENCE))?;
    asker.set_read_timeout(Some(PATIENCE))?;
    let mut question = String::new();
    asker.take(MAX_QUESTION).read_to_string(&mut question)?;
    asker.set_read_timeout(None)?;
    Ok(question)
}

/// Asks a process; `question` is empty, or a device number.
pub fn ask(socket: &Path, question: &str, patience: Duration) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(question.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    Ok(answer)
}

/// The socket of this process.
pub fn socket() -> PathBuf {
    directory().join(format!("{}.sock", std::process::id()))
}

/// Begins to serve Prometheus at `address`.
pub fn serve_metrics(
    report: &Arc<Report>,
    address: &str,
) -> Result<(), forerun::remote::RemoteError> {
    let report = Arc::clone(report);
    let bound = forerun::remote::serve_metrics(address, move || report.metrics())?;
    tracing::info!(%bound, "serving metrics");
    Ok(())
}
