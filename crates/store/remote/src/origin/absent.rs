//! A placeholder for a server that is not contacted, because no server may be contacted or none is
//! known to have the version.

use std::ops::Range;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::{Body, Description, Origin, RemoteError, Result};

/// An origin that answers every request with the same error.
#[derive(Debug)]
pub struct Absent {
    place: String,
    error: RemoteError,
}

impl Absent {
    #[must_use]
    pub const fn new(place: String, error: RemoteError) -> Self {
        Self { place, error }
    }
}

impl Origin for Absent {
    fn place(&self) -> &str {
        &self.place
    }

    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        std::future::ready(Err(self.error.clone())).boxed()
    }

    fn fetch(&self, _: Range<u64>, _: &Description) -> BoxFuture<'_, Result<Body>> {
        std::future::ready(Err(self.error.clone())).boxed()
    }
}
