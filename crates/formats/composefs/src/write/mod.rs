//! Makes composefs images.
//!
//! First the contents are stored: files up to [`ComposefsOptions::inline`] bytes are kept in the
//! image, others become objects of a store, each once. Then the metadata is written as an EROFS
//! image whose every byte follows from the tree: the layout is that of the reference
//! implementation's format versions 0 and 1, so that the same tree has the same digest from every
//! writer. The rules are described in `docs/formats/composefs.md`.

mod contents;
mod data;
mod dump;
mod flat;
mod homes;
mod layout;
mod objects;
mod output;
mod xattr;

use std::path::PathBuf;
use std::sync::Arc;

use forerun_build::{BuildError, ImageOutput, KeptProperties, Tree};
use forerun_io::Observer;

pub use data::{FileData, Files};
pub use dump::{DumpError, DumpLineError, read_dump};

use self::layout::Image;
use self::output::Output;
use crate::digest::Digest;
use crate::verity::Algorithm;

/// Largest file that an image can hold itself.
const INLINE_MAX: usize = 4095;

/// The properties of nodes that an image keeps.
pub const KEPT: KeptProperties = KeptProperties {
    xattrs: xattr::keeps,
    ..KeptProperties::ALL
};

/// The newest format version that is known.
pub const VERSION_MAX: u32 = 1;

/// How an image is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComposefsOptions {
    /// The object store, created if it does not exist. Without one nothing is stored, and the image
    /// is useful only if its objects are in some store.
    pub objects: Option<PathBuf>,
    /// Largest file that is kept in the image, in bytes. The digest depends on it; the reference
    /// implementation uses 64.
    pub inline: usize,
    /// Lowest format version to use: 0 or 1.
    pub min_version: u32,
    /// Highest format version to use. Version 1 is used if the tree has whiteouts and this allows
    /// it.
    pub max_version: u32,
    /// The hash of the digests that name objects, and of the image's own.
    pub digest: Algorithm,
    /// Whether files of the host become objects by a hard link where possible, instead of a copy or
    /// shared blocks. A later change of such a file changes the object.
    pub hard_links: bool,
    /// Threads that read and measure; 0 means one for each CPU.
    pub threads: usize,
}

impl Default for ComposefsOptions {
    fn default() -> Self {
        Self {
            objects: None,
            inline: 64,
            min_version: 0,
            max_version: VERSION_MAX,
            digest: Algorithm::default(),
            hard_links: false,
            threads: 0,
        }
    }
}

impl ComposefsOptions {
    /// Checks that the values are in their ranges.
    ///
    /// # Errors
    /// [`BuildError::Format`] with the first that is not.
    pub fn validate(&self) -> Result<(), BuildError> {
        if self.inline > INLINE_MAX {
            let most = INLINE_MAX;
            return Err(failed(format!(
                "files of {} bytes cannot be stored in the image; at most {most} are allowed",
                self.inline
            )));
        }
        if self.min_version > self.max_version || self.max_version > VERSION_MAX {
            return Err(failed(format!(
                "versions {} to {} were requested; only 0 and 1 are supported",
                self.min_version, self.max_version
            )));
        }
        Ok(())
    }
}

/// The result of writing an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its length in bytes.
    pub len: u64,
    /// Its fs-verity digest, which identifies composefs images.
    pub digest: Digest,
}

/// Stores the contents of `tree` and writes its metadata.
///
/// # Errors
/// [`BuildError::Format`] for options out of their ranges and for trees that the format cannot
/// hold: names over 255 bytes, link targets over 4095, files over 8 PiB, device numbers over 12 and
/// 20 bits. [`BuildError::Content`] if a file cannot be read or has changed since it was scanned,
/// [`BuildError::Host`] if the store cannot be created, [`BuildError::Output`],
/// [`BuildError::Thread`].
pub fn write(
    tree: &Tree,
    options: &ComposefsOptions,
    out: &mut dyn ImageOutput,
    observer: &Arc<Observer>,
) -> Result<Written, BuildError> {
    options.validate()?;
    let files = objects::take_all(tree, options)?;
    write_metadata(tree, &files, options, out, observer)
}

/// Writes the metadata of a tree whose contents are stored as `files` describes. Reads no contents.
///
/// # Errors
/// The errors of [`write()`].
pub fn write_metadata(
    tree: &Tree,
    files: &Files,
    options: &ComposefsOptions,
    out: &mut dyn ImageOutput,
    observer: &Arc<Observer>,
) -> Result<Written, BuildError> {
    options.validate()?;
    let version = |whiteouts| {
        if whiteouts {
            options.max_version
        } else {
            options.min_version
        }
    };
    let tree = flat::flatten(tree, files, |whiteouts| version(whiteouts) >= 1)?;
    let image = Image::new(&tree)?;
    let mut out = Output::new(out, observer, options.digest);
    image.write(version(tree.whiteouts), &mut out)?;
    let (len, digest) = out.finish()?;
    Ok(Written { len, digest })
}

/// Creates the error of a tree that the format cannot hold.
fn failed(reason: String) -> BuildError {
    BuildError::Format {
        format: "composefs",
        reason,
    }
}
