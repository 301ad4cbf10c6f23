//! A layer that is not open yet.

use std::sync::Arc;

use forerun_io::ReadAt;
use forerun_vfs::KeepIndex;
#[cfg(any(feature = "layouts", feature = "remote"))]
use forerun_vfs::{ProvenTable, Result};

/// The report for a layer whose digest was verified before its first byte was used.
#[cfg(any(feature = "layouts", feature = "remote"))]
pub const WHOLE: &str = "verified as a whole";
/// The report for a layer that is read by a stored index.
#[cfg(feature = "remote")]
pub const BY_INDEX: &str = "each part verified by a kept index";
/// The report for a layer that is read by an index from elsewhere.
#[cfg(any(feature = "layouts", feature = "remote"))]
pub const BY_NAMED_INDEX: &str = "each part compared with an index that forerun did not make";
/// The report for a layer that is read by a table of contents.
#[cfg(any(feature = "layouts", feature = "remote"))]
pub const BY_CONTENTS: &str = "each part verified by its table of contents";

/// One of several images that are opened as one tree.
pub struct LayerSource {
    /// The layer's name in errors.
    pub name: String,
    /// The image or archive.
    pub source: Arc<dyn ReadAt>,
    /// Stores the index of a compressed archive for the next opening.
    pub index: Option<Arc<dyn KeepIndex>>,
    /// How the layer's bytes are verified, for reports.
    pub verified: Option<&'static str>,
    /// The table of contents to read the layer by, so that its parts are read or fetched on demand.
    #[cfg(any(feature = "layouts", feature = "remote"))]
    pub lazy: Option<LazyLayer>,
    /// The same layer, if it is on a server.
    #[cfg(feature = "remote")]
    pub server: Option<Arc<forerun_remote::RemoteImage>>,
    /// Whether a layer on a server is not verified yet. It is then read as it arrives, and opening
    /// waits until the whole layer was compared with its digest.
    #[cfg(feature = "remote")]
    pub is_unverified: bool,
}

/// A layer that is read by a table of contents.
#[cfg(any(feature = "layouts", feature = "remote"))]
#[derive(Clone)]
pub struct LazyLayer {
    /// The table.
    pub table: ProvenTable,
    /// Whether no trusted document names the table. Such a table is ignored if it is damaged.
    pub is_claimed: bool,
    /// Compares the whole layer with its digest. Called if the table turns out to be unusable.
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
    /// Creates a layer without index and table.
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

    /// Returns whether it is at a server.
    #[cfg(feature = "remote")]
    pub(crate) const fn is_remote(&self) -> bool {
        self.server.is_some()
    }

    #[cfg(not(feature = "remote"))]
    pub(crate) const fn is_remote(&self) -> bool {
        false
    }
}
