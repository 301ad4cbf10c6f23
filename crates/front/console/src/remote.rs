//! Remote images: their names, and reports about them.
//!
//! Nothing is fetched here; the library does that.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytesize::ByteSize;
#[cfg(feature = "network")]
use forerun::unstable::cache::AccessList;
#[cfg(feature = "network")]
use forerun::unstable::remote::Prefetch;
use forerun::unstable::remote::{Reference, RemoteError, RemoteImage, RemoteStatus};
use serde_json::{Value, json};

use crate::args::RemoteArgs;
use crate::error::{Failure, Result, without_errno};
use crate::exit::Exit;

/// Returns whether a name on the command line means a remote image.
pub fn is_remote(name: &Path) -> bool {
    name.to_str().is_some_and(Reference::is_remote)
}

/// Parses the name of a remote image. Returns `None` for the name of a file.
pub fn reference(name: &Path) -> Result<Option<Reference>> {
    match name.to_str().filter(|name| Reference::is_remote(name)) {
        Some(text) => Reference::parse(text)
            .map(Some)
            .map_err(|error| failure(&error)),
        None => Ok(None),
    }
}

/// Returns a name for messages, without user, password and query.
pub fn shown(name: &Path) -> String {
    let text = name.display().to_string();
    if !is_remote(name) {
        return text;
    }
    match Reference::parse(&text) {
        Ok(reference) => reference.place(),
        Err(_) if cfg!(feature = "network") => "the image's address".to_string(),
        Err(_) => forerun::unstable::remote::without_secrets(&text),
    }
}

/// Opens an image for a few reads before its main use. Nothing is fetched ahead or recorded.
pub fn open_for_a_look(reference: &Reference, args: &RemoteArgs) -> Result<Arc<RemoteImage>> {
    #[cfg_attr(not(feature = "network"), expect(unused_mut))]
    let mut options = args.options();
    #[cfg(feature = "network")]
    {
        (options.prefetch, options.record) = (Prefetch::None, None);
    }
    forerun::unstable::remote::open(reference, &options).map_err(|error| failure(&error))
}

#[cfg(feature = "network")]
pub fn access_list(path: &Path) -> Result<AccessList> {
    forerun::unstable::remote::access_list(path).map_err(|error| failure(&error))
}

pub fn failure(error: &RemoteError) -> Failure {
    let failure = Failure::new(Exit::Source, "remote", without_errno(&error.to_string()));
    let failure = failure.maybe_hint(hint(error));
    match error {
        RemoteError::Reference { .. } => Failure {
            exit: Exit::Usage,
            ..failure
        },
        _ => failure,
    }
}

pub const SLOW: &str = "--timeout SECONDS waits longer for a slow server";

pub fn hint(error: &RemoteError) -> Option<&'static str> {
    Some(match error {
        RemoteError::Denied {
            has_credentials: false,
            ..
        } => {
            "log in first: docker login or podman login for registries, AWS_* variables for s3://, \
             ~/.netrc or --credentials-file elsewhere"
        }
        RemoteError::Denied { status: 403, .. } => {
            "your account lacks the permission: use another account, or request access"
        }
        RemoteError::Denied { .. } => {
            "the server rejected the user or password: log in again, or correct them"
        }
        RemoteError::Timeout { .. } => SLOW,
        RemoteError::NoRanges { .. } => {
            "fetch the whole file with another program, or use a server with range requests"
        }
        RemoteError::TooLong { .. } | RemoteError::TooMuch { .. } => {
            "--cache-limit BYTES lets the cache take more; forerun pull fetches it into a file"
        }
        RemoteError::Cache { is_full: true, .. } => {
            "free space with forerun cache gc --to BYTES, or use another directory: --cache-dir DIR"
        }
        RemoteError::Untrusted { .. } => {
            "name a file of trusted certificates with --ca-file or SSL_CERT_FILE"
        }
        RemoteError::Offline { .. } => {
            "leave --offline out, or fetch the image first: forerun cache prefetch IMAGE"
        }
        _ => return None,
    })
}

/// Prints the cost of fetching to standard error.
pub fn print_stats(as_json: bool, status: &RemoteStatus) {
    let mut stderr = std::io::stderr().lock();
    // If standard error is gone, nothing can be reported.
    let _ = if as_json {
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
        "verified_by": status.verified_by,
        "answered": status.answered.map(seconds),
        "last_error": status.last_error,
    })
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

pub fn human(bytes: u64) -> String {
    ByteSize(bytes).to_string()
}
