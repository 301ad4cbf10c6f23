//! The interface between protocols and the code above them: one blob on one server.

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub len: u64,
    /// Identifies this version at the address, if the server gives one. It is part of the blob's
    /// cache name and a condition of later requests.
    pub version: Option<String>,
    /// Digest of the whole blob, if the blob is named by one.
    pub digest: Option<Digest>,
    /// Whether the server sends only the whole blob, because it does not support range requests.
    pub whole: bool,
}

/// One blob on one server. Implementations send each request once: the caller retries, tries other
/// mirrors and abandons stalled streams.
pub trait Origin: Send + Sync + fmt::Debug {
    /// Returns the address for messages, without credentials.
    fn place(&self) -> &str;

    /// Requests the length and the version of the blob. Fails early if the server cannot send the
    /// blob.
    fn describe(&self) -> BoxFuture<'_, Result<Description>>;

    /// Requests `range` of the blob in `description`. Checks the head of the answer (status, range,
    /// total length, version) before it returns the body. The body may be shorter than the range if
    /// the connection ends; it is never longer.
    fn fetch(&self, range: Range<u64>, description: &Description) -> BoxFuture<'_, Result<Body>>;

    /// Requests the whole of a blob of unknown length, in `version` if the server gave one. Checks
    /// the head of the answer before it returns the body. If the connection ends before the answer
    /// does, the body ends with an error, as far as the protocol can detect that.
    fn fetch_whole<'a>(&'a self, version: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        let _of_any_version = version;
        let place = self.place().to_owned();
        std::future::ready(Err(RemoteError::NoRanges { place })).boxed()
    }

    /// Reads credentials again after the user's signal.
    fn reload(&self) {}
}
