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
    /// A text that tells this version from others at the same address, where the server gives one;
    /// part of the blob's name in the cache and condition of later requests.
    pub version: Option<String>,
    /// Digest of the whole blob, where its name is one.
    pub digest: Option<Digest>,
    /// Whether the server sends all of the blob or nothing: it does not answer range requests.
    pub whole: bool,
}

/// One blob at one server. Implementations ask once: the caller retries, asks other mirrors and gives up
/// streams that stall.
pub trait Origin: Send + Sync + fmt::Debug {
    /// Returns the address for messages, without credentials.
    fn place(&self) -> &str;

    /// Asks for length and version. Servers that cannot send parts are refused here, before anything
    /// depends on them.
    fn describe(&self) -> BoxFuture<'_, Result<Description>>;

    /// Asks for `range` of the blob as `description` has it. The answer's head is checked before the
    /// body is given: status, range, total length, version. The body may be shorter than the range if
    /// the connection ends; it is never longer.
    fn fetch(&self, range: Range<u64>, description: &Description) -> BoxFuture<'_, Result<Body>>;

    /// Asks for all of a blob whose length the server does not say, of the version that it gave, if it gave
    /// one. The answer's head is checked before the body is given. The body ends with an error where the
    /// connection ended before the answer did, as far as the protocol shows that.
    fn fetch_whole<'a>(&'a self, version: Option<&'a str>) -> BoxFuture<'a, Result<Body>> {
        let _of_any_version = version;
        let place = self.place().to_owned();
        std::future::ready(Err(RemoteError::NoRanges { place })).boxed()
    }

    /// Reads credentials again, on the user's signal.
    fn reload(&self) {}
}
