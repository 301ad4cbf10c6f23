//! Makes composefs images.
//!
//! First all contents: files up to [`ComposefsOptions::inline`] bytes are kept in the image, others
//! become objects of a store, each once. Then the metadata, as an EROFS image whose every byte
//! follows from the tree: the layout is that of the reference implementation's format versions 0
//! and 1, so that the same tree has the same digest from every writer. The rules are described
//! in `docs/formats/composefs.md`.

mod contents;
mod data;
mod flat;
mod homes;
mod layout;
mod objects;
mod output;
mod xattr;

use std::path::PathBuf;
use std::sync::Arc;

use forerun_build::{BuildError, ImageOutput, Tree};
use forerun_io::Observer;

pub use data::{FileData, Files};

use self::layout::Image;
use self::output::Output;
use crate::digest::Digest;

/// Largest file that an image can hold itself.
const INLINE_MAX: usize = 4095;

/// The newest format version that is known.
pub const VERSION_MAX: u32 = 1;

/// How an image is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ComposefsOptions {
    /// The object store; made where it does not exist. With none, nothing is stored, and the image
    /// is of use only where its objects are known to be in some store.
    pub objects: Option<PathBuf>,
    /// Files up to so many bytes are kept in the image. The digest depends on it; 64 is what the
    /// reference implementation takes.
    pub inline: usize,
    /// Lowest format version to make: 0 or 1.
    pub min_version: u32,
    /// Highest format version to make. Version 1 is taken where the tree has whiteouts and this
    /// allows it.
    pub max_version: u32,
    /// Makes files of the host objects by one more name where that is possible, instead of copying
    /// them or sharing their blocks. A later change of such a file changes the object.
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
            hard_links: false,
            threads: 0,
        }
    }
}

impl ComposefsOptions {
    /// Returns whether the values are in their ranges.
    ///
    /// # Errors
    /// [`BuildError::Format`] with the one that is not.
    pub fn validate(&self) -> Result<(), BuildError> {
        if self.inline > INLINE_MAX {
            let most = INLINE_MAX;
            return Err(failed(format!(
                "files of {} bytes cannot be kept in the image; {most} is the limit",
                self.inline
            )));
        }
        if self.min_version > self.max_version || self.max_version > VERSION_MAX {
            return Err(failed(format!(
                "versions {} to {} were asked for; 0 and 1 are known",
                self.min_version, self.max_version
            )));
        }
        Ok(())
    }
}

/// An image that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its length in bytes.
    pub len: u64,
    /// Its fs-verity digest, by which composefs images are known.
    pub digest: Digest,
}

/// Stores the contents of `tree` and writes its metadata.
///
/// # Errors
/// [`BuildError::Format`] for options out of their ranges and for what the format cannot hold:
/// names over 255 bytes, link targets over 4095, files over 8 PiB, device numbers over 12 and 20
/// bits. [`BuildError::Content`] where a file cannot be read or has changed since it was scanned,
/// [`BuildError::Host`] where the store cannot be made, [`BuildError::Output`],
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

/// Writes the metadata of a tree whose files are where `files` says. Reads none of them.
///
/// # Errors
/// As [`write()`].
pub fn write_metadata(
    tree: &Tree,
    files: &Files,
    options: &ComposefsOptions,
    out: &mut dyn ImageOutput,
    observer: &Arc<Observer>,
) -> Result<Written, BuildError> {
    options.validate()?;
    let version = |whiteouts| match whiteouts {
        true => options.max_version,
        false => options.min_version,
    };
    let tree = flat::flatten(tree, files, |whiteouts| version(whiteouts) >= 1)?;
    let image = Image::new(&tree)?;
    let mut out = Output::new(out, observer);
    image.write(version(tree.whiteouts), &mut out)?;
    let (len, digest) = out.finish()?;
    Ok(Written { len, digest })
}

/// The format cannot hold it.
fn failed(reason: String) -> BuildError {
    BuildError::Format {
        format: "composefs",
        reason,
    }
}
