//! Errors on the way to a server and back.

use std::ops::Range;

use forerun_cache::Digest;

/// Result of what may have to ask a server.
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
        /// The reason.
        reason: String,
    },
    /// The server has no such blob, manifest or tag.
    #[error("{place}: not found")]
    NotFound {
        /// Address.
        place: String,
    },
    /// The server wants other credentials than it got.
    #[error("{place}: access denied ({status})")]
    Denied {
        /// Address.
        place: String,
        /// HTTP status, 401 or 403.
        status: u16,
    },
    /// Another answer than was asked for, which asking again will not mend.
    #[error("{place}: {reason}")]
    Refused {
        /// Address.
        place: String,
        /// The reason, often the server's answer.
        reason: String,
    },
    /// A server that is busy or broken for now: 408, 425, 429, 5xx.
    #[error("{place}: the server answered {status}")]
    Busy {
        /// Address.
        place: String,
        /// HTTP status.
        status: u16,
        /// How long the server wants to be left alone, where it says so.
        retry_after: Option<std::time::Duration>,
    },
    /// The connection failed, was reset, or ended before the bytes did.
    #[error("{place}: {reason}")]
    Network {
        /// Address.
        place: String,
        /// The cause.
        reason: String,
    },
    /// Nothing came for too long.
    #[error("{place}: nothing came for {seconds} s")]
    Timeout {
        /// Address.
        place: String,
        /// How long we waited.
        seconds: u64,
    },
    /// The server does not send parts of the blob.
    #[error("{place}: the server does not answer range requests")]
    NoRanges {
        /// Address.
        place: String,
    },
    /// The blob is another one than when it was opened.
    #[error("{place}: the blob has changed since it was opened")]
    Changed {
        /// Address.
        place: String,
    },
    /// Bytes that are not those that were named by their digest.
    #[error("{place}: bytes {}..{} are not those of {expected}", range.start, range.end)]
    WrongDigest {
        /// Address.
        place: String,
        /// Where in the blob, in bytes.
        range: Range<u64>,
        /// The digest that they should have.
        expected: Digest,
    },
    /// A server that shows a certificate of no trusted authority, or one for another name.
    #[error("{place}: its certificate is not trusted: {reason}")]
    Untrusted {
        /// Address.
        place: String,
        /// The defect of the certificate.
        reason: String,
    },
    /// It is not in the cache, and servers are not to be asked.
    #[error("{place}: not in the cache, and servers are not asked")]
    Offline {
        /// Address.
        place: String,
    },
    /// The fetched bytes cannot be kept.
    #[error("the cache cannot be used: {reason}")]
    Cache {
        /// Why not.
        reason: String,
    },
}

impl RemoteError {
    /// Returns whether this is for want of an answer: no connection, none in time, or a server that is broken or
    /// overburdened. All others are answers.
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
