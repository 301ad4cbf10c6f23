//! Errors on the way to a server and back.

use std::io;
use std::ops::Range;

use forerun_cache::{CacheError, Digest};

/// Result of an operation that may have to ask a server.
pub type Result<T> = std::result::Result<T, RemoteError>;

/// An error of a request, or of the cache. Texts never hold credentials: addresses are shown without
/// user, password and query.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// A text that names no image we could reach.
    #[error("{text}: {reason}")]
    Reference {
        /// The text, credentials cut out.
        text: String,
        reason: String,
    },
    /// The server has no such blob, manifest or tag.
    #[error("{place}: not found")]
    NotFound { place: String },
    /// The server wants other credentials than it got.
    #[error("{place}: access denied ({status})")]
    Denied {
        place: String,
        /// HTTP status: 401, 403 or 407.
        status: u16,
        /// Whether the request had credentials, which the server does not accept.
        has_credentials: bool,
    },
    /// A wrong answer, or a setting or file that cannot be used; a retry does not help.
    #[error("{place}: {reason}")]
    Refused {
        place: String,
        /// The reason, often the server's answer.
        reason: String,
    },
    /// A server that is busy or broken for now: 408, 425, 429, 5xx.
    #[error("{place}: the server answered {status}")]
    Busy {
        place: String,
        status: u16,
        /// How long to wait before the next request, where the server says so.
        retry_after: Option<std::time::Duration>,
    },
    /// The connection failed, was reset, or ended before the bytes did.
    #[error("{place}: {reason}")]
    Network { place: String, reason: String },
    /// No byte came within the time limit.
    #[error("{place}: the server sent nothing for {seconds} s")]
    Timeout {
        place: String,
        /// The time limit, in seconds.
        seconds: f32,
    },
    /// The server does not send parts of the blob.
    #[error("{place}: the server does not answer range requests")]
    NoRanges { place: String },
    /// The server does not send parts of the blob, and the cache may not take the whole.
    #[error(
        "{place}: the server does not answer range requests, so the cache must hold all {len} bytes; its limit is {capacity}"
    )]
    TooLong {
        place: String,
        /// Length of the blob.
        len: u64,
        /// Most bytes that the cache may take.
        capacity: u64,
    },
    /// The server sends the file whole, and does not say how long it is.
    #[error("{place}: the server neither answers range requests nor says how long the file is")]
    NoLength {
        place: String,
        /// The server's name for the version, where it has one.
        version: Option<String>,
    },
    /// A file whose length the server does not say is longer than may be kept.
    #[error(
        "{place}: the server does not say how long the file is, and it is longer than the cache's limit of {capacity} bytes"
    )]
    TooMuch {
        place: String,
        /// Most bytes that may be kept.
        capacity: u64,
    },
    /// The blob has changed since it was opened.
    #[error("{place}: the blob has changed since it was opened")]
    Changed { place: String },
    /// Bytes that do not have the digest they were requested by.
    #[error("{place}: bytes {}..{} are wrong: they do not have the digest {expected}", range.start, range.end)]
    WrongDigest {
        place: String,
        /// Where in the blob, in bytes.
        range: Range<u64>,
        /// The digest that they should have.
        expected: Digest,
    },
    /// A server that shows a certificate of no trusted authority, or one for another name.
    #[error("{place}: its certificate is not trusted: {reason}")]
    Untrusted {
        place: String,
        /// The defect of the certificate.
        reason: String,
    },
    /// The image is not in the cache, and no server may be asked.
    #[error("{place}: not in the cache, and no server may be contacted")]
    Offline { place: String },
    /// The image was closed before the bytes were here.
    #[error("{place}: the image was closed")]
    Closed { place: String },
    /// The fetched bytes cannot be kept.
    #[error("the cache cannot be used: {reason}")]
    Cache {
        reason: String,
        /// Whether the filesystem of the cache has no room.
        is_full: bool,
    },
}

impl RemoteError {
    /// Returns the error of a server that is the cause of another error.
    #[must_use]
    pub fn within<'e>(error: &'e (dyn std::error::Error + 'static)) -> Option<&'e Self> {
        forerun_io::causes(error).find_map(|cause| cause.downcast_ref())
    }

    /// Says whether the request that was refused had credentials.
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

    /// Returns whether no server has answered: no connection, no answer in time, or a server that is
    /// broken or overloaded. All other errors are answers.
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

/// Converts an error of the cache to the one that readers get.
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
