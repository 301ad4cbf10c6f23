//! The formats, one line each.

use std::sync::Arc;

use forerun_build::{BuildError, ImageOutput, Tree, warn_of_large_tree};
use forerun_composefs::Digest;
use forerun_composefs::write::ComposefsOptions;
use forerun_erofs::write::ErofsOptions;
use forerun_exfat::write::{ExfatOptions, NotKept};
use forerun_io::Observer;
use forerun_romfs::RomfsOptions;
use forerun_squashfs::write::SquashfsOptions;
use forerun_vfs::Format;

/// Formats that can be read.
#[must_use]
pub const fn formats() -> &'static [Format] {
    &[
        forerun_romfs::FORMAT,
        forerun_squashfs::FORMAT,
        // Before EROFS, which its images are as well.
        forerun_composefs::FORMAT,
        forerun_erofs::FORMAT,
        forerun_exfat::FORMAT,
        forerun_cramfs::FORMAT,
    ]
}

/// Returns the names of the formats that can be read, in the order in which they are tried.
#[must_use]
pub fn format_names() -> Vec<&'static str> {
    formats().iter().map(|format| format.name).collect()
}

/// An image that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Its length in bytes.
    pub len: u64,
    /// Its fs-verity digest, by which images of some formats are known.
    pub digest: Option<Digest>,
}

impl Written {
    const fn of(len: u64) -> Self {
        Self { len, digest: None }
    }
}

/// A format to make, with its own options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Writer {
    /// romfs.
    Romfs(RomfsOptions),
    /// SquashFS.
    Squashfs(SquashfsOptions),
    /// EROFS.
    Erofs(ErofsOptions),
    /// composefs.
    Composefs(ComposefsOptions),
    /// exFAT.
    Exfat(ExfatOptions),
}

impl Writer {
    /// Names of the formats that can be made, as `pack --format` takes them.
    pub const NAMES: &'static [&'static str] =
        &["romfs", "squashfs", "erofs", "composefs", "exfat"];

    /// Name of this one.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Romfs(_) => "romfs",
            Self::Squashfs(_) => "squashfs",
            Self::Erofs(_) => "erofs",
            Self::Composefs(_) => "composefs",
            Self::Exfat(_) => "exfat",
        }
    }

    /// Whether writing goes back to bytes that were written before. Where not, `out` may be
    /// anything that takes bytes in order.
    #[must_use]
    pub const fn patches(&self) -> bool {
        match self {
            Self::Romfs(_) | Self::Composefs(_) => false,
            Self::Squashfs(_) | Self::Erofs(_) => true,
            Self::Exfat(options) => options.sparse_tails,
        }
    }

    /// What the image will not have of `tree`, beyond what the format is documented to leave out:
    /// owners, permissions, times.
    #[must_use]
    pub fn not_kept(&self, tree: &Tree) -> Vec<NotKept> {
        match self {
            Self::Romfs(_) | Self::Squashfs(_) | Self::Erofs(_) | Self::Composefs(_) => Vec::new(),
            Self::Exfat(_) => forerun_exfat::write::not_kept(tree),
        }
    }

    /// Lays `tree` out and writes the image, from its first byte to its last, and then over some of
    /// it where the format [`patches`](Self::patches). The caller flushes `out`, and removes what was
    /// written if this fails.
    ///
    /// # Errors
    /// [`BuildError`]: the format cannot hold the tree, a file changed or could not be read, the
    /// output could not be written.
    pub fn write(
        &self,
        tree: &Tree,
        out: &mut dyn ImageOutput,
        observer: &Arc<Observer>,
    ) -> Result<Written, BuildError> {
        warn_of_large_tree(tree);
        let len = match self {
            Self::Romfs(options) => forerun_romfs::write(tree, options, out, observer),
            Self::Squashfs(options) => forerun_squashfs::write::write(tree, options, out, observer),
            Self::Erofs(options) => forerun_erofs::write::write(tree, options, out, observer),
            Self::Exfat(options) => forerun_exfat::write::write(tree, options, out, observer),
            Self::Composefs(options) => {
                let written = forerun_composefs::write::write(tree, options, out, observer)?;
                return Ok(Written {
                    len: written.len,
                    digest: Some(written.digest),
                });
            }
        };
        len.map(Written::of)
    }
}
