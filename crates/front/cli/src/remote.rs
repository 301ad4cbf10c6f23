//! Images at servers: their options, opening them, and reports about them.
//!
//! Nothing is fetched here; the library does that.

use std::fs::DirBuilder;
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
use clap::{Args, ValueHint};
use forerun::cache::AccessList;
use forerun::remote::{
    DownloadReport, Prefetch, Readahead, Reference, RemoteError, RemoteImage, RemoteOptions,
    RemoteStatus,
};
use forerun_export::Progress as _;
use serde_json::{Value, json};

use crate::context::Context;
use crate::error::{Failure, Result};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::size;

/// How an image at a server is fetched.
#[derive(Args, Clone, Debug, Default)]
pub struct RemoteArgs {
    #[command(flatten)]
    pub cache: CacheArgs,
    #[command(flatten)]
    pub server: ServerArgs,
    /// Ask no server: what is in the cache is opened as its server had it last, and nothing else is
    /// to be had
    #[arg(help_heading = "Images at servers", long)]
    pub offline: bool,
    /// Refuse images whose chunks cannot be verified one by one as they come
    #[arg(help_heading = "Images at servers", long)]
    pub require_verified: bool,
    /// Use what the cache has without verifying it again at its first use
    #[arg(help_heading = "Images at servers", long)]
    pub trust_cache: bool,
    /// Fetch ahead of readers: async does not keep them waiting (default), sync does, off
    /// fetches what they need and no more
    #[arg(help_heading = "Images at servers", long, value_name = "MODE")]
    pub fetch_ahead: Option<FetchAhead>,
    /// Fetch before the first read: none (default), all, or what the access list in a file says
    #[arg(help_heading = "Images at servers", long, value_name = "none|all|FILE")]
    pub prefetch: Option<PathBuf>,
    /// Write to this file which chunks are used, in the order of their first use, for --prefetch
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub record: Option<PathBuf>,
}

/// Where chunks are kept.
#[derive(Args, Clone, Debug, Default)]
pub struct CacheArgs {
    /// Keep what was fetched here [default: forerun in $XDG_CACHE_HOME or ~/.cache]
    #[arg(help_heading = "Images at servers", long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// Bytes that may be kept, of all images together, or none for no limit; what is in use stays
    /// [default: a tenth of the filesystem, less where a twentieth would not stay free]
    #[arg(help_heading = "Images at servers", long, value_name = "BYTES", value_parser = limit)]
    pub cache_limit: Option<u64>,
}

/// How servers are spoken to.
#[derive(Args, Clone, Debug, Default)]
pub struct ServerArgs {
    /// Another address of the same image, tried when the first one fails; for oci:// a registry that
    /// mirrors it, asked first. Again for more; @FILE names a file with one on each line, which is
    /// read again on SIGHUP
    #[arg(
        help_heading = "Images at servers",
        long = "mirror",
        value_name = "URL", value_parser = mirror)]
    pub mirrors: Vec<String>,
    /// Wait at most this long for bytes that are needed [default: 30]
    #[arg(help_heading = "Images at servers", long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: Option<u64>,
    /// Make a request again so many times before giving up on it [default: 5]
    #[arg(help_heading = "Images at servers", long, value_name = "N")]
    pub retries: Option<u32>,
    /// Take users and passwords of web servers from this file: https://USER:PASSWORD@HOST on each line,
    /// as git credential-store has it. Other users must not be able to read it
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_parser = file, value_hint = ValueHint::FilePath)]
    pub credentials_file: Option<PathBuf>,
    /// Take users and passwords of web servers from this netrc file [default: ~/.netrc]
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_parser = file, value_hint = ValueHint::FilePath)]
    pub netrc_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file too
    #[arg(help_heading = "Images at servers", long, value_name = "FILE", value_parser = file, value_hint = ValueHint::FilePath)]
    pub ca_file: Option<PathBuf>,
    /// Allow plain HTTP to this server (HOST or HOST:PORT); registries are then spoken to that way.
    /// Servers on this machine need no leave
    #[arg(help_heading = "Images at servers", long, value_name = "HOST")]
    pub plain_http: Vec<String>,
}

/// How to fetch ahead of readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum FetchAhead {
    /// Windows that no reader waits for
    Async,
    /// Windows that the reader waits for, to compare
    Sync,
    /// Nothing
    Off,
}

