//! The formats, one line each.

use std::io::Write;
use std::sync::Arc;

use forerun_engine::build::{BuildError, Tree};
use forerun_io::Observer;
use forerun_romfs::RomfsOptions;
use forerun_vfs::Format;

/// Formats that can be read.
#[must_use]
pub const fn formats() -> &'static [Format] {
    &[forerun_romfs::FORMAT]
}

/// A format to make, with its own options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Writer {
    /// romfs.
    Romfs(RomfsOptions),
}

impl Writer {
    /// Names of the formats that can be made, as `pack --format` takes them.
    pub const NAMES: &'static [&'static str] = &["romfs"];

    /// Name of this one.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Romfs(_) => "romfs",
        }
    }

    /// Lays `tree` out and writes the image, from its first byte to its last. Gives its length.
    /// The caller flushes `out`, and removes what was written if this fails.
    ///
    /// # Errors
    /// [`BuildError`]: the format cannot hold the tree, a file changed or could not be read, the
    /// output could not be written.
    pub fn write(
        &self,
        tree: &Tree,
        out: &mut dyn Write,
        observer: &Arc<Observer>,
    ) -> Result<u64, BuildError> {
        match self {
            Self::Romfs(options) => forerun_romfs::write(tree, options, out, observer),
        }
    }
}
