//! The writable formats, one line each.

use std::sync::Arc;

use forerun_build::{
    BuildError, ImageOutput, KeptProperties, NotKept, Tree, not_kept, warn_of_large_tree,
};
#[cfg(feature = "composefs")]
use forerun_composefs::{Digest, write::ComposefsOptions};
#[cfg(feature = "erofs")]
use forerun_erofs::write::ErofsOptions;
#[cfg(feature = "exfat")]
use forerun_exfat::write::ExfatOptions;
use forerun_io::Observer;
#[cfg(feature = "romfs")]
use forerun_romfs::RomfsOptions;
#[cfg(feature = "squashfs")]
use forerun_squashfs::write::SquashfsOptions;

/// The result of writing an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// Length of the image in bytes.
    pub len: u64,
    /// fs-verity digest, for formats whose images are identified by it.
    #[cfg(feature = "composefs")]
    pub digest: Option<Digest>,
}

#[cfg(any(
    feature = "romfs",
    feature = "squashfs",
    feature = "erofs",
    feature = "exfat"
))]
impl Written {
    const fn of(len: u64) -> Self {
        Self {
            len,
            #[cfg(feature = "composefs")]
            digest: None,
        }
    }
}

/// A format to write, with its options.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Writer {
    /// romfs.
    #[cfg(feature = "romfs")]
    Romfs(RomfsOptions),
    /// SquashFS.
    #[cfg(feature = "squashfs")]
    Squashfs(SquashfsOptions),
    /// EROFS.
    #[cfg(feature = "erofs")]
    Erofs(ErofsOptions),
    /// composefs.
    #[cfg(feature = "composefs")]
    Composefs(ComposefsOptions),
    /// exFAT.
    #[cfg(feature = "exfat")]
    Exfat(ExfatOptions),
}

impl Writer {
    /// Names of the writable formats, as `pack --format` takes them.
    pub const NAMES: &'static [&'static str] = &[
        #[cfg(feature = "romfs")]
        "romfs",
        #[cfg(feature = "squashfs")]
        "squashfs",
        #[cfg(feature = "erofs")]
        "erofs",
        #[cfg(feature = "composefs")]
        "composefs",
        #[cfg(feature = "exfat")]
        "exfat",
    ];

    /// Returns the name of the format.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            #[cfg(feature = "romfs")]
            Self::Romfs(_) => "romfs",
            #[cfg(feature = "squashfs")]
            Self::Squashfs(_) => "squashfs",
            #[cfg(feature = "erofs")]
            Self::Erofs(_) => "erofs",
            #[cfg(feature = "composefs")]
            Self::Composefs(_) => "composefs",
            #[cfg(feature = "exfat")]
            Self::Exfat(_) => "exfat",
        }
    }

    /// Returns whether writing goes back to bytes that were already written. If not, `out` may be
    /// any writer, such as a pipe.
    #[must_use]
    pub const fn patches(&self) -> bool {
        match self {
            #[cfg(feature = "exfat")]
            Self::Exfat(options) => options.sparse_tails,
            #[cfg(feature = "squashfs")]
            Self::Squashfs(_) => true,
            #[cfg(feature = "erofs")]
            Self::Erofs(_) => true,
            #[allow(unreachable_patterns)] // Where no other format is built in.
            _ => false,
        }
    }

    /// Returns the properties of `tree` that the image will lack.
    #[must_use]
    pub fn not_kept(&self, tree: &Tree) -> Vec<NotKept> {
        not_kept(tree, &self.kept())
    }

    /// Returns the properties of nodes that the format stores. Attributes that an option leaves out
    /// do not count as lost.
    const fn kept(&self) -> KeptProperties {
        match self {
            #[cfg(feature = "exfat")]
            Self::Exfat(_) => forerun_exfat::write::KEPT,
            #[cfg(feature = "romfs")]
            Self::Romfs(_) => forerun_romfs::KEPT,
            #[cfg(feature = "squashfs")]
            Self::Squashfs(options) => KeptProperties {
                xattrs: if options.xattrs {
                    forerun_squashfs::write::KEPT.xattrs
                } else {
                    KeptProperties::ALL.xattrs
                },
                ..forerun_squashfs::write::KEPT
            },
            #[cfg(feature = "erofs")]
            Self::Erofs(options) => KeptProperties {
                xattrs: if options.xattrs {
                    forerun_erofs::write::KEPT.xattrs
                } else {
                    KeptProperties::ALL.xattrs
                },
                ..forerun_erofs::write::KEPT
            },
            #[cfg(feature = "composefs")]
            Self::Composefs(_) => forerun_composefs::write::KEPT,
        }
    }

    /// Writes an image of `tree` from its first byte to its last. Then rewrites parts of it if the
    /// format [`patches`](Self::patches). The caller flushes `out`, and removes the output after an
    /// error.
    ///
    /// ```
    /// use std::fs::{self, File};
    /// use std::sync::Arc;
    ///
    /// use forerun::build::{ScanOptions, scan};
    /// use forerun::build::ErofsOptions;
    /// use forerun::{Observer, Writer};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// # let (files, path) = (dir.path().join("files"), dir.path().join("image.erofs"));
    /// # fs::create_dir(&files)?;
    /// # fs::write(files.join("a"), "a")?;
    /// // An image of a directory.
    /// let tree = scan(&files, &ScanOptions::default())?;
    /// let mut out = File::create(&path)?;
    /// let writer = Writer::Erofs(ErofsOptions::default());
    /// let written = writer.write(&tree, &mut out, &Arc::new(Observer::default()))?;
    /// out.sync_all()?;
    /// assert_eq!(written.len, fs::metadata(&path)?.len());
    /// # Ok(())
    /// # }
    /// ```
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
        let written = self.write_tree(tree, out, observer);
        written.map_err(|error| error.of_host(tree))
    }

    fn write_tree(
        &self,
        tree: &Tree,
        out: &mut dyn ImageOutput,
        observer: &Arc<Observer>,
    ) -> Result<Written, BuildError> {
        match self {
            #[cfg(feature = "romfs")]
            Self::Romfs(options) => {
                forerun_romfs::write(tree, options, out, observer).map(Written::of)
            }
            #[cfg(feature = "squashfs")]
            Self::Squashfs(options) => {
                forerun_squashfs::write::write(tree, options, out, observer).map(Written::of)
            }
            #[cfg(feature = "erofs")]
            Self::Erofs(options) => {
                forerun_erofs::write::write(tree, options, out, observer).map(Written::of)
            }
            #[cfg(feature = "exfat")]
            Self::Exfat(options) => {
                forerun_exfat::write::write(tree, options, out, observer).map(Written::of)
            }
            #[cfg(feature = "composefs")]
            Self::Composefs(options) => {
                let written = forerun_composefs::write::write(tree, options, out, observer)?;
                Ok(Written {
                    len: written.len,
                    digest: Some(written.digest),
                })
            }
        }
    }
}