impl RemoteArgs {
    /// Converts the arguments into the library's options.
    pub fn options(&self) -> RemoteOptions {
        let mut options = self.server.options();
        options.cache_dir = self.cache.cache_dir.as_deref().map(absolute);
        options.cache_limit = self.cache.cache_limit;
        options.offline = self.offline;
        options.require_verified = self.require_verified;
        options.trust_cache = self.trust_cache;
        options.readahead = match self.fetch_ahead {
            None | Some(FetchAhead::Async) => Readahead::Async,
            Some(FetchAhead::Sync) => Readahead::Sync,
            Some(FetchAhead::Off) => Readahead::Off,
        };
        options.prefetch = match self.prefetch.as_deref() {
            None => Prefetch::None,
            Some(word) if word == Path::new("none") => Prefetch::None,
            Some(word) if word == Path::new("all") => Prefetch::All,
            Some(file) => Prefetch::List(absolute(file)),
        };
        options.record = self.record.as_deref().map(absolute);
        options
    }
}

impl ServerArgs {
    /// Converts the arguments into the library's options.
    pub fn options(&self) -> RemoteOptions {
        let mirrors = self.mirrors.iter().flat_map(|text| mirrors(text));
        let mut options = RemoteOptions {
            mirrors: mirrors.collect(),
            ..RemoteOptions::default()
        };
        if let Some(seconds) = self.timeout {
            options.timeout = Duration::from_secs(seconds);
            options.stall = options.stall.min(options.timeout);
            options.connect_timeout = options.connect_timeout.min(options.timeout);
        }
        if let Some(retries) = self.retries {
            options.retries = retries;
        }
        options.ca_file.clone_from(&self.ca_file);
        options.credentials.store.clone_from(&self.credentials_file);
        options.credentials.netrc.clone_from(&self.netrc_file);
        options.registry.insecure.clone_from(&self.plain_http);
        options
    }
}

/// Parses a mirror: an address, or a file, whose path becomes absolute.
fn mirror(text: &str) -> std::result::Result<String, String> {
    let Some(file) = text.strip_prefix('@') else {
        return Ok(text.to_string());
    };
    let path = absolute(Path::new(file)).into_os_string();
    let path = path.into_string();
    path.map(|path| format!("@{path}"))
        .map_err(|_| "not UTF-8".to_string())
}

/// Returns the mirrors that a value of `--mirror` names.
fn mirrors(text: &str) -> Vec<String> {
    let Some(file) = text.strip_prefix('@') else {
        return vec![text.to_string()];
    };
    let lines = match std::fs::read_to_string(file) {
        Ok(lines) => lines,
        Err(error) => {
            tracing::warn!("no mirrors: {file}: {error}");
            return Vec::new();
        }
    };
    let lines = lines.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(String::from)
        .collect()
}

/// Parses a number of bytes, or `none`.
fn limit(text: &str) -> std::result::Result<u64, String> {
    match text {
        "none" => Ok(u64::MAX),
        number => size::parse(number),
    }
}

/// Makes the path of a file absolute: the file is read again on SIGHUP.
fn file(text: &str) -> std::result::Result<PathBuf, String> {
    Ok(absolute(Path::new(text)))
}

/// Makes a path absolute, as the process that serves a mount changes its directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Makes the directory of the cache where it is missing, for its owner only.
pub fn make_cache_dir(dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// Returns whether a name on the command line is that of something at a server.
pub fn is_remote(name: &Path) -> bool {
    name.to_str().is_some_and(Reference::is_remote)
}

/// Parses the name of something at a server; nothing for the name of a file.
pub fn reference(name: &Path) -> Result<Option<Reference>> {
    match name.to_str().filter(|name| Reference::is_remote(name)) {
        Some(text) => Reference::parse(text)
            .map(Some)
            .map_err(|error| failure(&error)),
        None => Ok(None),
    }
}

/// Returns a name for messages: without user, password and query.
pub fn shown(name: &Path) -> String {
    let text = name.display().to_string();
    if !is_remote(name) {
        return text;
    }
    match Reference::parse(&text) {
        Ok(reference) => reference.place(),
        Err(_) => "the image's address".to_string(),
    }
}

/// Opens it. Servers are asked what it is, and nothing more, unless they send files only whole: then it is
/// downloaded.
pub fn open(
    context: &Context,
    reference: &Reference,
    args: &RemoteArgs,
) -> Result<Arc<RemoteImage>> {
    let mut options = args.options();
    options.download = downloads(context);
    let image = forerun::remote::open(reference, &options).map_err(|error| failure(&error))?;
    tracing::info!(place = image.place(), identity = %image.identity(), "opened");
    tell_of_memory(context, &image);
    context.observe_remote(&image);
    Ok(image)
}

/// Opens it for a few reads, before it is opened for its use: nothing is fetched ahead or recorded.
pub fn open_for_a_look(reference: &Reference, args: &RemoteArgs) -> Result<Arc<RemoteImage>> {
    let mut options = args.options();
    (options.prefetch, options.record) = (Prefetch::None, None);
    forerun::remote::open(reference, &options).map_err(|error| failure(&error))
}

/// Reports downloads: a note before the first byte, then a progress bar.
fn downloads(context: &Context) -> DownloadReport {
    let (bar, note) = (Progress::new(context, "downloading", 0), context.notes());
    let state = Mutex::new((bar, None));
    DownloadReport::new(move |place, progress| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        let (bar, before) = &mut *state;
        match before.replace(progress.done) {
            None => {
                let size = human(progress.total);
                note(&format!(
                    "{place}: the server does not answer range requests: all of it is downloaded \
                     first ({size})"
                ));
                bar.begin(progress.total, 0);
            }
            Some(before) => bar.add(progress.done.saturating_sub(before)),
        }
    })
}

