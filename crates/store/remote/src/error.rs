//! Errors of requests to servers and of the cache.

use std::io;
use std::ops::Range;

use forerun_cache::{CacheError, Digest};

pub type Result<T> = std::result::Result<T, RemoteError>;

/// An error of a request or of the cache. Its text never contains credentials: addresses are shown
/// without user, password and query.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// A name, address or file from the user cannot be used.
    #[error("{text}: {reason}")]
    Reference {
        /// The text, without credentials.
        text: String,
        reason: String,
    },
    #[error("{place}: not found")]
    NotFound { place: String },
    /// The server rejected the credentials, or requires some.
    #[error("{place}: access denied ({status})")]
    Denied {
        place: String,
        /// HTTP status: 401, 403 or 407.
        status: u16,
        has_credentials: bool,
    },
    /// The answer is invalid, or a setting or file cannot be used. A retry does not help.
    #[error("{place}: {reason}")]
    Refused {
        place: String,
        /// The reason, often quoted from the server's answer.
        reason: String,
    },
    /// The server is busy or broken for now: 408, 425, 429, 5xx.
    #[error("{place}: the server answered {status}")]
    Busy {
        place: String,
        status: u16,
        /// Pause before the next request, if the server asks for one.
        retry_after: Option<std::time::Duration>,
    },
    /// The connection failed, was reset, or ended too early.
    #[error("{place}: {reason}")]
    Network { place: String, reason: String },
    #[error("{place}: the server sent nothing for {seconds} s")]
    Timeout { place: String, seconds: f32 },
    #[error("{place}: the server does not answer range requests")]
    NoRanges { place: String },
    /// The server does not support range requests, and the blob is larger than the cache may grow.
    #[error(
        "{place}: the server does not answer range requests, so the cache must hold all {len} bytes; its limit is {capacity}"
    )]
    TooLong {
        place: String,
        len: u64,
        capacity: u64,
    },
    #[error("{place}: the server neither answers range requests nor says how long the file is")]
    NoLength {
        place: String,
        /// The version of the file (such as an `ETag`), if the server gives one.
        version: Option<String>,
    },
    #[error(
        "{place}: the server does not say how long the file is, and it is longer than the cache's limit of {capacity} bytes"
    )]
    TooMuch { place: String, capacity: u64 },
    #[error("{place}: the blob has changed since it was opened")]
    Changed { place: String },
    #[error("{place}: bytes {}..{} are wrong: they do not have the digest {expected}", range.start, range.end)]
    WrongDigest {
        place: String,
        /// The wrong bytes, as offsets in the blob.
        range: Range<u64>,
        expected: Digest,
    },
    /// No trusted authority signed the server's certificate, or the certificate is for another
    /// name.
    #[error("{place}: its certificate is not trusted: {reason}")]
    Untrusted { place: String, reason: String },
    #[error("{place}: not in the cache, and --offline forbids contacting a server")]
    Offline { place: String },
    #[error("{place}: the image was closed")]
    Closed { place: String },
    #[error("the cache cannot be used: {reason}")]
    Cache {
        reason: String,
        /// Whether the filesystem of the cache is full.
        is_full: bool,
    },
}

impl RemoteError {
    #[must_use]
    pub fn within<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Self> {
        forerun_io::causes(error).find_map(|cause| cause.downcast_ref())
    }

    /// Sets whether the refused request had credentials.
    #[must_use]
    pub fn with_credentials(self, has_credentials: bool) -> Self {
        match self {
            Self::Denied { place, status, .. } => Self::Denied {
                place,
                status,
                has_credentials,
            },
            other => other,
        }
    }

    /// Returns whether no server answered: no connection, a timeout, or a broken or overloaded
    /// server. All other errors are answers.
    #[must_use]
    pub const fn is_no_answer(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. } | Self::Network { .. } | Self::Timeout { .. }
        )
    }

    /// Returns whether the same request may succeed later or at another mirror.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::Network { .. }
                | Self::Timeout { .. }
                | Self::WrongDigest { .. }
        )
    }
}

/// Converts an error of the cache to the error that readers get.
pub fn cache_error(error: &CacheError) -> RemoteError {
    if let Some(remote) = RemoteError::within(error) {
        return remote.clone();
    }
    let mut reason = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        reason = format!("{reason}: {cause}");
    }
    let kinds = forerun_io::causes(error).filter_map(|cause| cause.downcast_ref::<io::Error>());
    let is_full = kinds.map(io::Error::kind).any(|kind| {
        matches!(
            kind,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    });
    RemoteError::Cache { reason, is_full }
}
