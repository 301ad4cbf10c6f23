//! The seam between protocols and everything above them: one blob at one server.

mod absent;
pub mod aws_profile;
mod http;
pub mod layout;
mod pinned;
mod s3;
mod s3_settings;

use std::fmt;
use std::ops::Range;

use forerun_cache::Digest;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::http::response::Body;
use crate::{RemoteError, Result};

pub use absent::Absent;
pub use http::HttpOrigin;
pub use pinned::Pinned;
pub use s3::S3Origin;
pub use s3_settings::S3Settings;

/// A server's description of a blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub len: u64,
    /// A text that identifies this version at the address, if the server gives one. It is part of the blob's
    /// name in the cache and a condition of later requests.
    pub version: Option<String>,
    /// Digest of the whole blob, if its name is one.
    pub digest: Option<Digest>,
    /// Whether the server sends only the whole blob, because it does not support range requests.
    pub whole: bool,
}

/// One blob at one server. Implementations make each request once: the caller retries, asks other mirrors and
/// gives up stalled streams.
pub trait Origin: Send + Sync + fmt::Debug {
    /// Returns the address for messages, without credentials.
    fn place(&self) -> &str;

    /// Requests the length and the version of the blob. Fails for a server that cannot send parts, before anything
    /// relies on it.
    fn describe(&self) -> BoxFuture<'_, Result<Description>>;

    /// Requests `range` of the blob in `description`. Checks the head of the answer before it returns the
    /// body: status, range, total length, version. The body may be shorter than the range if the connection
    /// ends; it is never longer.
    fn fetch(&self, range: Range<u64>, description: &Description) -> BoxFuture<'_, Result<Body>>;

    /// Requests the whole of a blob of unknown length, in `version` if the server gave one. Checks the head
    /// of the answer before it returns the body. The body ends with an error if the connection ended before
    /// the answer, as far as the protocol shows that.
    fn fetch_whole<'a>(&'a self, version: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        let _of_any_version = version;
        let place = self.place().to_owned();
        std::future::ready(Err(RemoteError::NoRanges { place })).boxed()
    }

    /// Reads credentials again, on the user's signal.
    fn reload(&self) {}
}