/// Reads the list that `--prefetch` names.
pub fn access_list(path: &Path) -> Result<AccessList> {
    forerun::remote::access_list(path).map_err(|error| failure(&error))
}

/// Reports that the image is as its server had it before, unless it cannot have changed.
fn tell_of_memory(context: &Context, image: &RemoteImage) {
    let Some(memory) = image.from_memory().filter(|memory| !memory.by_digest) else {
        return;
    };
    let place = crate::escape::printable(image.place());
    let date = date(memory.answered);
    match &memory.reason {
        Some(reason) => {
            let reason = crate::escape::printable(&reason.to_string());
            tracing::warn!("{reason}; {place} is opened from the cache, as it was on {date}");
        }
        None => context.note(&format!("{place} is opened as it was on {date}")),
    }
}

/// Formats a date that says its zone.
fn date(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
        Err(_) => "an unknown date".to_string(),
    }
}

/// Returns the failure for an error of a server, with a hint.
pub fn failure(error: &RemoteError) -> Failure {
    let failure = Failure::new(Exit::Source, "remote", error.to_string());
    match error {
        RemoteError::Denied { .. } => failure.hint(
            "log in first: docker login or podman login for registries, AWS_* variables for s3://, \
             ~/.netrc or --credentials-file elsewhere",
        ),
        RemoteError::NoRanges { .. } => {
            failure.hint("fetch the whole file with another program, or ask for ranges there")
        }
        RemoteError::TooLong { .. } => failure.hint(
            "--cache-limit BYTES lets the cache take more; forerun pull fetches it into a file",
        ),
        RemoteError::Untrusted { .. } => failure
            .hint("--ca-file or SSL_CERT_FILE names a file of certificates that are to be trusted"),
        RemoteError::Offline { .. } => failure
            .hint("without --offline it is fetched; `forerun cache prefetch` fetches all of it"),
        RemoteError::Reference { .. } => Failure {
            exit: Exit::Usage,
            ..failure
        },
        _ => failure,
    }
}

/// Prints to standard error what fetching has cost.
pub fn print_stats(context: &Context, status: &RemoteStatus) {
    let mut stderr = std::io::stderr().lock();
    // Without a standard error nothing can be reported.
    let _ = if context.global.json {
        writeln!(stderr, "{}", json!({ "remote": to_json(status) }))
    } else {
        let rows = [
            ("remote_requests", status.requests),
            ("remote_fetched_bytes", status.fetched_bytes),
            ("remote_refetched_bytes", status.refetched_bytes),
            ("remote_adopted_bytes", status.adopted_bytes),
            ("remote_altered_chunks", status.altered_chunks),
            ("remote_local_bytes", status.local_bytes),
            ("remote_errors", status.errors),
            ("remote_retries", status.retries),
            ("remote_waits", status.waits),
        ];
        let text: String = rows
            .iter()
            .map(|(name, value)| format!("{name:<28} {value:>12}\n"))
            .collect();
        stderr.write_all(text.as_bytes())
    };
}

/// Converts the state of an image that is fetched, for programs.
pub fn to_json(status: &RemoteStatus) -> Value {
    json!({
        "place": status.place,
        "bytes": status.len,
        "local_bytes": status.local_bytes,
        "fetched_bytes": status.fetched_bytes,
        "refetched_bytes": status.refetched_bytes,
        "wrong_bytes": status.wrong_bytes,
        "adopted_bytes": status.adopted_bytes,
        "altered_chunks": status.altered_chunks,
        "requests": status.requests,
        "in_flight": status.in_flight,
        "queued": status.demand_queue,
        "queued_ahead": status.readahead_queue,
        "queued_background": status.background_queue,
        "errors": status.errors,
        "retries": status.retries,
        "waits": status.waits,
        "waited_seconds": status.waited.as_secs_f64(),
        "bytes_per_second": status.rate,
        "complete": status.complete,
        "detached": status.detached,
        "verified": status.verified,
        "answered": status.answered.map(seconds),
        "last_error": status.last_error,
    })
}

/// Returns the seconds since 1970.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Formats bytes for people.
pub fn human(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}
