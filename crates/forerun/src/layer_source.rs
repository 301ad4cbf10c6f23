//! One of several images that are shown as one tree, before it is open.

use std::sync::Arc;

use forerun_io::ReadAt;
use forerun_vfs::KeepIndex;
#[cfg(any(feature = "layouts", feature = "remote"))]
use forerun_vfs::{ProvenTable, Result};

/// How a layer is verified whose digest was compared before its first byte was used.
#[cfg(any(feature = "layouts", feature = "remote"))]
pub const WHOLE: &str = "verified as a whole";
/// How a layer is verified that is read by a kept index.
#[cfg(feature = "remote")]
pub const BY_INDEX: &str = "each part verified by a kept index";
/// How a layer is verified that is read by an index from elsewhere.
#[cfg(any(feature = "layouts", feature = "remote"))]
pub const BY_NAMED_INDEX: &str = "each part compared with an index from elsewhere";
/// How a layer is verified that is read by a table of contents.
#[cfg(any(feature = "layouts", feature = "remote"))]
pub const BY_CONTENTS: &str = "each part verified by its table of contents";

/// One of several images that are opened as one tree.
pub struct LayerSource {
    /// Its name in errors.
    pub name: String,
    /// The image, or archive.
    pub source: Arc<dyn ReadAt>,
    /// Keeps the index of a compressed archive for the next opening.
    pub index: Option<Arc<dyn KeepIndex>>,
    /// How its bytes are verified, for reports.
    pub verified: Option<&'static str>,
    /// The table of contents by which it is read: then parts of it are read, or fetched, when they are wanted.
    #[cfg(any(feature = "layouts", feature = "remote"))]
    pub lazy: Option<LazyLayer>,
    /// The same layer, where it is at a server.
    #[cfg(feature = "remote")]
    pub server: Option<Arc<forerun_remote::RemoteImage>>,
    /// Whether the layer at a server is not verified yet: it is read as it comes, and the image is open once all of it
    /// was compared with its digest.
    #[cfg(feature = "remote")]
    pub is_unverified: bool,
}

/// A layer that is read by a table of contents.
#[cfg(any(feature = "layouts", feature = "remote"))]
#[derive(Clone)]
pub struct LazyLayer {
    /// The table.
    pub table: ProvenTable,
    /// Whether no document vouches for it: then one that is damaged is not used.
    pub is_claimed: bool,
    /// Compares all of the layer with its digest: for a table that is not used.
    pub verify_whole: Arc<dyn Fn() -> Result<()> + Send + Sync>,
}

#[cfg(any(feature = "layouts", feature = "remote"))]
impl std::fmt::Debug for LazyLayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LazyLayer")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for LayerSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LayerSource")
            .field("name", &self.name)
            .field("len", &self.source.len())
            .finish_non_exhaustive()
    }
}

impl LayerSource {
    /// Creates one without an index.
    #[must_use]
    pub fn new(name: impl Into<String>, source: Arc<dyn ReadAt>) -> Self {
        Self {
            name: name.into(),
            source,
            index: None,
            verified: None,
            #[cfg(any(feature = "layouts", feature = "remote"))]
            lazy: None,
            #[cfg(feature = "remote")]
            server: None,
            #[cfg(feature = "remote")]
            is_unverified: false,
        }
    }
}
