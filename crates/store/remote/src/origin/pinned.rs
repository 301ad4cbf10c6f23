//! A mirror with its own name for the version of the blob.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::{Body, Description, Origin, Result};

/// An origin that is requested by its own name for the version, which may differ from the name at
/// other mirrors.
pub struct Pinned {
    origin: Arc<dyn Origin>,
    description: Description,
}

impl Pinned {
    #[must_use]
    pub const fn new(origin: Arc<dyn Origin>, description: Description) -> Self {
        Self {
            origin,
            description,
        }
    }
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.origin.fmt(f)
    }
}

impl Origin for Pinned {
    fn place(&self) -> &str {
        self.origin.place()
    }

    fn describe(&self) -> BoxFuture<'_, Result<Description>> {
        self.origin.describe()
    }

    fn fetch(&self, range: Range<u64>, _: &Description) -> BoxFuture<'_, Result<Body>> {
        self.origin.fetch(range, &self.description)
    }

    fn reload(&self) {
        self.origin.reload();
    }
}
